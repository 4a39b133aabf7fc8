import type { JSX } from 'preact';
import { useResource } from '../resource.ts';
import { lockUrl } from '../router.ts';
import type { HistoryEvent, JobDetail, Move, Page, Workers } from '../types.ts';
import { Badge } from './badge.tsx';
import { Card } from './card.tsx';
import { Table } from './table.tsx';
import { Time } from './time.tsx';
import { Maybe } from './words.tsx';

/**
 * What the process of its worker held while the last attempt ran. Locks know their process, not the job they were taken for, and
 * the card says so.
 */
export function JobLocks({ of }: { readonly of: JobDetail }): JSX.Element | null {
  const run = lastRun(of.history);
  const workers = useResource<Workers>(run === undefined ? undefined : 'workers', 30_000);
  const worker = workers.data?.queues.find(({ id, queue }) => id === run?.worker && queue === of.queue);
  const process = worker === undefined ? undefined : `${worker.host}:${worker.pid}`;
  const span = new URLSearchParams({
    part: 'lock',
    q: process ?? '',
    since: run?.from ?? '',
    ...(run?.to === undefined ? {} : { until: run.to }),
  });
  const locks = useResource<Page<HistoryEvent>>(process === undefined ? undefined : `history?${span}`, 5000);
  const items = locks.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <Card
      title="Locks while it ran"
      actions={<span class="muted small">taken or given back by its process, {process}</span>}
    >
      <Table
        caption="Locks of its process while it ran"
        rows={items}
        keyOf={({ event, id }) => `${event} ${id}`}
        columns={[
          {
            title: 'Lock',
            of: ({ subject, namespace }) => (
              <a href={lockUrl({ namespace: namespace ?? '', name: subject })}>{subject}</a>
            ),
          },
          { title: 'What', of: ({ event }) => <Badge status={event} /> },
          { title: 'When', of: ({ at }) => <Time at={at} /> },
          { title: 'Detail', of: ({ detail }) => <Maybe of={detail} /> },
          { title: 'Token', align: 'right', of: ({ id }) => <code>{id}</code> },
        ]}
      />
    </Card>
  );
}

interface Run {
  readonly worker: string;
  readonly from: string;
  /** Undefined while it runs. */
  readonly to: string | undefined;
}

function lastRun(history: readonly Move[]): Run | undefined {
  const index = history.findLastIndex(({ to }) => to === 'in-progress');
  const claim = history[index];
  if (claim === undefined || typeof claim.worker !== 'string') return undefined;
  return { worker: claim.worker, from: claim.at, to: history[index + 1]?.at };
}
