import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Skeleton } from './parts/card.tsx';
import { go } from './router.ts';

/** A short address: the page that it stands for takes its place, so that going back does not come here again. */
export function Moved({ to }: { readonly to: string }): JSX.Element {
  useEffect(() => go(to, { replace: true }), [to]);
  return <Skeleton />;
}
