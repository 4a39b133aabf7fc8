import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Conflict, InvalidInput, LockNotAvailable, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type Unit, type WorkOptions } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { DOUBLING, gate } from '../contract/fixture.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20, logger: recordLog() });
  session = await SqlSession.open(url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
});

const kinds = { job: {}, sum: { coalesce: 'all' }, checked: { payload: DOUBLING }, later: { after: ['job'] } } as const;
type Any = Queue<typeof kinds>;
/** For queues in which a key is a label. */
const labelled = { job: {} } as const;
const HOUR = 3_600_000;

function newQueue(options: { attempts?: number } = {}): Any {
  nth += 1;
  return createQueue(engine, `change ${nth}`, {
    kinds,
    retry: { attempts: options.attempts ?? 5, backoff: { kind: 'fixed', min: '1h' } },
  });
}

function newLabelled(): Queue<typeof labelled> {
  nth += 1;
  return createQueue(engine, `labelled ${nth}`, { kinds: labelled, concurrency: { perKey: Infinity } });
}

/** Runs everything that is due. @returns the payloads of all jobs, in the order of their units */
async function runAll(queue: Any, options: WorkOptions = {}): Promise<unknown[]> {
  const seen: unknown[] = [];
  const note = (unit: Unit): void => void seen.push(...unit.jobs.map(({ payload }) => payload));
  const worker = queue.work({ job: note, sum: note, checked: note, later: note }, { concurrency: 1, ...options });
  await queue.drain();
  await worker.stop();
  return seen;
}

async function expectWhole(): Promise<void> {
  expect(await breaches(session.client)).toEqual([]);
}

const later = (): Date => new Date(Date.now() + HOUR);

describe.each(['lease', 'transaction'] as const)('with hold %s', (hold) => {
  test('a job of a run gets another payload, and its neighbours keep theirs', async () => {
    const queue = newQueue();
    const ids = await queue.enqueueMany(Array.from({ length: 9 }, (_, n) => ({ kind: 'job', payload: n }) as const));
    for (const at of [0, 4, 5, 8]) await queue.update(ids[at] ?? '', { payload: `new ${at}` });
    expect(await queue.update(ids[4] ?? '', { payload: 'newest' })).toEqual({ id: ids[4], status: 'new' });
    await expectWhole();
    expect(new Set(await runAll(queue, { hold }))).toEqual(
      new Set(['new 0', 1, 2, 3, 'newest', 'new 5', 6, 7, 'new 8']),
    );
  });

  test('jobs of one key keep their order, whichever of them is changed', async () => {
    const queue = newQueue();
    // More than a claim takes: most of them are parked at once.
    const jobs = Array.from({ length: 40 }, (_, n) => ({ kind: 'job', payload: n, key: 'k' }) as const);
    const ids = await queue.enqueueMany(jobs);
    for (const at of [0, 20, 36, 39]) await queue.update(ids[at] ?? '', { payload: -at, priority: at - 20 });
    await expectWhole();
    expect((await runAll(queue, { hold })).map(Number).map(Math.abs)).toEqual(jobs.map(({ payload }) => payload));
  });

  test('no handler gets the old payload once an update has committed, while workers take the jobs', async () => {
    const queue = newLabelled();
    const ran = new Map<string, unknown>();
    const note = (unit: Unit): void => void ran.set(unit.job.id, unit.payload);
    const workers = [1, 2].map(() => queue.work({ job: note }, { hold, concurrency: 3, poll: '20ms' }));
    const told = new Map<string, unknown>();
    const change = async (id: string, n: number): Promise<void> => {
      try {
        await queue.update(id, { payload: `second ${n}` });
        told.set(id, `second ${n}`);
      } catch (error) {
        // It runs, or a transaction that takes it just now did not end in time.
        expect(error instanceof Conflict || error instanceof LockNotAvailable, String(error)).toBe(true);
        told.set(id, `first ${n}`);
      }
    };
    for (let round = 0; round < 8; round += 1) {
      const ids = await queue.enqueueMany(
        Array.from({ length: 40 }, (_, n) => ({ kind: 'job', payload: `first ${n}` }) as const),
      );
      await Promise.all(ids.map(change));
    }
    await queue.drain();
    await Promise.all(workers.map((worker) => worker.stop()));
    expect(told.size).toBe(320);
    expect(ran).toEqual(told);
    await expectWhole();
  });
});

test('a job can be put off, brought forward and given another priority', async () => {
  const queue = newQueue();
  const off = await queue.enqueue('job', 'off');
  const on = await queue.enqueue('job', 'on', { runAt: later() });
  const last = await queue.enqueue('job', 'last');
  await queue.enqueue('job', 'plain');
  const runAt = later();
  await queue.update(off.id, { runAt });
  expect(await queue.get(off.id)).toMatchObject({ status: 'new', runAt });
  await queue.update(on.id, { runAt: new Date(0) });
  await queue.update(last.id, { priority: 7, meta: { from: 'a trial' } });
  expect(await queue.get(last.id)).toMatchObject({ priority: 7, payload: 'last', meta: { from: 'a trial' } });
  expect((await queue.explain(off.id)).reasons[0]?.code).toBe('scheduled');
  await expectWhole();
  expect(await runAll(queue)).toEqual(['on', 'plain', 'last']);
  await queue.update(off.id, { delay: 0 });
  expect(await runAll(queue)).toEqual(['off']);
  expect((await queue.history(off.id)).map(({ reason }) => reason)).toEqual([
    'enqueue',
    'update',
    'update',
    'claim',
    'complete',
  ]);
});

test('a delay is counted from now on, by the clock of the database', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  await queue.update(id, { delay: '2h' });
  const [row] = await engine.query<{ left: number }>(
    statement(
      'test.left',
      'select extract(epoch from run_at - clock_timestamp())::float8 as left from pawl.job where id = $1',
    ),
    [id],
  );
  expect(row?.left).toBeGreaterThan(7000);
  expect(row?.left).toBeLessThanOrEqual(7200);
});

test('a job of a key that is put off lets the others pass, and takes its place again when it is due', async () => {
  const queue = newQueue();
  const first = await queue.enqueue('job', 'first', { key: 'k' });
  await queue.enqueue('job', 'second', { key: 'k' });
  await queue.update(first.id, { runAt: later() });
  await expectWhole();
  expect(await runAll(queue)).toEqual(['second']);
  await queue.update(first.id, { runAt: new Date(0), payload: 'first, late' });
  expect(await runAll(queue)).toEqual(['first, late']);
});

test('a job that others wait for is put off: those behind it in its key that are to come after it wait on', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 'job', { key: 'k' });
  const behind = await queue.enqueue('later', 'later', { key: 'k' });
  await queue.update(id, { runAt: later() });
  const seen: unknown[] = [];
  const note = (unit: Unit): void => void seen.push(unit.payload);
  const worker = queue.work({ job: note, sum: note, checked: note, later: note });
  await worker.started;
  // Its turn was looked for, and it was parked behind the other one.
  await eventually(async () => expect((await queue.stats()).parked).toBe(1));
  await expectWhole();
  expect((await queue.get(behind.id)).status).toBe('new');
  await queue.retry(id);
  await queue.drain();
  await worker.stop();
  expect(seen).toEqual(['job', 'later']);
});

test('jobs of one unit are changed one by one', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'sum', payload, key: 'k' }) as const));
  await queue.update(ids[1] ?? '', { payload: 20 });
  await queue.update(ids[2] ?? '', { runAt: later() });
  expect(await runAll(queue)).toEqual([1, 20]);
  await queue.retry(ids[2] ?? '');
  expect(await runAll(queue)).toEqual([3]);
});

test('a job that backs off is due now by retry, keeps its attempts and the place of its key', async () => {
  const queue = newQueue({ attempts: 3 });
  const tries: [unknown, number][] = [];
  const run = ({ payload, attempt }: Unit): void => {
    tries.push([payload, attempt]);
    if (payload === 'bad') throw new Error('out of paper');
  };
  const worker = queue.work({ job: run, sum: run, checked: run, later: run });
  const { id } = await queue.enqueue('job', 'bad', { key: 'k' });
  await eventually(async () => expect((await queue.explain(id)).reasons[0]?.code).toBe('backing_off'));
  const next = await queue.enqueue('job', 'next', { key: 'k' });
  await eventually(async () => expect((await queue.explain(next.id)).reasons[0]?.code).toMatch(/key|behind/));
  await queue.update(id, { payload: 'good' });
  await expectWhole();
  expect(tries).toEqual([['bad', 1]]);
  expect(await queue.retry(id)).toBe('new');
  await queue.drain();
  await worker.stop();
  expect(tries).toEqual([
    ['bad', 1],
    ['good', 2],
    ['next', 1],
  ]);
  await expectWhole();
});

test('what has begun or ended is a Conflict that has its status', async () => {
  const queue = newQueue({ attempts: 1 });
  const paper = gate();
  const run = async ({ payload }: Unit): Promise<void> => {
    if (payload === 'bad') throw new Error('out of paper');
    await paper.opened;
  };
  const worker = queue.work({ job: run, sum: run, checked: run, later: run });
  const bad = await queue.enqueue('job', 'bad');
  const slow = await queue.enqueue('job', 'slow');
  await eventually(async () => expect((await queue.get(bad.id)).status).toBe('error'));
  await eventually(async () => expect((await queue.get(slow.id)).status).toBe('in-progress'));
  const gone = await queue.enqueue('job', 'gone', { runAt: later() });
  await queue.cancel(gone.id);
  const expectConflict = async (id: string, status: string): Promise<void> => {
    const error: unknown = await queue.update(id, { payload: 2 }).catch((refused: unknown) => refused);
    expect(error).toBeInstanceOf(Conflict);
    expect(error).toMatchObject({
      message: `job ${id} is ${status}, so it can no longer be changed; only a waiting job can be changed`,
    });
  };
  await expectConflict(bad.id, 'in error');
  await expectConflict(slow.id, 'in progress');
  await expectConflict(gone.id, 'cancelled');
  paper.open();
  await queue.drain();
  await expectConflict(slow.id, 'complete');
  await worker.stop();
});

test('the schema of its kind checks the payload, whichever way the job is named', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('checked', { n: 1 }, { key: 'k' });
  await expect(queue.update(id, { payload: { n: 'one' } })).rejects.toThrow(/must be a whole number/);
  await expect(queue.update({ key: 'k' }, { payload: {} })).rejects.toBeInstanceOf(InvalidInput);
  await queue.update({ key: 'k', kind: 'checked' }, { payload: { n: 21 } });
  expect(await runAll(queue)).toEqual([{ n: 42 }]);
});

test('what says nothing, too much or nonsense is refused, and nothing changes', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  const before = await queue.get(id);
  await expect(queue.update(id, {})).rejects.toThrow(/nothing to change/);
  await expect(queue.update(id, { runAt: new Date(), delay: '1s' })).rejects.toThrow(/both runAt and delay/);
  await expect(queue.update(id, { payload: 1n })).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.update('x', { payload: 1 })).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.update('999999999', { payload: 1 })).rejects.toBeInstanceOf(NotFound);
  await expect(queue.update({ key: 'none' }, { payload: 1 })).rejects.toThrow(/no job of key "none"/);
  await expect(queue.update({ key: 'k', kind: 'jb' }, { payload: 1 })).rejects.toBeInstanceOf(NotFound);
  await expect(queue.update({ key: 'k', kind: 'sum' }, { payload: 1 })).rejects.toThrow(
    /no job of key "k" and kind "sum"/,
  );
  await expect(createQueueAdmin(engine).retry(JSON.parse('{"key":"k"}'))).rejects.toThrow(/{ queue, key, kind }/);
  expect(await queue.get(id)).toEqual(before);
});

test.each([1, Infinity])(
  'by key it is the newest job that has not ended, else the newest, with perKey %d',
  async (perKey) => {
    const queue = perKey === 1 ? newQueue() : newLabelled();
    const old = await queue.enqueue('job', 'old', { key: 'k' });
    const next = await queue.enqueue('job', 'next', { key: 'k', runAt: later() });
    const ended = await queue.enqueue('job', 'ended', { key: 'k' });
    expect(await queue.cancel({ key: 'k', kind: 'job' }, { reason: 'why' })).toBe('cancelled');
    expect((await queue.get(ended.id)).error).toBe('why');
    expect((await queue.get({ key: 'k', kind: 'job' })).id).toBe(next.id);
    expect(await queue.retry({ key: 'k', kind: 'job' })).toBe('new');
    expect((await queue.explain(next.id)).reasons[0]?.code).not.toBe('scheduled');
    await queue.cancel(next.id);
    expect((await queue.get({ key: 'k', kind: 'job' })).id).toBe(old.id);
    await queue.cancel(old.id);
    expect((await queue.get({ key: 'k', kind: 'job' })).id).toBe(ended.id);
    expect(await createQueueAdmin(engine).retry({ queue: queue.name, key: 'k', kind: 'job' })).toBe('new');
    expect((await queue.get(ended.id)).status).toBe('new');
  },
);

test('update, cancel, retry and get are part of your transaction', async () => {
  const queue = newQueue();
  const kept = await queue.enqueue('job', 'kept');
  const cancelled = await queue.enqueue('job', 'cancelled', { key: 'k' });
  await queue.cancel(cancelled.id);
  await expect(
    engine.transaction(async (tx) => {
      const inside = await queue.enqueue('job', 'inside', { key: 'inside', tx });
      await queue.update({ key: 'inside' }, { payload: 'changed', tx });
      expect(await queue.get(inside.id, { tx })).toMatchObject({
        payload: 'changed',
        enqueuedAt: expect.any(Date),
        runAt: null,
      });
      await expect(queue.get(inside.id)).rejects.toBeInstanceOf(NotFound);
      expect(await queue.cancel(inside.id, { tx })).toBe('cancelled');
      expect(await queue.cancel(kept.id, { tx })).toBe('cancelled');
      expect(await queue.retry({ key: 'k' }, { tx })).toBe('new');
      expect((await queue.get({ key: 'k' }, { tx })).status).toBe('new');
      throw new Error('roll it back');
    }),
  ).rejects.toThrow('roll it back');
  await expectWhole();
  expect((await queue.get(cancelled.id)).status).toBe('cancelled');
  expect(await runAll(queue)).toEqual(['kept']);
});

test('workers go on while your transaction with a change is open, and the job runs as it was committed', async () => {
  const queue = newLabelled();
  const ids = await queue.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const seen: unknown[] = [];
  const note = (unit: Unit): void => void seen.push(unit.payload);
  await engine.transaction(async (tx) => {
    await queue.update(ids[2] ?? '', { payload: 'two', tx });
    const worker = queue.work({ job: note }, { poll: '50ms' });
    await eventually(() => expect(seen.length).toBeGreaterThan(0));
    await worker.stop();
    expect(seen).not.toContain(2);
  });
  const worker = queue.work({ job: note });
  await queue.drain();
  await worker.stop();
  expect(new Set(seen)).toEqual(new Set([0, 1, 'two', 3, 4]));
});

test('a search finds what a payload says now, and nothing of what it said', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany(
    Array.from({ length: 600 }, () => ({ kind: 'job', payload: 'needleless' }) as const),
  );
  const seal = (): Promise<unknown> => session.one('select pawl.queue_index(100)');
  const id = ids[3] ?? '';
  // On a busy machine the usual time of a page may be over before its jobs are read.
  const found = async (query: string): Promise<string[]> =>
    (await queue.search(query, { budget: '10s' })).jobs.map((job) => job.id);
  await eventually(async () => {
    await seal();
    expect(
      await session.one('select count(*)::int from pawl.queue_search_chunk where id_to > $1', [id]),
    ).toBeGreaterThan(0);
  });
  await queue.update(id, { payload: 'rarebit' });
  expect(await found('rarebit')).toEqual([id]);
  await seal();
  expect(await session.one('select count(*)::int from pawl.queue_search_again where id = $1', [id])).toBe(0);
  expect(await found('rarebit')).toEqual([id]);
  expect(await found(`"needleless" since:1h`)).not.toContain(id);
});

test('from SQL they are pawl.update, pawl.cancel and pawl.retry', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  const call = (name: string, request: object): Promise<unknown> =>
    session.one(`select pawl.${name}($1::jsonb)`, [JSON.stringify(request)]);
  const named = { queue: queue.name, key: 'k' };
  expect(await call('update', { ...named, payload: { a: 1 }, delay: '1 hour', priority: 3 })).toEqual({
    id,
    status: 'new',
  });
  expect(await queue.get(id)).toMatchObject({ payload: { a: 1 }, priority: 3, runAt: expect.any(Date) });
  expect(await call('retry', { id })).toEqual({ id, status: 'new' });
  expect(await call('cancel', { id, reason: 'no need' })).toEqual({ id, status: 'cancelled' });
  await expect(call('update', { id, payload: 1 })).rejects.toMatchObject({ code: 'PW003' });
  await expect(call('update', { id, pyload: 1 })).rejects.toThrow('unknown field "pyload" in pawl.update');
  await expect(call('update', { id, priority: 'high' })).rejects.toMatchObject({ code: 'PW001' });
  await expect(call('cancel', { id, key: 'k' })).rejects.toMatchObject({ code: 'PW001' });
  await expect(call('retry', { id: 'x' })).rejects.toMatchObject({ code: 'PW001' });
  await expect(call('retry', { id: '999999999' })).rejects.toMatchObject({ code: 'PW002' });
});
