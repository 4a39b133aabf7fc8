import type { JSX } from 'preact';
import { can } from '../api.ts';
import { count, plural, rough, short } from '../format.ts';
import { recent } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { CopyAs, curlOf } from '../parts/copy.tsx';
import { QueueLink } from '../parts/name.tsx';
import { PauseQueue } from '../parts/pause-queue.tsx';
import { Gauge, Spark } from '../parts/spark.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { Count, Maybe } from '../parts/words.tsx';
import { useResource } from '../resource.ts';
import type { Page, Queue } from '../types.ts';

export function QueuesPage(): JSX.Element {
  return (
    <>
      <Head
        title="Queues"
        about="What waits, what runs, and how fast it goes."
        actions={
          <CopyAs
            of={{
              CLI: 'pawl queue stats',
              curl: curlOf('queues'),
              TypeScript: 'await createQueueAdmin(engine).list()',
            }}
          />
        }
      />
      <Card title="All queues">
        <QueueTable />
      </Card>
    </>
  );
}

export function QueueTable(): JSX.Element {
  const queues = useResource<Page<Queue>>('queues');
  return (
    <Loaded of={queues}>
      {({ items }) =>
        items.length === 0 ? (
          <Empty title="No queue is known yet">A program makes its own known when it first uses it.</Empty>
        ) : (
          <Table
            caption="Queues"
            rows={items}
            keyOf={({ name }) => name}
            columns={can('queue:pause') ? [...COLUMNS, ACTION] : COLUMNS}
          />
        )
      }
    </Loaded>
  );
}

const number = (title: string, of: (queue: Queue) => number, query: string): Column<Queue> => ({
  title,
  align: 'right',
  of: (queue) => (
    <Count of={of(queue)} href={`jobs?queue=${encodeURIComponent(queue.name)}&q=${encodeURIComponent(query)}`} />
  ),
});

const COLUMNS: readonly Column<Queue>[] = [
  {
    title: 'Queue',
    of: ({ name, stats }) => (
      <>
        <strong class="wrap">
          <QueueLink name={name} />
        </strong>{' '}
        <State stats={stats} />
      </>
    ),
  },
  number('Ready', ({ stats }) => stats.ready, 'status:new'),
  number('In progress', ({ stats }) => stats.inProgress, 'status:in-progress'),
  { title: 'Later', align: 'right', of: ({ stats }) => <Count of={stats.delayed} /> },
  { title: 'Behind a key', align: 'right', of: ({ stats }) => <Count of={stats.parked} /> },
  number('Error', ({ stats }) => stats.error, 'status:error'),
  {
    title: 'Oldest',
    align: 'right',
    of: ({ stats }) => <Maybe of={stats.oldestReadyMs === null ? null : rough(stats.oldestReadyMs)} />,
  },
  {
    title: 'Slots in use',
    of: ({ name, stats }) => (
      <>
        <Gauge part={stats.inProgress} of={stats.slots} label={`Slots in use of ${name}`} />
        <span class="small muted">
          {stats.workers === 0
            ? 'no worker'
            : `${count(stats.inProgress)} of ${stats.slots}, ${plural(stats.workers, 'worker')}`}
        </span>
      </>
    ),
  },
  {
    title: 'Done a minute',
    align: 'right',
    of: ({ stats: { completePerMinute: n } }) => (n === 0 ? <Count of={0} /> : short(n)),
  },
  {
    title: 'Lately',
    of: ({ name }) => (
      <Spark
        values={recent.value.map(({ queues }) => queues.find((one) => one.name === name)?.stats.completePerMinute ?? 0)}
      />
    ),
  },
];

const ACTION: Column<Queue> = {
  title: 'Action',
  isAction: true,
  of: (queue) => <PauseQueue name={queue.name} isPaused={queue.pausedAt !== null} />,
};

function State({ stats }: { readonly stats: Queue['stats'] }): JSX.Element | null {
  if (stats.pausedAt !== null) return <Badge status="paused" />;
  if (stats.workers === 0 && stats.ready > 0) return <Badge status="lost">no worker</Badge>;
  return null;
}
