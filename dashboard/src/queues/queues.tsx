import type { JSX } from 'preact';
import { Kinds } from '../charts/kinds.tsx';
import { Gauge, Spark } from '../charts/spark.tsx';
import { can, has } from '../data/api.ts';
import { recent } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { Queue, QueueList } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { type Column, type Order, Table } from '../parts/table.tsx';
import { filter, query } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { count, plural, rough, short } from '../text/format.ts';
import { QueueLink } from '../text/name.tsx';
import { Count, Maybe } from '../text/words.tsx';
import { PauseQueue } from './pause-queue.tsx';

const LIMIT = 50;
/** As many queues as a reader can take in at a glance. */
const BUSIEST = 10;

export function QueuesPage(): JSX.Element {
  return (
    <>
      <Head
        title="Queues"
        about="The waiting and the running jobs of each queue, and its throughput."
        actions={
          <CopyAs
            of={{
              CLI: 'pawl queue stats',
              SQL: 'select * from pawl.queue order by name',
              curl: curlOf('queues'),
              TypeScript: 'await createQueueAdmin(engine).list()',
            }}
          />
        }
      />
      <QueueList />
      {has('charts') && <Kinds />}
    </>
  );
}

/** All queues, or those whose names contain a text. The text and the order are in the address. */
function QueueList(): JSX.Element {
  const given = query.value;
  const [q, sort] = [given.get('q') ?? '', given.get('sort') ?? 'name'];
  const isDown = given.get('order') === null ? sort !== 'name' : given.get('order') === 'desc';
  const search = { ...(q === '' ? {} : { q }), sort, order: isDown ? 'desc' : 'asc', limit: String(LIMIT) };
  const { page, rows: loaded, next } = useLongList<Queue>(`queues?${new URLSearchParams(search)}`);
  // Figures change, and with them the order of the queues. So a queue may be on two pages.
  const rows = [...new Map(loaded.map((queue) => [queue.name, queue])).values()];
  const total = (page.data as QueueList | undefined)?.total;
  const choose = (by: string): void => {
    // The same column reverses the order. Another column begins with the usual one: names from a to z, figures from the largest.
    const order = by !== sort ? undefined : isDown ? 'asc' : 'desc';
    filter({ sort: by === 'name' ? undefined : by, order });
  };
  return (
    <Card
      title="All queues"
      actions={
        total !== undefined && <span class="muted small">{plural(total, q === '' ? 'queue' : 'queue fits')}</span>
      }
    >
      <div class="body filters">
        <input
          type="search"
          aria-label="Part of the name"
          placeholder="Part of the name"
          value={q}
          onInput={(event) => filter({ q: event.currentTarget.value })}
        />
      </div>
      <Loaded of={page}>
        {() =>
          rows.length > 0 ? (
            <>
              <Queues of={rows} order={{ by: sort, isDown, choose }} />
              <ShowMore next={next} />
            </>
          ) : q === '' ? (
            <NoQueues />
          ) : (
            <Empty title="No queue has that in its name">
              <button type="button" class="link" onClick={() => filter({ q: undefined })}>
                Show all
              </button>
            </Empty>
          )
        }
      </Loaded>
    </Card>
  );
}

/** The queues with the most ready jobs. */
export function BusiestQueues(): JSX.Element {
  const queues = useResource<QueueList>(`queues?sort=ready&limit=${BUSIEST}`);
  const total = queues.data?.total ?? 0;
  return (
    <Card title={total > BUSIEST ? 'Queues with the most to do' : 'Queues'} actions={<a href="queues">All queues</a>}>
      <Loaded of={queues}>{({ items }) => (items.length === 0 ? <NoQueues /> : <Queues of={items} />)}</Loaded>
    </Card>
  );
}

function NoQueues(): JSX.Element {
  return (
    <Empty title="No queue is known yet">
      A program registers its queue when it first uses it:
      <Example>{`const mail = createQueue(engine, 'mail', { kinds: { welcome: {} } });
await mail.enqueue('welcome', { to: 'ada@example.org' });`}</Example>
    </Empty>
  );
}

function Queues({ of, order }: { readonly of: readonly Queue[]; readonly order?: Order }): JSX.Element {
  return (
    <Table
      caption="Queues"
      rows={of}
      keyOf={({ name }) => name}
      columns={can('queue:pause') ? [...COLUMNS, ACTION] : COLUMNS}
      {...(order === undefined ? {} : { order })}
    />
  );
}

const number = (title: string, sort: string, of: (queue: Queue) => number, search: string): Column<Queue> => ({
  title,
  sort,
  align: 'right',
  of: (queue) => (
    <Count of={of(queue)} href={`jobs?queue=${encodeURIComponent(queue.name)}&q=${encodeURIComponent(search)}`} />
  ),
});

const COLUMNS: readonly Column<Queue>[] = [
  {
    title: 'Queue',
    sort: 'name',
    of: ({ name, stats }) => (
      <>
        <strong class="wrap">
          <QueueLink name={name} />
        </strong>{' '}
        <State stats={stats} />
      </>
    ),
  },
  number('Ready', 'ready', ({ stats }) => stats.ready, 'status:new'),
  number('In progress', 'inProgress', ({ stats }) => stats.inProgress, 'status:in-progress'),
  { title: 'Later', sort: 'delayed', align: 'right', of: ({ stats }) => <Count of={stats.delayed} /> },
  { title: 'Behind a key', sort: 'parked', align: 'right', of: ({ stats }) => <Count of={stats.parked} /> },
  number('Error', 'error', ({ stats }) => stats.error, 'status:error'),
  {
    title: 'Oldest',
    sort: 'oldestReadyMs',
    align: 'right',
    of: ({ stats }) => <Maybe of={stats.oldestReadyMs === null ? null : rough(stats.oldestReadyMs)} />,
  },
  {
    title: 'Slots in use',
    sort: 'workers',
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
    sort: 'completePerMinute',
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
  if (stats.pausedParts.length > 0) return <Badge status="paused">partly paused</Badge>;
  if (stats.blockedKeys > 0) return <Badge status="error">{`${plural(stats.blockedKeys, 'key')} blocked`}</Badge>;
  if (stats.workers === 0 && stats.ready > 0) return <Badge status="lost">no worker</Badge>;
  return null;
}
