import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Conflict } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { type Batch, createQueue, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

// Two processes declare different numbers of shards. The number of the one that started last counts, also for the enqueues of the other.

const kinds = { job: {}, once: { unique: { by: 'payload' } }, ever: { unique: 'key' } } as const;
type Jobs = Queue<typeof kinds>;

let database: FreshDatabase;
let engines: PostgresEngine[];
let eye: SqlSession;
let nth = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engines = [1, 2].map(() => postgres(database.url, { max: 10, logger: recordLog() }));
  eye = await SqlSession.open(database.url);
});

afterAll(async () => {
  expect(await breaches(eye.client)).toEqual([]);
  await eye.end();
  await Promise.all(engines.map((engine) => engine.stop()));
  await database.drop();
});

beforeEach(() => {
  nth += 1;
});

const declared = (process: number, shards: number, options: object = {}): Jobs =>
  createQueue(engines[process] as PostgresEngine, `shards ${nth}`, { kinds, shards, ...options });

/** The older process has registered `before` shards, and the other one `after` shards since. */
async function processes(before: number, after: number, options: object = {}): Promise<{ older: Jobs; newer: Jobs }> {
  const older = declared(0, before, options);
  await older.register();
  const newer = declared(1, after, options);
  await newer.register();
  return { older, newer };
}

const KEYS = Array.from({ length: 12 }, (_, n) => `key ${n}`);

/** Enqueues a job of each key in every way that there is. @returns how many jobs, and the batch of some of them */
async function enqueueInAllWays(
  queue: Jobs,
  keys: readonly (string | undefined)[],
): Promise<{ n: number; batch: Batch }> {
  const [engine] = engines as [PostgresEngine];
  const all = (way: string) => keys.map((key, n) => ({ kind: 'job', payload: `${way} ${key} ${n}`, key }) as const);
  let ways = 5;
  for (const { kind, payload, ...options } of all('alone')) await queue.enqueue(kind, payload, options);
  for (const { kind, payload, ...options } of all('later'))
    await queue.enqueue(kind, payload, { ...options, delay: 1 });
  await queue.enqueueMany(all('many'));
  await queue.enqueueMany([...all('tagged')].map((job) => ({ ...job, tags: ['t'] })));
  await engine.transaction((tx) => queue.enqueueMany(all('in a transaction'), { tx }));
  for (const { payload, ...options } of all('unique')) {
    await queue.enqueue('once', payload, { key: options.key });
    if (options.key !== undefined) await queue.enqueue('ever', payload, { key: options.key });
  }
  ways += keys[0] === undefined ? 1 : 2;
  await queue.enqueueMany(all('unique at once').map((job) => ({ ...job, kind: 'once' }) as const));
  const batch = await queue.batch({});
  await batch.enqueueMany(all('batch'));
  await batch.seal();
  ways += 2;
  return { n: ways * keys.length, batch };
}

/** Claims and completes until nothing is left. @returns how many jobs */
async function takeAll(queue: Jobs): Promise<number> {
  let n = 0;
  for (;;) {
    const units = await queue.claim({ limit: 100 });
    n += units.length;
    for (const unit of units) await unit.complete();
    if (units.length === 0) return n;
  }
}

const wrongShards = (): Promise<number> =>
  eye.one(
    `select count(*)::int from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue
     where q.name = $1 and (j.shard >= q.shards or j.key is not null and j.shard <> pawl.queue_shard(j.key, q.shards))`,
    [`shards ${nth}`],
  );

test.each([
  [8, 1],
  [4, 3],
  [1, 4],
])('jobs of a process that declares %i shards go to the %i shards of now', async (before, after) => {
  const { older, newer } = await processes(before, after);
  const keyed = await enqueueInAllWays(older, KEYS);
  const plain = await enqueueInAllWays(
    older,
    KEYS.map(() => undefined),
  );
  expect(await wrongShards()).toBe(0);
  await until('the delayed jobs are due', () =>
    eye.one<boolean>('select not exists (select from pawl.queue_delayed d where d.run_at > clock_timestamp())'),
  );
  expect(await takeAll(newer)).toBe(keyed.n + plain.n);
  for (const { batch } of [keyed, plain]) expect(await batch.progress()).toMatchObject({ total: 12, complete: 12 });
});

test('groups go to their shard of now', async () => {
  const { older, newer } = await processes(4, 3, { concurrency: { perGroup: 100 } });
  const jobs = KEYS.map((group) => ({ kind: 'job', payload: null, group }) as const);
  for (const { kind, payload, group } of jobs) await older.enqueue(kind, payload, { group });
  await older.enqueueMany(jobs);
  await older.enqueueMany(jobs.map((job) => ({ ...job, kind: 'once', payload: job.group }) as const));
  const wrong = `select count(j.group_name)::int from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue
    where q.name = $1 and j.shard <> pawl.queue_shard(j.group_name, q.shards)`;
  expect(await eye.one(wrong, [newer.name])).toBe(0);
  expect(await takeAll(newer)).toBe(36);
});

test('the nodes of a flow, and jobs that a program waits for, go there, too', async () => {
  const { older, newer } = await processes(8, 1);
  const node = (name: string, key: string, after: string[] = []) =>
    ({ name, kind: 'job', payload: 1, key, after }) as const;
  const ids = await older.flow([
    ...KEYS.map((key) => node(key, key)),
    ...KEYS.map((key) => node(`after ${key}`, key, [key])),
    node('last', 'last', [...KEYS]),
  ]);
  const worker = newer.work({ job: () => 'done', once: () => {}, ever: () => {} });
  expect(await Promise.all(KEYS.map((key, n) => older.run('job', n, { key })))).toEqual(KEYS.map(() => 'done'));
  expect(await Promise.all(KEYS.map((_, n) => older.run('job', n)))).toEqual(KEYS.map(() => 'done'));
  await newer.drain();
  await worker.stop();
  expect(await wrongShards()).toBe(0);
  for (const id of Object.values(ids)) expect(await newer.get(id)).toMatchObject({ status: 'complete' });
});

test('a flow is refused if keys that were in one shard are in several now', async () => {
  const { older } = await processes(1, 8);
  const nodes = KEYS.map((key) => ({ name: key, kind: 'job', payload: 1, key }) as const);
  await expect(older.flow(nodes)).rejects.toThrow(Conflict);
});

test('an enqueue that waits while the number of shards is changed uses the new number', async () => {
  const older = declared(0, 8);
  await older.register();
  await eye.begin();
  const row = { name: older.name, shards: 1, keyed: true, attempts: 3, history: null };
  const plain = { coalesce: 'none', after: [], afterError: 'run', attempts: null, unique: false };
  await eye.one('select pawl.queue_register($1::json)', [
    JSON.stringify({ ...row, kinds: Object.keys(kinds).map((name) => ({ name, ...plain })) }),
  ]);
  const [engine] = engines as [PostgresEngine];
  const waits = [
    ...KEYS.slice(0, 3).map((key) => older.enqueue('job', 1, { key })),
    older.enqueueMany(KEYS.map((key) => ({ kind: 'job', payload: 1, key }) as const)),
    engine.transaction((tx) => older.enqueue('job', 1, { key: 'key 5', tx })),
    older.enqueue('once', 1, { key: 'key 7' }),
    older.enqueueMany(KEYS.map((key) => ({ kind: 'once', payload: key, key }) as const)),
  ];
  const waiting = `select count(*) = 7 from pg_stat_activity a where $1 = any (pg_blocking_pids(a.pid))`;
  const other = await SqlSession.open(database.url);
  await until('all of them wait', () => other.one<boolean>(waiting, [eye.pid]));
  await other.end();
  await eye.commit();
  await Promise.all(waits);
  expect(await wrongShards()).toBe(0);
});

test.each([
  [4, 3],
  [1, 4],
])('one job of a key for ever is one job, also when %i shards become %i', async (before, after) => {
  const older = declared(0, before);
  const ids: string[] = [];
  for (const key of KEYS) ids.push((await older.enqueue('ever', 1, { key })).id);
  expect(await takeAll(older)).toBe(12);
  const newer = declared(1, after);
  const jobs = KEYS.map((key) => ({ kind: 'ever', payload: 2, key }) as const);
  const again = await newer.enqueueMany(jobs);
  expect([...again]).toEqual(ids);
  expect(again.duplicates).toHaveLength(12);
  expect(await newer.enqueue('ever', 3, { key: 'key 1' })).toEqual({ id: ids[1], status: 'complete', duplicate: true });
  const other = createQueue(engines[1] as PostgresEngine, `other ${nth}`, { kinds });
  const moved = await other.enqueue('job', 1, { key: 'key 2' });
  expect(await other.move('status:new', newer, { toKind: 'ever' })).toEqual({ done: 0, left: 1 });
  await other.cancel(moved.id);
});
