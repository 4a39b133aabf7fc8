import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { get } from '../data/api.ts';
import { type Resource, useResource } from '../data/resource.ts';
import type { List } from '../data/types.ts';
import { attempt } from './toast.tsx';

export interface LongList<T> {
  /** The first page of the list: being loaded, refused, or its data. */
  readonly page: Resource<List<T>>;
  readonly rows: readonly T[];
  /** Adds the next page; undefined if there is none. */
  readonly next: (() => Promise<boolean>) | undefined;
}

/** A list of several pages. The first page is kept fresh. The user adds the pages after it. */
export function useLongList<T>(asked: string, everyMs?: number): LongList<T> {
  const page = useResource<List<T>>(asked, everyMs);
  const [more, setMore] = useState<{ asked: string; page: List<T> } | undefined>();
  const added = more?.asked === asked ? more.page : undefined;
  const after = added === undefined ? page.data?.after : added.after;
  const next = (): Promise<boolean> =>
    attempt(async () => {
      const got = await get<List<T>>(`${asked}${asked.includes('?') ? '&' : '?'}after=${after}`);
      setMore({ asked, page: { items: [...(added?.items ?? []), ...got.items], after: got.after } });
      return undefined;
    });
  return {
    page,
    rows: [...(page.data?.items ?? []), ...(added?.items ?? [])],
    next: typeof after === 'string' ? next : undefined,
  };
}

/** The button below a list that has more pages. */
export function ShowMore({ next }: { readonly next: LongList<unknown>['next'] }): JSX.Element | null {
  if (next === undefined) return null;
  return (
    <div class="bulk-bar">
      <button type="button" onClick={() => void next()}>
        Show more
      </button>
    </div>
  );
}
