import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { can, send } from '../api.ts';
import { count } from '../format.ts';
import { useResource } from '../resource.ts';
import { query as address, filter } from '../router.ts';
import type { Bulk } from '../types.ts';
import { Badge } from './badge.tsx';
import { Loaded } from './card.tsx';
import { confirm } from './dialog.tsx';
import { Gauge } from './spark.tsx';
import { attempt } from './toast.tsx';

/** Actions on everything that a search finds, with how far they are. */
export function BulkBar({ query, queue }: { readonly query: string; readonly queue: string }): JSX.Element {
  const id = address.value.get('bulk');
  const start = async (action: 'retry' | 'cancel'): Promise<void> => {
    const reason = await confirm({
      title: action === 'retry' ? 'Retry every job that fits' : 'Cancel every job that fits',
      text: (
        <>
          Every job that <code>{query}</code> finds{queue === '' ? ', in all queues' : `, in queue ${queue}`}: at most
          100,000 of them, in the background: it goes on when this page is closed.
        </>
      ),
      verb: action === 'retry' ? 'Retry all' : 'Cancel all',
      isDanger: action === 'cancel',
      ...(action === 'cancel' ? { typed: 'cancel', ask: { label: 'Reason, kept with each job' } } : {}),
    });
    if (reason === undefined) return;
    await attempt(async () => {
      const bulk = await send<Bulk>('POST', 'bulk', {
        action,
        query,
        ...(queue === '' ? {} : { queue }),
        ...(reason === '' ? {} : { reason }),
      });
      filter({ bulk: bulk.id });
      return 'It has begun';
    });
  };
  return (
    <>
      <div class="bulk-bar">
        <span class="muted">All that fit:</span>
        {can('job:retry') && (
          <button type="button" onClick={() => void start('retry')}>
            Retry all
          </button>
        )}
        {can('job:cancel') && (
          <button type="button" class="danger" onClick={() => void start('cancel')}>
            Cancel all
          </button>
        )}
      </div>
      {id !== null && /^\d+$/.test(id) && (
        <>
          <BulkProgress id={id} />
          <div class="bulk-bar">
            <a href={`bulk/${id}`}>What became of each</a>
          </div>
        </>
      )}
    </>
  );
}

/** How far a bulk action is. */
export function BulkProgress({ id }: { readonly id: string }): JSX.Element {
  const bulk = useResource<Bulk>(`bulk/${id}`, 500);
  const { data, reload } = bulk;
  const isOpen = data !== undefined && data.endedAt === null;
  // Every answer is another object, so this asks again until it is over.
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
