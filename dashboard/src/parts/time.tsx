import type { JSX } from 'preact';
import { ago, exact } from '../format.ts';
import { tick } from '../live.ts';

/** How long ago; the moment itself, to the millisecond, for whoever points at it. */
export function Time({ at }: { readonly at: string | null | undefined }): JSX.Element {
  void tick.value;
  if (at === null || at === undefined) return <span class="muted">–</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at)}
    </time>
  );
}
