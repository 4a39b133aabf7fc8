import type { JSX } from 'preact';
import { lockUrl, queueUrl } from '../router.ts';
import { visibleName } from './visible.ts';

/** Shows a name that a user gave so that no two names look alike. It is isolated from the direction of the text around it, and blanks are signs. */
export function Name({ of }: { readonly of: string }): JSX.Element {
  return <bdi>{visibleName(of)}</bdi>;
}

/** A link to a queue. */
export function QueueLink({ name }: { readonly name: string }): JSX.Element {
  return (
    <a href={queueUrl(name)}>
      <Name of={name} />
    </a>
  );
}

/** A link to a lock. */
export function LockLink({ of }: { readonly of: { readonly namespace: string; readonly name: string } }): JSX.Element {
  return (
    <a href={lockUrl(of)}>
      <Name of={of.name} />
    </a>
  );
}
