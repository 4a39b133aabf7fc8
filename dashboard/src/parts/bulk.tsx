import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { can, send } from '../api.ts';
import { refresh } from '../live.ts';
import { useResource } from '../resource.ts';
import type { Bulk } from '../types.ts';
import { Badge } from './badge.tsx';
import { confirm } from './dialog.tsx';
import { Gauge } from './spark.tsx';
import { Table } from './table.tsx';
import { attempt } from './toast.tsx';

/** Actions on everything that a search finds, with how far they are. */
export function BulkBar({ query, queue }: { readonly query: string; readonly queue: string }): JSX.Element {
  const [id, setId] = useState<string | undefined>();
  const start = async (action: 'retry' | 'cancel'): Promise<void> => {
    const reason = await confirm({
      title: action === 'retry' ? 'Retry every job that fits' : 'Cancel every job that fits',
      text: (
        <>
          Every job that <code>{query}</code> finds{queue === '' ? ', in all queues' : `, in queue ${queue}`}: at most
          10,000 of them, in the background.
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
      setId(bulk.id);
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
      {id !== undefined && <Progress id={id} />}
    </>
  );
}

function Progress({ id }: { readonly id: string }): JSX.Element | null {
  const bulk = useResource<Bulk>(`bulk/${id}`, 500);
  if (bulk.data === undefined) return null;
  const { status, found, done, refused, error, results = [] } = bulk.data;
  if (status === 'running') setTimeout(bulk.reload, 700);
  return (
    <div class="bulk-bar">
      <Badge status={status === 'running' ? 'in-progress' : status}>{status}</Badge>
      <Gauge part={done + refused} of={found} label="Progress" />
      <span>
        {done} done, {refused} refused, of {found}
        {error === null ? '' : `: ${error}`}
      </span>
      {status === 'running' && (
        <button
          type="button"
          onClick={() =>
            void attempt(async () => {
              await send('POST', `bulk/${id}/stop`);
              refresh();
              return 'It ends';
            })
          }
        >
          Stop
        </button>
      )}
      {results.length > 0 && (
        <details>
          <summary>What became of each</summary>
          <Table
            caption="Results"
            rows={results}
            keyOf={({ job }) => job}
            columns={[
              { title: 'Job', of: ({ job }) => <a href={`jobs/${job}`}>{job}</a> },
              { title: 'Outcome', of: ({ outcome }) => <Badge status={outcome} /> },
              { title: 'Detail', of: ({ detail }) => detail },
            ]}
          />
        </details>
      )}
    </div>
  );
}
