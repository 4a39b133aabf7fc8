import type { JSX } from 'preact';
import type { Edge, Node } from '../charts/graph.tsx';
import { LazyGraph } from '../charts/lazy-graph.tsx';
import { useResource } from '../data/resource.ts';
import type { HotLock, List, Lock, LockGraph } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { filter, lockUrl, query } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { duration } from '../text/format.ts';
import { LockLink, Name } from '../text/name.tsx';
import { Time } from '../text/time.tsx';
import { Count, Maybe } from '../text/words.tsx';
import { OwnerOf } from './owner.tsx';

/** The locks, their holders, and their waiters. */
export function LocksPage(): JSX.Element {
  const graph = useResource<LockGraph>('locks/graph', 2000);
  const hottest = useResource<List<HotLock>>('locks/hottest', 10_000);
  return (
    <>
      <Head title="Locks" about="The holders of locks, their waiters, and the holders that block them." />
      <Card
        title="Who blocks whom"
        actions={
          graph.data &&
          graph.data.cycles.length > 0 && <Badge status="critical">{`${graph.data.cycles.length} circles`}</Badge>
        }
      >
        <Loaded of={graph}>{(data) => <Blocking of={data} />}</Loaded>
      </Card>
      <LockList />
      <Card title="Held most often within the hour">
        <Loaded of={hottest}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="Nothing was held within the hour" />
            ) : (
              <Table
                caption="Locks held most often"
                rows={items}
                keyOf={({ namespace, name }) => `${namespace} ${name}`}
                columns={[
                  { title: 'Lock', of: (row) => <LockLink of={row} /> },
                  { title: 'Namespace', of: ({ namespace }) => <Maybe of={namespace && <Name of={namespace} />} /> },
                  { title: 'Times held', align: 'right', of: ({ holds }) => holds.toLocaleString('en') },
                  { title: 'Mean', align: 'right', of: ({ meanMs }) => duration(meanMs) },
                  { title: 'Longest', align: 'right', of: ({ maxMs }) => duration(maxMs) },
                  { title: 'Expired or broken', align: 'right', of: ({ lost }) => <Count of={lost} /> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function Blocking({ of }: { readonly of: LockGraph }): JSX.Element {
  const { waits, backends, cycles } = of;
  if (waits.length === 0 && backends.length === 0)
    return <Empty title="No caller waits">Each lock was free when it was wanted.</Empty>;
  const { nodes, edges } = draw(of);
  const rows = [
    ...waits.map((wait) => ({
      key: `${wait.claim} ${wait.name}`,
      who: <OwnerOf of={wait} />,
      what: <LockLink of={wait} />,
      by: wait.holders.length === 0 ? 'those before it' : <Holders of={wait.holders} />,
      since: wait.since,
    })),
    ...backends.map(({ pid, applicationName, blockedBy, query: sql }) => ({
      key: `b${pid}`,
      who: `backend ${pid} (${applicationName})`,
      what: <code class="cut">{sql}</code>,
      by: blockedBy.map((other) => `backend ${other}`).join(', '),
      since: null,
    })),
  ];
  return (
    <>
      <LazyGraph title="Who blocks whom" nodes={nodes} edges={edges} direction="LR" />
      {cycles.map((cycle) => (
        <p key={cycle.join()} class="error">
          A circle: {[...cycle, cycle[0]].join(' → ')}
        </p>
      ))}
      <Table
        caption="Who waits for whom"
        rows={rows}
        keyOf={({ key }) => key}
        columns={[
          { title: 'Waits', of: ({ who }) => who },
          { title: 'For', of: ({ what }) => what },
          { title: 'Held by', of: ({ by }) => by },
          { title: 'Since', of: ({ since }) => <Time at={since} /> },
        ]}
      />
    </>
  );
}

function Holders({ of }: { readonly of: LockGraph['waits'][number]['holders'] }): JSX.Element {
  return (
    <>
      {of.map((holder, index) => (
        <span key={holder.token}>
          {index > 0 && ', '}
          <OwnerOf of={holder} />
        </span>
      ))}
    </>
  );
}

/** An arrow leads from a waiter to its lock, and from a lock to its holders. A waiter that also holds a lock is one box. */
function draw({ waits, backends, cycles }: LockGraph): { nodes: Node[]; edges: Edge[] } {
  const nodes = new Map<string, Node>();
  const edges = new Map<string, Edge>();
  const circles = new Set(cycles.flat());
  const shown = waits.slice(0, 60);
  const lock = (namespace: string, name: string): string => {
    const id = `lock ${namespace} ${name}`;
    const tone = circles.has(name) ? 'bad' : 'wait';
    nodes.set(id, { id, title: name, under: namespace || 'lock', tone, href: lockUrl({ namespace, name }) });
    return id;
  };
  const waiterOf = new Map(shown.flatMap(({ claim, keeps }) => keeps.map(({ token }) => [token, `waiter ${claim}`])));
  for (const { namespace, name, claim, ticket, host, pid, job, holders, keeps } of shown) {
    const waiter = `waiter ${claim}`;
    const kept = keeps.map((one) => one.name).join(', ');
    const under = kept === '' ? `waits, place ${ticket}` : `has ${kept}, waits`;
    nodes.set(waiter, { id: waiter, title: `${host}:${pid}`, under, ...worksFor(job) });
    const wanted = lock(namespace, name);
    const isHot = circles.has(name) && keeps.some((one) => circles.has(one.name));
    const look = isHot ? { look: 'hot' as const } : {};
    edges.set(`${waiter} ${wanted}`, { from: waiter, to: wanted, label: 'waits for', ...look });
    for (const { token, host: at, pid: of, job: held } of holders) {
      const holder = waiterOf.get(token) ?? `holder ${token}`;
      if (holder.startsWith('holder')) {
        const found = held === null ? `holds, token ${token}` : `holds for job ${held}`;
        nodes.set(holder, { id: holder, title: `${at}:${of}`, under: found, tone: 'busy', ...worksFor(held) });
      }
      edges.set(`${wanted} ${holder}`, { from: wanted, to: holder, label: 'held by', ...look });
    }
  }
  for (const { pid, applicationName, blockedBy } of backends.slice(0, 60)) {
    const add = (of: number, name: string): string => {
      const id = `backend ${of}`;
      const known = nodes.get(id);
      nodes.set(id, {
        id,
        title: id,
        under: name || known?.under || 'another',
        ...(circles.has(String(of)) ? { tone: 'bad' } : {}),
      });
      return id;
    };
    const from = add(pid, applicationName);
    for (const other of blockedBy) {
      const isHot = circles.has(String(pid)) && circles.has(String(other));
      edges.set(`${pid} ${other}`, { from, to: add(other, ''), label: 'waits for', ...(isHot ? { look: 'hot' } : {}) });
    }
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

/** A box links to the job that its process works for. */
function worksFor(job: string | null): { href?: string } {
  return job === null ? {} : { href: `jobs/${job}` };
}

function LockList(): JSX.Element {
  const given = query.value;
  const [name, contended] = [given.get('name') ?? '', given.get('contended') === 'true'];
  const asked = `locks?${new URLSearchParams({ ...(name === '' ? {} : { name }), contended: String(contended) })}`;
  const { page, rows, next } = useLongList<Lock>(asked);
  return (
    <Card
      title="Held and waited for"
      actions={
        <CopyAs
          of={{
            CLI: 'pawl lock list',
            SQL: 'select * from pawl.lock order by namespace, name',
            curl: curlOf(asked),
            TypeScript: 'await createLocks(engine).query()',
          }}
        />
      }
    >
      <div class="body filters">
        <input
          type="search"
          aria-label="Part of the name"
          placeholder="Part of the name"
          value={name}
          onChange={(event) => filter({ name: event.currentTarget.value })}
        />
        <div class="tabs" role="group" aria-label="Which">
          <button type="button" aria-pressed={!contended} onClick={() => filter({ contended: undefined })}>
            All
          </button>
          <button type="button" aria-pressed={contended} onClick={() => filter({ contended: 'true' })}>
            Waited for
          </button>
        </div>
      </div>
      <Loaded of={page}>
        {() =>
          rows.length === 0 ? (
            <NoLocks isFiltered={contended || name !== ''} />
          ) : (
            <>
              <Table
                caption="Locks"
                rows={rows}
                keyOf={({ namespace, name: of }) => `${namespace} ${of}`}
                columns={COLUMNS}
              />
              <ShowMore next={next} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

function NoLocks({ isFiltered }: { readonly isFiltered: boolean }): JSX.Element {
  if (isFiltered) return <Empty title="No lock fits" />;
  return (
    <Empty title="Nothing is held">
      A program holds a lock while it does something, and this page shows it:
      <Example>{`const locks = createLocks(engine);
await locks.request('invoice:2041', async () => { … });`}</Example>
      So does any command: <code>pawl lock run nightly-import -- ./import.sh</code>
    </Empty>
  );
}

const COLUMNS: readonly Column<Lock>[] = [
  {
    title: 'Lock',
    of: (row) => (
      <strong class="wrap">
        <LockLink of={row} />
      </strong>
    ),
  },
  { title: 'Namespace', of: ({ namespace }) => <Maybe of={namespace && <Name of={namespace} />} /> },
  {
    title: 'Mode',
    of: ({ mode }) => (mode === null ? <span class="muted">free</span> : <Badge status={mode} />),
  },
  {
    title: 'Holder',
    of: ({ host, pid, job, holders }) =>
      host === null || pid === null ? (
        <Maybe of={null} />
      ) : (
        <>
          <OwnerOf of={{ host, pid, job }} />
          {holders > 1 && ` and ${holders - 1} more`}
        </>
      ),
  },
  { title: 'Since', of: ({ since }) => <Time at={since} /> },
  {
    title: 'Lease until',
    of: ({ expiresAt, mode }) => (expiresAt === null && mode !== null ? 'released' : <Time at={expiresAt} />),
  },
  {
    title: 'Waiting',
    align: 'right',
    of: ({ waiters }) => (waiters > 0 ? <span class="count tone-wait">{waiters}</span> : <Count of={0} />),
  },
  { title: 'Longest wait', of: ({ waitingSince }) => <Time at={waitingSince} /> },
];
