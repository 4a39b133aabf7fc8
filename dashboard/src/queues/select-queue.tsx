import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { List, Queue } from '../data/types.ts';
import { filter } from '../router.ts';
import { visibleName } from '../text/visible.ts';

/** Chooses a queue. The choice is in the address. */
export function SelectQueue({ value }: { readonly value: string }): JSX.Element {
  const queues = useResource<List<Queue>>('queues', 30_000);
  const names = new Set([...(value === '' ? [] : [value]), ...(queues.data?.items ?? []).map(({ name }) => name)]);
  return (
    <select aria-label="Queue" value={value} onChange={(event) => filter({ queue: event.currentTarget.value })}>
      <option value="">All queues</option>
      {[...names].map((name) => (
        <option key={name} value={name}>
          {visibleName(name)}
        </option>
      ))}
    </select>
  );
}
