import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Gauge } from '../charts/spark.tsx';
import { can, send } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Bulk } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Loaded } from '../parts/card.tsx';
import { attempt, say } from '../parts/toast.tsx';
import { query as address, filter } from '../router.ts';
import { count } from '../text/format.ts';
import { type BulkAction, BulkDialog, type BulkTarget } from './bulk-dialog.tsx';

interface BulkBarProps {
  readonly of: BulkTarget;
  /** The text before the buttons, which names the jobs. */
  readonly about: string;
  readonly onBegun?: () => void;
}

/** Actions on many jobs at once. The dialog says how many jobs there are before it changes any. */
export function BulkBar({ of, about, onBegun }: BulkBarProps): JSX.Element {
  const [action, setAction] = useState<BulkAction | undefined>();
  const which = 'jobs' in of ? 'selected' : 'all';
  return (
    <div class="bulk-bar" role="group" aria-label={about}>
      <span class="muted">{about}</span>
      {can('job:retry') && (
        <button type="button" onClick={() => setAction('retry')}>
          Retry {which}…
        </button>
      )}
      {can('job:cancel') && (
        <button type="button" class="danger" onClick={() => setAction('cancel')}>
          Cancel {which}…
        </button>
      )}
      {can('job:update') && (
        <button type="button" title="By hand: they are not run" onClick={() => setAction('finish')}>
          Complete {which}…
        </button>
      )}
      {can('job:retry') && (
        <button type="button" title="Of dead letters: their jobs run again" onClick={() => setAction('redrive')}>
          Redrive {which}…
        </button>
      )}
      {can('job:erase') && (
        <button type="button" class="danger" onClick={() => setAction('erase')}>
          Erase {which}…
        </button>
      )}
      {action !== undefined && (
        <BulkDialog
          action={action}
          of={of}
          onClose={() => setAction(undefined)}
          onBegun={(bulk) => {
            setAction(undefined);
            filter({ bulk });
            say('It has begun');
            onBegun?.();
          }}
        />
      )}
    </div>
  );
}

/** The progress of the action that was begun from this list. Its number is in the address. */
export function BulkBegun(): JSX.Element | null {
  const id = address.value.get('bulk');
  if (id === null || !/^\d{1,19}$/.test(id)) return null;
  return (
    <>
      <BulkProgress id={id} />
      <div class="bulk-bar">
        <a href={`bulk/${id}`}>What became of each</a>
        <button type="button" class="link" onClick={() => filter({ bulk: undefined })}>
          Hide
        </button>
      </div>
    </>
  );
}

/** The progress of a bulk action. */
export function BulkProgress({ id }: { readonly id: string }): JSX.Element {
  const bulk = useResource<Bulk>(`bulk/${id}`, 500);
  const { data, reload } = bulk;
  const isOpen = data !== undefined && data.endedAt === null;
  // Every answer is a new object, so this effect runs again until the action is over.
  useEffect(() => {
    if (!isOpen) return;
    const timer = setTimeout(reload, 700);
    return () => clearTimeout(timer);
  }, [data]);
  return (
    <Loaded of={bulk}>
      {({ status, found, collected, done, refused, error }) => (
        <div class="bulk-bar">
          <BulkBadge status={status} />
          <Gauge part={done + refused} of={found} label="Progress" isPlain />
          <span>
            {count(done, Infinity)} done, {count(refused, Infinity)} refused, of {count(found, Infinity)}
            {collected || !isOpen ? '' : ' so far'}
            {error === null ? '' : `: ${error}`}
          </span>
          {isOpen && can('job:bulk') && (
            <button
              type="button"
              onClick={() =>
                void attempt(async () => {
                  await send('POST', `bulk/${id}/stop`);
                  reload();
                  return 'It ends';
                })
              }
            >
              Stop
            </button>
          )}
        </div>
      )}
    </Loaded>
  );
}

export function BulkBadge({ status }: { readonly status: string }): JSX.Element {
  return <Badge status={status === 'waiting' ? 'new' : status}>{status}</Badge>;
}
