import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Context, inDatabase, Series } from './harness/context.ts';
import { percentile } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

export interface IdleSize {
  /** How long statements are counted. */
  readonly idleMs: number;
  readonly claims: number;
  readonly warmUpMs: number;
}

interface Place {
  /** The number of actors that sleep in this database. */
  readonly who: string;
  readonly side: Side;
  readonly url: string;
}

/**
 * The statements a second of a worker, and the time of a claim, while many actors sleep. Each number of actors has its own database. All
 * databases are measured at the same time, because a worker polls less often on a busy machine: it sleeps between two polls.
 * Only the lengths of these sleeps are random. Over 30 s they make a difference of half a per cent.
 * @param sides  one side for each number of sleeping actors
 */
export async function besides(
  context: Context,
  sides: Readonly<Record<string, Side>>,
  { idleMs, claims, warmUpMs }: IdleSize,
): Promise<Series> {
  const series = new Series();
  await inDatabases(context, Object.entries(sides), async (places) => {
    for (const { who, url } of places) await hibernating(url, Number(who));
    const claimed = await claimMs(places, claims);
    await Promise.all(places.map(({ side }) => side.call('work')));
    await sleep(warmUpMs);
    const before = await Promise.all(places.map(({ side }) => side.call('statements')));
    const begin = performance.now();
    await sleep(idleMs);
    const after = await Promise.all(places.map(({ side }) => side.call('statements')));
    const seconds = (performance.now() - begin) / 1000;
    for (const [at, { who }] of places.entries()) {
      const statements = ((after[at]?.count ?? 0) - (before[at]?.count ?? 0)) / seconds;
      series.add(who, { statements, claim: percentile(claimed[at] ?? [], 50) });
      context.say(`idle: ${who} statements/s ${statements.toFixed(2)}`);
    }
  });
  return series;
}

async function inDatabases(
  context: Context,
  [first, ...rest]: readonly (readonly [string, Side])[],
  fn: (places: readonly Place[]) => Promise<void>,
): Promise<void> {
  if (first === undefined) return fn([]);
  const [who, side] = first;
  await inDatabase(context, side, 'idle', (url) =>
    inDatabases(context, rest, (others) => fn([{ who, side, url }, ...others])),
  );
}

/** Inserts `count` sleeping actors into the table, as turns that ended with hibernate() leave them. */
async function hibernating(url: string, count: number): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query(
    `insert into pawl.actor_instance (id, epoch, entered_at, created_at, type, version, state, fields)
     select nextval('pawl.actor_id'), 1, clock_timestamp(), clock_timestamp(), t.id, 1, 'only', '{}'
     from pawl.actor_type t, generate_series(1, $1::int)`,
    [count],
  );
  await client.end();
  await vacuum(url);
}

/** Claims of one actor each, in turns. Commits do not wait for the disk: its share is the same for all, and varies more than the rest. */
async function claimMs(places: readonly Place[], claims: number): Promise<number[][]> {
  const clients = await Promise.all(places.map(({ url }) => readyToClaim(url, claims)));
  const ms: number[][] = clients.map(() => []);
  for (let n = 0; n < claims; n += 1) {
    for (const [at, client] of clients.entries()) {
      const begin = performance.now();
      await client.query({
        name: 'claim',
        text: 'select pawl.actor_claim(0, array(select id from pawl.actor_type), 1)',
      });
      ms[at]?.push(performance.now() - begin);
    }
  }
  for (const client of clients) {
    await client.query('delete from pawl.actor_instance where worker is not null');
    await client.query('delete from pawl.actor_worker');
    await client.end();
  }
  return ms;
}

async function readyToClaim(url: string, claims: number): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query('set synchronous_commit = off');
  await client.query(`select count(pawl.actor_create('{"type":"thing"}')) from generate_series(1, $1::int)`, [claims]);
  await client.query(
    `insert into pawl.actor_worker (id, pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
     values (0, 1, 1, '1 h', clock_timestamp() + interval '1 h', false, 'bench', '{}', '{}')`,
  );
  return client;
}
