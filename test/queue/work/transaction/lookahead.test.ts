import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import {
  type PostgresEngine,
  type PostgresOptions,
  postgres,
  statement,
} from '../../../../src/engine/postgres/index.ts';
import { createQueue, type WorkOptions } from '../../../../src/queue/index.ts';
import type { Candidate } from '../../../../src/queue/store.ts';
import { Lookahead, READ_MS } from '../../../../src/queue/work/transaction/lookahead.ts';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';
import { most } from '../../../support/long.ts';
import { LongestPause } from '../../../support/time/longest-pause.ts';
import { SqlSession } from '../../sql-session.ts';

let database: FreshDatabase;

beforeAll(async () => {
  database = await freshDatabase();
});

afterAll(() => database.drop());

function connect(options: PostgresOptions = {}): PostgresEngine {
  const engine = postgres(database.url, { max: 10, logger: recordLog(), ...options });
  onTestFinished(() => engine.stop());
  return engine;
}

const LANE: WorkOptions = { hold: 'transaction', concurrency: 1 };

/**
 * Runs all jobs of a queue on one lane, and expects their order. On a machine that stands still a read may last longer than the
 * lane waits for it. The lane claims alone then, around the rows that the read has locked: such a pause excuses a wrong order.
 */
async function expectInOrder(
  queue: ReturnType<typeof createQueue>,
  handlers: readonly string[],
  payloads: readonly unknown[],
): Promise<void> {
  const seen: unknown[] = [];
  const pause = new LongestPause();
  const see = ({ payload }: { payload: unknown }): void => {
    pause.step();
    seen.push(payload);
  };
  const worker = queue.work(Object.fromEntries(handlers.map((kind) => [kind, see])), LANE);
  await queue.drain({ timeout: '60s' });
  await worker.stop();
  expect(new Set(seen)).toEqual(new Set(payloads));
  expect(seen).toHaveLength(payloads.length);
  if (pause.ms < READ_MS) expect(seen).toEqual(payloads);
}

test.each([true, false])(
  'one lane starts jobs with and without keys in order (prepared statements: %s)',
  async (prepare) => {
    const queue = createQueue(connect({ prepare }), `order ${prepare}`, { kinds: { job: {} } });
    const jobs = Array.from({ length: 120 }, (_, n) => ({
      kind: 'job' as const,
      payload: n,
      ...(n % 40 === 20 ? { key: `k${n}` } : {}),
      ...(n < 60 ? {} : { priority: 1 }),
    }));
    await queue.enqueueMany(jobs);
    await expectInOrder(
      queue,
      ['job'],
      jobs.map(({ payload }) => payload),
    );
  },
);

test('one lane starts a long backlog of short runs in order, one look-ahead after the other', async () => {
  const engine = connect();
  for (const round of most([1, 2, 3], 1)) {
    const queue = createQueue(engine, `runs ${round}`, { kinds: { a: {}, b: {} } });
    // Each job of kind a is single, and each two jobs of kind b are a run.
    const jobs = Array.from({ length: 1500 }, (_, n) => ({
      kind: n % 3 === 0 ? ('a' as const) : ('b' as const),
      payload: n,
    }));
    await queue.enqueueMany(jobs);
    await expectInOrder(
      queue,
      ['a', 'b'],
      jobs.map(({ payload }) => payload),
    );
  }
});

test('jobs that become due, have precedence, or have a key are not delayed by jobs in the look-ahead of busy lanes', async () => {
  const queue = createQueue(connect(), 'late', { kinds: { job: {} } });
  const many = Array.from({ length: 1500 }, (_, n) => ({ kind: 'job' as const, payload: n, priority: 5 }));
  await queue.enqueueMany(many);
  const seen: unknown[] = [];
  const enqueueLate = async (): Promise<void> => {
    await queue.enqueue('job', 'first', { priority: 1 });
    await queue.enqueue('job', 'due', { priority: 1, runAt: new Date(Date.now() - 1000) });
    await queue.enqueue('job', 'key', { priority: 1, key: 'k' });
  };
  let late: Promise<void> | undefined;
  const handler = async ({ payload }: { payload: unknown }): Promise<void> => {
    seen.push(payload);
    // Both lanes wait meanwhile: however long it takes, most jobs are still to be done after it.
    if (seen.length >= 20) await (late ??= enqueueLate());
    // Without this, all jobs could be done within the half second that a single look-ahead takes on a busy machine.
    await sleep(1);
  };
  const worker = queue.work({ job: handler }, { ...LANE, concurrency: 2 });
  await queue.drain({ timeout: '60s' });
  await worker.stop();
  expect(seen).toHaveLength(1503);
  for (const name of ['first', 'due', 'key']) expect(seen.indexOf(name), name).toBeLessThan(1400);
});

test('after a slow handler, the lane takes the job that is first by then, and not the one that was first before', async () => {
  const queue = createQueue(connect(), 'long', { kinds: { job: {} } });
  await queue.enqueueMany(Array.from({ length: 40 }, (_, n) => ({ kind: 'job' as const, payload: n, priority: 5 })));
  const seen: unknown[] = [];
  const handler = async ({ payload }: { payload: unknown }): Promise<void> => {
    seen.push(payload);
    if (payload !== 20) return;
    await queue.enqueue('job', 'first', { priority: 1 });
    await sleep(1100);
  };
  const worker = queue.work({ job: handler }, LANE);
  await queue.drain({ timeout: '30s' });
  await worker.stop();
  expect(seen).toHaveLength(41);
  expect(seen[seen.indexOf(20) + 1]).toBe('first');
});

test('a handler that deallocates every prepared statement loses no job, and no job is done twice', async () => {
  const engine = connect();
  await engine.query(statement('done.create', 'create table done (n int)'));
  const queue = createQueue(engine, 'deallocated', { kinds: { job: {} } });
  await queue.enqueueMany(Array.from({ length: 60 }, (_, n) => ({ kind: 'job', payload: n })));
  const handler = async ({ tx, payload }: { tx: { client: PgClient }; payload: unknown }): Promise<void> => {
    await tx.client.query({ text: `insert into done values (${Number(payload)})` });
    if (Number(payload) % 10 === 5) await tx.client.query({ text: 'deallocate all' });
  };
  const worker = queue.work({ job: handler }, { ...LANE, concurrency: 3 });
  onTestFinished(() => worker.stop());
  const count = statement('done.count', 'select count(*)::int as n, count(distinct n)::int as d from done');
  await until('all are done', async () => (await queue.stats()).new === 0);
  expect(await engine.query(count)).toEqual([{ n: 60, d: 60 }]);
});

interface PgClient {
  query(config: { text: string }): Promise<unknown>;
}

/** A queue, its workers, and the server's answers about it. */
async function lookInto(
  name: string,
  workers = 1,
  { url }: FreshDatabase = database,
): Promise<{
  session: SqlSession;
  queue: number;
  add: (jobs: { key?: string; runAt?: Date }[]) => Promise<number[]>;
  peek: (options?: { worker?: number; rows?: number; front?: number }) => Promise<Candidate[]>;
  take: (candidate: Candidate | undefined, by?: SqlSession, reads?: boolean) => Promise<object | null>;
  pause: (at: 'now()' | 'null') => Promise<unknown>;
}> {
  const session = await SqlSession.open(url);
  onTestFinished(() => session.end());
  const { queue, kinds } = await session.register(name, [{ name: 'job' }]);
  const kind = kinds['job'] ?? -1;
  const ids: number[] = [];
  for (let n = 0; n < workers; n += 1) ids.push(await session.addWorker(queue));
  await session.client.query(`update pawl.queue_worker set hold = 'transaction' where queue = ${queue}`);
  return {
    session,
    queue,
    add: (jobs) =>
      session.add(
        queue,
        jobs.map((job) => ({ kind, ...job })),
      ),
    peek: async ({ worker = 0, rows = 64, front = 0 } = {}) => {
      const text = await session.one<string | null>(
        `select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, ${ids[worker]}, ${rows}, 0::smallint, ${front})`,
      );
      return text === null ? [] : (JSON.parse(text) as Candidate[]);
    },
    take: async (candidate, by = session, reads = false) => {
      const text = await by.one<string | null>(
        `select pawl.queue_take_row(${queue}::smallint, 0::smallint, ${candidate?.id}, '${candidate?.tid}', '${candidate?.xmin}', ${reads})`,
      );
      return text === null ? null : (JSON.parse(text) as object);
    },
    pause: (at) => session.client.query(`update pawl.queue_definition set paused_at = ${at} where id = ${queue}`),
  };
}

function idsOf(rows: readonly Candidate[]): number[] {
  return rows.map(({ id }) => id);
}

/** Adds one job after another: jobs that are enqueued together share a row. */
async function addEach(n: number, add: (jobs: object[]) => Promise<number[]>): Promise<number[]> {
  const ids: number[] = [];
  for (let at = 0; at < n; at += 1) ids.push(...(await add([{}])));
  return ids;
}

test('a take finds the job by the place of its row, and takes no other job: none of a paused queue, and none that is held', async () => {
  const { session, add, peek, take, pause } = await lookInto('takes');
  const [first, second, third] = await addEach(3, add);
  const [one, two, three] = await peek();
  expect(idsOf(await peek())).toEqual([first, second, third]);
  await pause('now()');
  expect(await take(one)).toBe(null);
  await pause('null');
  expect(await take(one && { ...one, tid: two?.tid ?? '' })).toBe(null);
  const other = await SqlSession.open(database.url);
  onTestFinished(() => other.end());
  await other.client.query('begin');
  const taken = { claim: expect.any(Number), attempt: 1, claimedAt: expect.any(String) };
  expect(await take(one, other)).toEqual(taken);
  expect(await take(one)).toBe(null);
  await other.client.query('rollback');
  expect(await take(one, session, true)).toEqual({ ...taken, payload: one?.payload });
  expect(await take(one)).toBe(null);
  await session.client.query(`update pawl.queue_ready set attempt = 1 where id = ${second}`);
  expect(await take(two)).toBe(null);
  await session.client.query(`update pawl.queue_ready set n = 2 where id = ${third}`);
  const moved = await session.client.query<{ tid: string; xmin: number }>(
    `select ctid as tid, xmin::text::int8::int from pawl.queue_ready where id = ${third}`,
  );
  expect(await take(three && { ...three, ...moved.rows[0] })).toBe(null);
  const left = await session.client.query<{ id: string }>(
    `select id from pawl.queue_ready where queue = (select queue from pawl.queue_job where id = ${first}) order by id`,
  );
  expect(left.rows.map(({ id }) => Number(id))).toEqual([second, third]);
});

// Invariants J9.
test('a take finds no job that was updated twice, though its row stands at the same place again', async () => {
  // Where there are no other rows, two places take turns.
  const { session, add, peek, take } = await lookInto('same place', 1, await freshDatabase());
  const [id] = await add([{}]);
  const [old] = await peek();
  const place = (): Promise<string> => session.one(`select ctid from pawl.queue_ready where id = ${id}`);
  await until('the row is where it was', async () => {
    await session.one(`select pawl.update('{"id": "${id}", "payload": "new"}')`);
    await session.client.query('vacuum pawl.queue_ready');
    return (await place()) === old?.tid;
  });
  expect(await take(old)).toBe(null);
  const [now] = await peek();
  expect(now).toMatchObject({ id, tid: old?.tid, payload: 'new' });
  expect(await take(now)).not.toBe(null);
});

test('a read does not show a job that an open transaction has taken, and shows it again right after a rollback', async () => {
  const { add, peek, take } = await lookInto('held');
  const [first, second] = await addEach(2, add);
  const [one] = await peek();
  const other = await SqlSession.open(database.url);
  onTestFinished(() => other.end());
  await other.client.query('begin');
  await take(one, other);
  expect(idsOf(await peek())).toEqual([second]);
  await other.client.query('rollback');
  expect(idsOf(await peek())).toEqual([first, second]);
  expect(await take(one)).not.toBe(null);
});

test('workers read different jobs first, each in order, and all workers read jobs that stay behind', async () => {
  const { add, peek, session, queue } = await lookInto('shared', 3);
  const ids = await addEach(90, add);
  const reads: number[][] = [];
  for (const worker of [0, 1, 2]) reads.push(idsOf(await peek({ worker, rows: 100 })));
  // Some thirty are each worker's own.
  const first = reads.map((read) => read.slice(0, 10));
  expect(new Set(first.flat()).size).toBe(30);
  for (const read of first) expect(read).toEqual(read.toSorted((a, b) => a - b));
  expect(idsOf(await peek({ rows: 100, front: ids[29] ?? -1 })).slice(0, 30)).toEqual(ids.slice(0, 30));
  await session.client.query(`update pawl.queue_worker set expires_at = now() where queue = ${queue} and id <> (
    select min(id) from pawl.queue_worker where queue = ${queue})`);
  expect(idsOf(await peek({ rows: 100 }))).toEqual(ids);
});

test('a worker that is ahead of the others reads their jobs after its own, in an order that no other worker has', async () => {
  const { add, peek } = await lookInto('ahead', 3);
  const ids = await addEach(90, add);
  const reads = [idsOf(await peek({ rows: 100 })), idsOf(await peek({ worker: 1, rows: 100 }))];
  for (const read of reads) expect(read.toSorted((a, b) => a - b)).toEqual(ids);
  // Of some thirty, neither is the owner.
  const last = reads.map((read) => read.slice(45));
  const [one, other] = last.map((read) => read.filter((id) => last.every((each) => each.includes(id))));
  expect(one).not.toEqual(other);
  expect(one?.toSorted((a, b) => a - b)).toEqual(other?.toSorted((a, b) => a - b));
  expect(idsOf(await peek({ rows: 40 }))).toHaveLength(40);
});

test('a read splits runs, makes due jobs ready, and stops at a key and at a pause', async () => {
  const { session, queue, add, peek, take, pause } = await lookInto('looks');
  expect(await peek({ rows: 10 })).toEqual([]);
  const [due] = await add([{ runAt: new Date(Date.now() - 1000) }]);
  const run = await add([{}, {}, {}]);
  const [last] = await add([{}]);
  await add([{ key: 'k' }]);
  await add([{}]);
  expect(idsOf(await peek({ rows: 2 }))).toEqual([due, run[0]]);
  const all = await peek();
  expect(idsOf(all)).toEqual([due, ...run, last]);
  expect(all[0]).toMatchObject({
    kind: expect.any(Number),
    origin: expect.any(Number),
    tid: expect.any(String),
    xmin: expect.any(Number),
    payload: 0,
  });
  await session.client.query(`update pawl.queue_job set payload = to_json(repeat('long ', 1000)) where id = ${last}`);
  const large = (await peek()).at(-1);
  expect(large).not.toHaveProperty('payload');
  expect(await take(large, session, true)).toMatchObject({ payload: 'long '.repeat(1000) });
  await pause('now()');
  expect(await peek()).toEqual([]);
  await pause('null');
  await expect(
    session.client.query(`select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, -1, 64, 0::smallint, 0)`),
  ).rejects.toMatchObject({ code: 'PW004' });
});

test.each([1, 2])('only one of several workers skips a run that is being split: %i', async (workers) => {
  const { session, add, peek, queue } = await lookInto(`apart ${workers}`, workers);
  const all = async (): Promise<number[]> =>
    [...new Set(idsOf([...(await peek()), ...(workers === 1 ? [] : await peek({ worker: 1 }))]))].toSorted(
      (a, b) => a - b,
    );
  const first = await add([{}, {}]);
  const second = await add([{}, {}]);
  const other = await SqlSession.open(database.url);
  onTestFinished(() => other.end());
  await other.client.query('begin');
  await other.client.query(`select from pawl.queue_ready where id = ${first[0]} for update`);
  expect(await all()).toEqual(workers === 1 ? [] : second);
  await other.client.query('rollback');
  expect(await all()).toEqual([...first, ...second]);
  expect(await session.one(`select count(*)::int from pawl.queue_ready where queue = ${queue} and n = 2`)).toBe(0);
});

/** A look-ahead for two lanes; the test answers its reads. */
function lookaheadOf(): { lookahead: Lookahead; reads: Read[] } {
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
  onTestFinished(() => void vi.restoreAllMocks());
  const reads: Read[] = [];
  const read = (request: Read['request']): Promise<Candidate[]> =>
    new Promise((resolve) => {
      const answer = async (ids: readonly number[]): Promise<void> => {
        resolve(ids.map((id) => ({ priority: 0, id, kind: 1, origin: 17, tid: `(0,${id})`, xmin: 1, payload: id })));
        await lookahead.settled();
      };
      reads.push({ request, answer });
    });
  const lookahead = new Lookahead({ lanes: 2, read, onError: (error) => expect.fail(String(error)) });
  return { lookahead, reads };
}

interface Read {
  readonly request: { readonly rows: number; readonly front: { readonly id: number } };
  readonly answer: (ids: readonly number[]) => Promise<void>;
}

/** Takes jobs until the next read begins: a pass is due every 100 ms. */
function untilNextRead(lookahead: Lookahead, reads: readonly Read[]): (Candidate | undefined)[] {
  const before = reads.length;
  const taken: (Candidate | undefined)[] = [];
  while (reads.length === before) {
    nowMs += 20;
    expect(taken.length).toBeLessThan(100);
    const candidate = lookahead.next();
    if (candidate !== undefined) taken.push(candidate);
  }
  return taken;
}

/** The monotonic clock of the tests of a look-ahead, which forgets what was read a second ago. */
let nowMs = 0;

test('the first lane starts a read, the others wait for it, and each lane takes another job, in order', async () => {
  const { lookahead, reads } = lookaheadOf();
  expect([lookahead.next(), reads.length, lookahead.reading]).toEqual([undefined, 1, expect.any(Promise)]);
  await reads[0]?.answer([1, 2, 3]);
  expect([lookahead.next()?.id, lookahead.next()?.id, lookahead.next()?.id]).toEqual([1, 2, 3]);
  expect([lookahead.next(), lookahead.reading]).toEqual([undefined, undefined]);
});

test('a read that returns fewer jobs, since lanes took some meanwhile, is not the end: the next read begins before it is used up', async () => {
  const { lookahead, reads } = lookaheadOf();
  lookahead.next();
  await reads[0]?.answer(range(1, 16));
  const taken = untilNextRead(lookahead, reads);
  taken.push(lookahead.next(), lookahead.next());
  const first = (taken.at(-1)?.id ?? NaN) + 1;
  const rows = reads[1]?.request.rows ?? NaN;
  await reads[1]?.answer(range(first, first + rows - 3));
  const ids: (number | undefined)[] = [];
  while (reads.length < 3) {
    ids.push(lookahead.next()?.id);
    expect(ids).not.toContain(undefined);
  }
});

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, n) => from + n);

test('a read does not offer again jobs that a lane took after its snapshot, and offers jobs that were rolled back', async () => {
  const { lookahead, reads } = lookaheadOf();
  lookahead.next();
  await reads[0]?.answer(Array.from({ length: 40 }, (_, at) => at + 1));
  const first = lookahead.next();
  const taken = untilNextRead(lookahead, reads);
  const late = lookahead.next();
  // All these takes are answered while the read is under way.
  for (const candidate of [first, ...taken, late]) if (candidate !== undefined) lookahead.ended(candidate, true);
  const gone = new Set([first, ...taken, late].map((candidate) => candidate?.id));
  await reads[1]?.answer([1, 2, 3, ...Array.from({ length: 60 }, (_, at) => at + 4)]);
  expect(gone.has(lookahead.next()?.id)).toBe(false);
  untilNextRead(lookahead, reads);
  // Its transaction was rolled back meanwhile.
  await reads[2]?.answer([1, 2, 3]);
  expect(lookahead.next()?.id).toBe(1);
});

test('when other workers have taken most of the read jobs, the next read begins at once', async () => {
  const { lookahead, reads } = lookaheadOf();
  lookahead.next();
  await reads[0]?.answer(Array.from({ length: 60 }, (_, at) => at + 1));
  const [one, other] = [lookahead.next(), lookahead.next()];
  if (one === undefined || other === undefined) throw new Error('there are sixty');
  lookahead.ended(one, false);
  lookahead.ended(other, false);
  lookahead.next();
  expect(reads).toHaveLength(2);
});

test('jobs are reserved for their worker for half a second, then any worker may take them', async () => {
  const { lookahead, reads } = lookaheadOf();
  const since = performance.now();
  lookahead.next();
  let nth = 0;
  for (; reads[nth]?.request.front.id === 0; nth += 1) {
    await reads[nth]?.answer(range(100 * nth + 1, 100 * nth + 60));
    untilNextRead(lookahead, reads);
  }
  expect(performance.now() - since).toBeGreaterThan(500);
  expect(reads[nth]?.request.front.id).toBeLessThan(100 * (nth - 1));
});

test('when fewer jobs than lanes are ready, each lane claims alone and none waits for a read', async () => {
  const { lookahead, reads } = lookaheadOf();
  lookahead.next();
  await reads[0]?.answer([1]);
  expect(lookahead.next()?.id).toBe(1);
  expect([lookahead.next(), lookahead.reading, reads.length]).toEqual([undefined, undefined, 1]);
});

test('another worker runs the jobs of a worker whose handlers hang', async () => {
  const [one, other] = [connect(), connect()];
  const queue = createQueue(one, 'still', { kinds: { job: {} } });
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  let held = 0;
  const still = queue.work(
    {
      job: async () => {
        held += 1;
        await ended;
      },
    },
    { ...LANE, concurrency: 3 },
  );
  onTestFinished(() => {
    end();
    return still.stop();
  });
  await queue.enqueueMany(Array.from({ length: 3 }, (_, n) => ({ kind: 'job' as const, payload: n })));
  await until('each of its lanes holds a job', () => held === 3);
  const seen: unknown[] = [];
  const worker = createQueue(other, 'still', { kinds: { job: {} } }).work(
    { job: ({ payload }) => void seen.push(payload) },
    { ...LANE, concurrency: 3 },
  );
  await worker.started;
  await queue.enqueueMany(Array.from({ length: 300 }, (_, n) => ({ kind: 'job' as const, payload: n + 3 })));
  await until('the other has run all', () => seen.length === 300);
  await worker.stop();
  expect(new Set(seen).size).toBe(300);
});

test.each([
  { when: 'no connection is left for a look-ahead', spare: 0, text: 'x' },
  { when: 'payloads are too large for a look-ahead', spare: 1, text: 'x'.repeat(5000) },
])('lanes do every job once when $when', async ({ when, spare, text }) => {
  const [own, others] = [connect({ max: 4 }), connect()];
  const queue = createQueue(others, when, { kinds: { job: {} } });
  const seen: string[] = [];
  const worker = createQueue(own, when, { kinds: { job: {} } }).work(
    { job: ({ payload }) => void seen.push(String(payload)) },
    { ...LANE, concurrency: 2 },
  );
  await worker.started;
  const taken = await Promise.all(Array.from({ length: 1 - spare }, () => own.connect()));
  const texts = Array.from({ length: 300 }, (_, n) => `${n} ${text}`);
  await queue.enqueueMany(texts.map((payload) => ({ kind: 'job', payload })));
  await queue.drain({ timeout: '30s' });
  for (const session of taken) session.release();
  await worker.stop();
  expect(seen.toSorted()).toEqual(texts.toSorted());
});

/** Two workers take from the same three shards. @returns the violations */
async function compete(url: string): Promise<string[]> {
  const engines = [1, 2].map(() => postgres(url, { max: 5, logger: recordLog() }));
  onTestFinished(async () => void (await Promise.all(engines.map((engine) => engine.stop()))));
  const [engine] = engines;
  if (engine === undefined) throw new Error('there are two');
  await engine.query(statement('ran.create', 'create table ran (at bigint generated always as identity, id bigint)'));
  const queues = engines.map((one) => createQueue(one, 'competing', { kinds: { job: {} }, shards: 3 }));
  const jobs = Array.from({ length: 120 }, (_, n) => ({
    kind: 'job' as const,
    payload: n,
    ...(n % 10 === 0 ? { key: `k${n % 3}` } : {}),
  }));
  // A few at a time, so that the ids of the shards alternate.
  for (let n = 0; n < jobs.length; n += 8) await queues[0]?.enqueueMany(jobs.slice(n, n + 8));
  const handler = async ({ tx, job }: { tx: { client: PgClient }; job: { id: string } }): Promise<void> => {
    await tx.client.query({ text: `insert into ran (id) values (${Number(job.id)})` });
  };
  const workers = queues.map((queue) => queue.work({ job: handler }, { ...LANE, concurrency: 3 }));
  const all = statement('ran.all', `select count(*) >= ${jobs.length} as all from ran`);
  await until('as many have run', async () => (await engine.query<{ all: boolean }>(all))[0]?.all);
  await Promise.all(workers.map((worker) => worker.stop()));
  const rows = await engine.query<{ wrong: string }>(WRONG);
  return rows.map(({ wrong }) => wrong);
}

const WRONG = statement(
  'competing.wrong',
  `
select 'ran ' || count(r.id) || ' times: ' || j.id as wrong from pawl.queue_job j left join ran r on r.id = j.id
group by j.shard, j.id having count(r.id) <> 1
union all
select 'has ' || count(r.claim) || ' receipts: ' || j.id from pawl.queue_job j left join (
  select o.shard, o.id, o.claim from pawl.queue_receipt_one o
  union all
  select r.shard, i.id, r.claim from pawl.queue_receipt r
  cross join lateral unnest(r.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
) r on r.id = j.id and r.shard = j.shard
group by j.shard, j.id having count(r.claim) <> 1
union all
select 'left behind: ' || r.id from pawl.queue_ready r
union all
select 'before its predecessor: ' || j.id from pawl.queue_job j join ran r on r.id = j.id
where exists (
  select from pawl.queue_job o join ran s on s.id = o.id where o.key = j.key and o.id < j.id and s.at > r.at)`,
);

test('two workers take the jobs that they have read in three shards, each job once', async () => {
  const fresh = await freshDatabase();
  onTestFinished(() => fresh.drop());
  expect(await compete(fresh.url)).toEqual([]);
});

test('a planted take that does not delete its row is found', async () => {
  const fresh = await freshDatabase();
  onTestFinished(() => fresh.drop());
  const session = await SqlSession.open(fresh.url);
  const right = await session.one<string>(`select pg_get_functiondef('pawl.queue_take_row'::regproc)`);
  const wrong = right.replace('delete from pawl.queue_ready r', 'update pawl.queue_ready r set attempt = 0');
  expect(wrong).not.toBe(right);
  await session.client.query(wrong);
  await session.end();
  expect(await compete(fresh.url)).not.toEqual([]);
});
