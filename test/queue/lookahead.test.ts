import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue, type WorkOptions } from '../../src/queue/index.ts';
import type { ClaimAnswer, Looked } from '../../src/queue/store.ts';
import { START } from '../../src/queue/work/scan.ts';
import type { Lane } from '../../src/queue/work/transaction/lane.ts';
import { Lookahead } from '../../src/queue/work/transaction/lookahead.ts';
import { take } from '../../src/queue/work/transaction/pipeline.ts';
import { claimed } from '../../src/queue/work/transaction/statements.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { SqlSession } from './sql-session.ts';

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

test.each([true, false])(
  'one lane starts jobs with and without keys in their order (prepared statements: %s)',
  async (prepare) => {
    const queue = createQueue(connect({ prepare }), `order ${prepare}`, { kinds: { job: {} } });
    const jobs = Array.from({ length: 120 }, (_, n) => ({
      kind: 'job' as const,
      payload: n,
      ...(n % 40 === 20 ? { key: `k${n}` } : {}),
      ...(n < 60 ? {} : { priority: 1 }),
    }));
    await queue.enqueueMany(jobs);
    const seen: unknown[] = [];
    const worker = queue.work({ job: ({ payload }) => void seen.push(payload) }, LANE);
    await queue.drain({ timeout: '30s' });
    await worker.stop();
    expect(seen).toEqual(jobs.map(({ payload }) => payload));
  },
);

test('what comes due, comes first, or has a key is not kept waiting by the jobs in front of busy lanes', async () => {
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
    // Both lanes stand still meanwhile: however long it takes, they are there with most of the jobs still to do.
    if (seen.length >= 20) await (late ??= enqueueLate());
    // Or all would be done within the half second that a single look takes where the machine is busy.
    await sleep(1);
  };
  const worker = queue.work({ job: handler }, { ...LANE, concurrency: 2 });
  await queue.drain({ timeout: '60s' });
  await worker.stop();
  expect(seen).toHaveLength(1503);
  for (const name of ['first', 'due', 'key']) expect(seen.indexOf(name), name).toBeLessThan(1400);
});

test('after a handler that took long, what comes first by then is next, and not what came first before it', async () => {
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

test('a handler that deallocates every prepared statement costs no job, and none is done twice', async () => {
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
  await until('all are done', async () => (await queue.stats()).new === 0, 30_000);
  expect(await engine.query(count)).toEqual([{ n: 60, d: 60 }]);
});

interface PgClient {
  query(config: { text: string }): Promise<unknown>;
}

test('nothing is taken of a paused queue, of a run, of a key, or past the end of the lookahead', async () => {
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());
  const { queue, kinds } = await session.register('takes', [{ name: 'job' }]);
  const kind = kinds['job'] ?? -1;
  const worker = await session.addWorker(queue);
  const one = async (): Promise<number> => (await session.add(queue, [{ kind }]))[0] ?? -1;
  const take = async (to: number): Promise<unknown> => {
    const text = await session.one<string | null>(
      `select pawl.queue_take(${queue}::smallint, 0::smallint, (-32768)::smallint, 0, 0::smallint, ${to})`,
    );
    return text === null ? null : (JSON.parse(text) as unknown[])[1];
  };
  const look = async (): Promise<{ rows: unknown[]; until: unknown[] }> =>
    JSON.parse(
      await session.one<string>(
        `select pawl.queue_claim_one(${queue}::smallint, 0::smallint, ${worker}, 64, (-32768)::smallint, 0)`,
      ),
    ) as { rows: unknown[]; until: unknown[] };
  const [, second, third] = [await one(), await one(), await one()];
  const [key] = await session.add(queue, [{ kind, key: 'k' }]);
  const [run] = await session.add(queue, [{ kind }, { kind }]);
  const seen = await look();
  expect([seen.rows.length, seen.until]).toEqual([1, [0, third, 2]]);
  await session.client.query(`update pawl.queue_definition set paused_at = now() where id = ${queue}`);
  expect(await take(third)).toBe(null);
  await session.client.query(`update pawl.queue_definition set paused_at = null where id = ${queue}`);
  expect(await take(second - 1)).toBe(null);
  expect(await take(second)).toBe(second);
  expect(await take((run ?? 0) + 1)).toBe(third);
  expect(await take((run ?? 0) + 1)).toBe(null);
  const left = await session.client.query<{ id: string; n: number }>(
    `select id, n from pawl.queue_ready where queue = ${queue} order by id`,
  );
  expect(left.rows.map(({ id, n }) => [Number(id), n])).toEqual([
    [key, 1],
    [run, 2],
  ]);
});

test('a job is taken from where a look saw its row, and no other: not of a paused queue, not what somebody holds', async () => {
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());
  const { queue, kinds } = await session.register('takes at', [{ name: 'job' }]);
  const worker = await session.addWorker(queue);
  const kind = kinds['job'] ?? -1;
  const ids: number[] = [];
  for (let n = 0; n < 3; n += 1) ids.push(...(await session.add(queue, [{ kind }])));
  const looked = JSON.parse(
    await session.one<string>(
      `select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, ${worker}, 64, (-32768)::smallint, 0)`,
    ),
  ) as Looked;
  const tids = looked.tids ?? [];
  expect([looked.n, tids.length]).toEqual([3, 3]);
  const [first, second, third] = ids;
  const take = async (id: number | undefined, tid: string | undefined, by = session): Promise<number | undefined> => {
    const text = await by.one<string | null>(
      `select pawl.queue_take_at(${queue}::smallint, 0::smallint, ${id}, '${tid}')`,
    );
    return text === null ? undefined : Number(text.split(',')[1]);
  };
  await session.client.query(`update pawl.queue_definition set paused_at = now() where id = ${queue}`);
  expect(await take(first, tids[0])).toBe(undefined);
  await session.client.query(`update pawl.queue_definition set paused_at = null where id = ${queue}`);
  expect(await take(first, tids[1])).toBe(undefined);
  const other = await SqlSession.open(database.url);
  onTestFinished(() => other.end());
  await other.client.query('begin');
  expect(await take(first, tids[0], other)).toBe(first);
  expect(await take(first, tids[0])).toBe(undefined);
  await other.client.query('rollback');
  expect(await take(first, tids[0])).toBe(first);
  expect(await take(first, tids[0])).toBe(undefined);
  await session.client.query(`update pawl.queue_ready set attempt = 1 where id = ${second}`);
  expect(await take(second, tids[1])).toBe(undefined);
  await session.client.query(`update pawl.queue_ready set n = 2 where id = ${third}`);
  const moved = await session.one<string>(`select ctid from pawl.queue_ready where id = ${third}`);
  expect(await take(third, moved)).toBe(undefined);
  const left = await session.client.query<{ id: string }>(
    `select id from pawl.queue_ready where queue = ${queue} order by id`,
  );
  expect(left.rows.map(({ id }) => Number(id))).toEqual([second, third]);
});

/** What a look shows of jobs 1 to n, all ready. */
function looked(n: number): Looked {
  const ids = Array.from({ length: n }, (_, at) => at + 1);
  return {
    n,
    until: [0, n],
    jobs: ids.flatMap((id) => [id, 1, 17, `payload ${id}`]),
    tids: ids.map((id) => `(0,${id})`),
  };
}

function tookOf(id: number): ClaimAnswer {
  return claimed(
    { claim: 100 + id, id, attempt: 1, priority: 0, claimedAt: '', processId: '' },
    { kind: 1, at: 17, payload: 0 },
  );
}

/** A lookahead that two lanes take from, after a look that showed `n` jobs. */
function lookaheadOf(n: number): Lookahead {
  const lookahead = new Lookahead(2);
  lookahead.beginRead().end(looked(n));
  return lookahead;
}

test('each lane picks a job of its own, in their order, and a look does not show again what they hold', async () => {
  const lookahead = lookaheadOf(6);
  const takings = [lookahead.take(), lookahead.take()];
  expect(takings.map(({ pick }) => [pick?.id, pick?.seen.tid, pick?.seen.payload])).toEqual([
    [1, '(0,1)', 'payload 1'],
    [2, '(0,2)', 'payload 2'],
  ]);
  const letGo = takings.map((taking, at) => {
    lookahead.took(taking, tookOf(at + 1));
    return lookahead.hold(tookOf(at + 1));
  });
  const isOld = (): boolean => lookahead.isPassDue;
  await until('the next look is one from the start', isOld);
  const look = lookahead.beginRead();
  // Committed while the look is under way: its snapshot may be older than that.
  letGo[0]?.();
  look.end(looked(6));
  expect(lookahead.take().pick?.id).toBe(3);
  // The next one begins after the commit: job 1 is ready again, 2 and 3 are still held.
  await until('the next look is one from the start', isOld);
  lookahead.beginRead().end(looked(6));
  expect([lookahead.take().pick?.id, lookahead.take().pick?.id]).toEqual([1, 4]);
});

test('what a search that is under way will find is not picked', () => {
  const lookahead = new Lookahead(2);
  lookahead.look();
  lookahead.see({ ...tookOf(1), until: [0, 9, 9] });
  const search = lookahead.take();
  expect(search.pick).toBe(undefined);
  lookahead.beginRead().end(looked(9));
  const pick = lookahead.take();
  expect(pick.pick?.id).toBe(2);
  lookahead.took(search, tookOf(1));
  expect(lookahead.take().pick?.id).toBe(3);
});

test('where others took what was picked, twice in a row, lanes search for what is free', () => {
  const lookahead = lookaheadOf(9);
  const [one, other] = [lookahead.take(), lookahead.take()];
  lookahead.took(one, undefined);
  expect(lookahead.hasCandidates).toBe(true);
  expect(lookahead.take().pick?.id).toBe(3);
  lookahead.took(other, undefined);
  const search = lookahead.take();
  expect([search.pick, search.jobs?.has(4)]).toEqual([undefined, true]);
});

test('a look beside the lanes takes runs apart, brings back what is due, and stops at a key and at a pause', async () => {
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());
  const { queue, kinds } = await session.register('looks', [{ name: 'job' }]);
  const kind = kinds['job'] ?? -1;
  const worker = await session.addWorker(queue);
  const look = async (rows: number, after = 0): Promise<Looked> =>
    JSON.parse(
      await session.one<string>(
        `select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, ${worker}, ${rows}, (-32768)::smallint, ${after})`,
      ),
    ) as Looked;
  const idsOf = ({ jobs }: Looked): unknown[] => jobs?.filter((_, at) => at % 4 === 0) ?? [];
  expect(await look(10)).toEqual({ n: 0 });
  const [due] = await session.add(queue, [{ kind, runAt: new Date(Date.now() - 1000) }]);
  const run = await session.add(queue, [{ kind }, { kind }, { kind }]);
  const [last] = await session.add(queue, [{ kind }]);
  await session.add(queue, [{ kind, key: 'k' }]);
  await session.add(queue, [{ kind }]);
  const few = await look(2);
  expect([few.n, few.until, idsOf(few)]).toEqual([4, [0, run[2]], [due, ...run]]);
  const all = await look(64);
  expect([all.n, all.until, idsOf(all)]).toEqual([5, [0, last], [due, ...run, last]]);
  expect(all.jobs?.slice(1, 4)).toEqual([kind, expect.any(Number), 0]);
  await session.client.query(`update pawl.queue_job set payload = to_json(repeat('long ', 1000)) where id = ${last}`);
  expect(await look(64)).toEqual({ n: 5, until: [0, last] });
  await session.client.query(`update pawl.queue_definition set paused_at = now() where id = ${queue}`);
  expect(await look(64)).toEqual({ n: 0 });
  await session.client.query(`update pawl.queue_definition set paused_at = null where id = ${queue}`);
  await expect(
    session.client.query(`select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, -1, 64, 0::smallint, 0)`),
  ).rejects.toMatchObject({ code: 'PW004' });
});

test('a job that came after the look, and stands before its end, is read when it is taken', async () => {
  const engine = connect();
  const queue = createQueue(engine, 'came later', { kinds: { job: {} } });
  const ids = [(await queue.enqueue('job', 'seen')).id, (await queue.enqueue('job', { n: 'later' })).id].map(Number);
  const [row] = await engine.query<{ queue: number }>(
    statement('came.queue', `select id as queue from pawl.queue_definition where name = 'came later'`),
  );
  const session = await engine.connect();
  onTestFinished(() => session.release(true));
  const lane: Lane = { session, answer: {}, takesBatches: true, isPooled: false };
  const jobs = new Map([[ids[0] ?? -1, { kind: 1, at: 17, payload: 'as it was seen' }]]);
  const taking = { from: START, to: { priority: 0, id: ids[1] ?? -1 }, jobs };
  const where = { queue: row?.queue ?? -1, shard: 0 };
  const [first, second, none] = [
    await take(lane, undefined, where, taking),
    await take(lane, '', where, taking),
    await take(lane, '', where, taking),
  ];
  expect(first?.rows[0]?.slice(1)).toEqual([ids[0], 1, 1, 1, 17, ['as it was seen']]);
  expect(second?.rows[0]?.slice(1)).toEqual([ids[1], 1, expect.any(Number), 1, expect.any(Number), [{ n: 'later' }]]);
  expect(none).toBe(undefined);
});

test.each([
  { when: 'no connection is left for a look beside them', spare: 0, text: 'x' },
  { when: 'payloads are too large for a look', spare: 1, text: 'x'.repeat(5000) },
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

/** Two workers take from the same three shards. @returns what went wrong */
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
  // A few at a time, so that the ids of a shard have those of the others between them.
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

test('two workers take from three shards what each has seen there, each job once', async () => {
  const fresh = await freshDatabase();
  onTestFinished(() => fresh.drop());
  expect(await compete(fresh.url)).toEqual([]);
});

test('that is noticed of a take that does not delete what it takes', async () => {
  const fresh = await freshDatabase();
  onTestFinished(() => fresh.drop());
  const session = await SqlSession.open(fresh.url);
  for (const name of ['queue_take', 'queue_take_seen', 'queue_take_at']) {
    const right = await session.one<string>(`select pg_get_functiondef('pawl.${name}'::regproc)`);
    const wrong = right.replace('delete from pawl.queue_ready r', 'update pawl.queue_ready r set attempt = 0');
    expect(wrong).not.toBe(right);
    await session.client.query(wrong);
  }
  await session.end();
  expect(await compete(fresh.url)).not.toEqual([]);
});
