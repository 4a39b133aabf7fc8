import type { JSX } from 'preact';
import { lockUrl, queueUrl } from '../router.ts';
import { visibleName } from './visible.ts';

/** A name that somebody gave, so that no two look alike: the text around it has another direction, and blanks are signs. */
export function Name({ of }: { readonly of: string }): JSX.Element {
  return <bdi>{visibleName(of)}</bdi>;
}

/** The way to a queue. */
export function QueueLink({ name }: { readonly name: string }): JSX.Element {
  return (
    <a href={queueUrl(name)}>
      <Name of={name} />
    </a>
  );
}

/** The way to a lock. */
export function LockLink({ of }: { readonly of: { readonly namespace: string; readonly name: string } }): JSX.Element {
  return (
    <a href={lockUrl(of)}>
      <Name of={of.name} />
    </a>
  );
}
