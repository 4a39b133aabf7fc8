import pg from 'pg';
import type { Context } from './harness/context.ts';
import { atMost, type Figure, figure, type Outcome } from './harness/figures.ts';
import { type BenchCapture, type BenchProjection, loadCapture } from './harness/pawl-capture.ts';

/** The cost of one step over all entities. */
interface Step {
  readonly ms: number;
  readonly walBytes: number;
  /** The most memory of this process during the step. */
  readonly rssBytes: number;
}

const STEPS = ['backfill', 'verify', 'reconcile', 'update', 'follow'] as const;
type StepName = (typeof STEPS)[number];
type Steps = Readonly<Record<StepName, Step>>;

/** With ten times as many rows a step may take this many times as long: its time grows as its rows do, apart from the effect of caches. */
const GROWTH = 13;

/**
 * All steps for a root of `rows` rows with five linked tables, and for a root of a tenth of the rows: `backfill`, `verify`, `reconcile`,
 * an update of all rows by one statement, and the projection of that update.
 */
export async function atSize(context: Context, rows: number): Promise<Outcome> {
  const few = await measure(context, Math.ceil(rows / 10));
  const many = await measure(context, rows);
  const figures: Record<string, Figure> = {};
  for (const name of STEPS) {
    const { ms, walBytes, rssBytes } = many[name];
    figures[`${name}/rows_per_s`] = figure('rows/s', [rows / (ms / 1000)]);
    figures[`${name}/wal_per_row`] = figure('bytes', [walBytes / rows]);
    figures[`${name}/memory`] = figure('MB', [rssBytes / 1e6]);
  }
  const bars = STEPS.map(
    (name) => [`${name}_growth`, atMost(GROWTH, many[name].ms / Math.max(few[name].ms, 50))] as const,
  );
  return { figures, bars: Object.fromEntries(bars) };
}

async function measure(context: Context, rows: number): Promise<Steps> {
  const { server, say } = context;
  const { postgres, createCapture, sql } = await loadCapture();
  return server.withDatabase(async (url) => {
    const engine = postgres(url, { max: 8 });
    const client = new pg.Client(url);
    await client.connect();
    try {
      await engine.migrate();
      await client.query(tables(rows));
      await client.query('vacuum analyze');
      const capture = createCapture(engine, CAPTURE);
      const projection = capture.project({
        into: 'found',
        columns: COLUMNS,
        text: ['customer', 'lines'],
        build: sql([ROWS]),
      });
      await capture.apply();
      const steps: Partial<Record<StepName, Step>> = {};
      for (const name of STEPS) {
        await server.checkpoint();
        const step = await watch(context, () => carryOut(name, { capture, projection, client }));
        steps[name] = step;
        const seconds = (step.ms / 1000).toFixed(1);
        const megabytes = [step.walBytes, step.rssBytes].map((bytes) => (bytes / 1e6).toFixed(0));
        say(`${rows} rows, ${name}: ${seconds} s, ${megabytes[0]} MB of WAL, ${megabytes[1]} MB of memory`);
      }
      return steps as Steps;
    } finally {
      await client.end();
      await engine.stop();
    }
  });
}

interface Parts {
  readonly capture: BenchCapture;
  readonly projection: BenchProjection;
  readonly client: pg.Client;
}

async function carryOut(name: StepName, { capture, projection, client }: Parts): Promise<void> {
  switch (name) {
    case 'backfill':
      await projection.backfill({ batch: 2000 });
      return;
    case 'verify':
      await capture.verify();
      return;
    case 'reconcile':
      await projection.reconcile({ batch: 2000 });
      return;
    case 'update':
      await client.query("update root set note = note || '.'");
      return;
    case 'follow': {
      const worker = projection.run({ batch: 2000 });
      await worker.started;
      await projection.settled();
      return worker.stop();
    }
  }
}

async function watch({ server }: Context, work: () => Promise<void>): Promise<Step> {
  let rssBytes = 0;
  const look = (): void => void (rssBytes = Math.max(rssBytes, process.memoryUsage.rss()));
  const timer = setInterval(look, 50);
  const before = await server.walBytes();
  const since = performance.now();
  try {
    await work();
    look();
    return { ms: performance.now() - since, walBytes: (await server.walBytes()) - before, rssBytes };
  } finally {
    clearInterval(timer);
  }
}

const CAPTURE = {
  entity: 'size',
  root: 'root',
  via: {
    line: 'root_id',
    note: 'root_id',
    payment: 'root_id',
    customer: { column: 'id', to: 'root.customer_id' },
    agent: { column: 'id', to: 'root.agent_id' },
  },
};

const COLUMNS = { customer: 'text', agent: 'text', note: 'text', lines: 'text', paid: 'numeric' };

const ROWS = `
select r.id, c.name as customer, a.name as agent, r.note || coalesce(n.body, '') as note, l.lines, p.paid
from root r join customer c on c.id = r.customer_id join agent a on a.id = r.agent_id left join note n on n.root_id = r.id
left join (select l.root_id, string_agg(l.title, ', ') as lines from line l where l.root_id = any ($1::bigint[]) group by 1) l on l.root_id = r.id
left join (select p.root_id, sum(p.amount) as paid from payment p where p.root_id = any ($1::bigint[]) group by 1) p on p.root_id = r.id
where r.id = any ($1::bigint[])`;

const tables = (rows: number): string => `
create table customer (id bigint primary key, name text not null);
create table agent (id bigint primary key, name text not null);
create table root (id bigint primary key, customer_id bigint not null, agent_id bigint not null, note text not null);
create table line (id bigint primary key, root_id bigint not null, title text not null);
create table note (id bigint primary key, root_id bigint not null, body text not null);
create table payment (id bigint primary key, root_id bigint not null, amount numeric(12, 2) not null);
insert into customer select i, 'customer ' || md5(i::text) from generate_series(0, ${Math.ceil(rows / 50)}) i;
insert into agent select i, 'agent ' || i from generate_series(0, 99) i;
insert into root select i, i % ${Math.ceil(rows / 50)}, i % 100, 'note ' || i from generate_series(1, ${rows}) i;
insert into line select i, 1 + i % ${rows}, 'pump model ' || i % 5000 from generate_series(1, ${rows * 2}) i;
insert into note select i, i, 'said ' || i % 1000 from generate_series(1, ${rows}) i;
insert into payment select i, i, i % 1000 from generate_series(1, ${rows}) i;
create index on root (customer_id); create index on root (agent_id);
create index on line (root_id); create index on note (root_id); create index on payment (root_id)`;
