import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Cancelled, Conflict, ConnectionFailed, InvalidInput, NotFound, TimedOut } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { type PostgresEngine, postgres, id as quoted, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type QueueAdmin, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually, until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

let engine: PostgresEngine;
let admin: QueueAdmin;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  // Errors that the tests provoke go to a recording logger, not to the terminal.
  engine = postgres(url, { max: 20, logger: recordLog() });
  admin = createQueueAdmin(engine);
});

afterAll(() => engine.stop());

const kinds = {
  job: {},
  create: { unique: 'key' },
  update: { after: ['create'], coalesce: 'all' },
} as const;

function newQueue(options: { shards?: number; attempts?: number } = {}): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `ops ${nth}`, {
    kinds,
    shards: options.shards ?? 1,
    retry: { attempts: options.attempts ?? 5, backoff: { kind: 'fixed', min: 1 } },
  });
}

/** A handler that runs until `open()` is called, and lists its payloads. */
function gate(): { run: (unit: Unit) => Promise<void>; open: () => void; seen: string[]; signals: AbortSignal[] } {
  const seen: string[] = [];
  const signals: AbortSignal[] = [];
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const run = async (unit: Unit): Promise<void> => {
    seen.push(...unit.jobs.map(({ id }) => id));
    signals.push(unit.signal);
    await Promise.race([opened, new Promise((_, reject) => unit.signal.addEventListener('abort', reject))]);
  };
  return { run, open: () => open(), seen, signals };
}

const all = (handler: (unit: Unit) => unknown): Record<keyof typeof kinds, (unit: Unit) => unknown> => ({
  job: handler,
  create: handler,
  update: handler,
});

async function rows(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  return engine.query(statement('test.rows', text, { prepare: false }), values);
}

test('stats count waiting jobs by place, up to ten thousand', async () => {
  const queue = newQueue();
  await queue.enqueueMany(Array.from({ length: 300 }, () => ({ kind: 'job', payload: 1 }) as const));
  await queue.enqueue('job', 1, { runAt: new Date(Date.now() + 3_600_000) });
  const { id } = await queue.enqueue('job', 1, { priority: 5 });
  await queue.cancel(id);
  expect(await queue.stats()).toMatchObject({
    new: 301,
    ready: 300,
    delayed: 1,
    parked: 0,
    'in-progress': 0,
    inProgress: 0,
    error: 0,
    cancelled: 1,
    completePerMinute: 0,
    paused: false,
    pausedAt: null,
    workers: 0,
  });
  expect((await queue.stats()).oldestReadyMs).toBeGreaterThan(0);
  await queue.enqueueMany(Array.from({ length: 12_000 }, () => ({ kind: 'job', payload: 1 }) as const));
  expect(await queue.stats()).toMatchObject({ new: 10_000, ready: 10_000 });
  const worker = queue.work(all(() => {}));
  await queue.drain();
  await worker.stop();
  expect(await queue.stats()).toMatchObject({
    new: 1,
    ready: 0,
    'in-progress': 0,
    completePerMinute: 12_300,
    oldestReadyMs: null,
  });
});

test('a pause lasts until resume, in every process; running jobs finish, and resume wakes workers at once', async () => {
  const queue = newQueue();
  const { run, open, seen } = gate();
  const worker = queue.work(all(run), { poll: '1h', prefetch: 0 });
  const first = await queue.enqueue('job', 1);
  await eventually(() => expect(seen).toEqual([first.id]));
  await queue.pause();
  const second = await queue.enqueue('job', 2);
  open();
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('complete'));
  expect((await queue.stats()).paused).toBe(true);
  expect(await admin.list()).toContainEqual(expect.objectContaining({ name: queue.name, pausedAt: expect.any(Date) }));
  expect((await queue.get(second.id)).status).toBe('new');
  await admin.resume(queue.name);
  await eventually(async () => expect((await queue.get(second.id)).status).toBe('complete'));
  await worker.stop();
});

test('get returns everything that the database has about a job', async () => {
  const queue = newQueue({ attempts: 2 });
  const runAt = new Date(Date.now() + 60_000);
  const later = await queue.enqueue('job', { a: 1 }, { key: 'k1', priority: -3, runAt });
  expect(await queue.get(later.id)).toMatchObject({
    id: later.id,
    queue: queue.name,
    kind: 'job',
    key: 'k1',
    status: 'new',
    priority: -3,
    attempt: 0,
    payload: { a: 1 },
    enqueuedAt: expect.any(Date),
    runAt,
    claimedAt: null,
    settledAt: null,
    processId: null,
    error: null,
    progress: null,
    result: null,
  });
  const { id } = await queue.enqueue('job', 'x');
  let processId = '';
  let calls = 0;
  const worker = queue.work(
    all(async (unit) => {
      calls += 1;
      if (calls === 1) throw new Error('out of paper');
      processId = unit.processId;
      await unit.progress({ page: 2 });
      expect(await queue.get(id)).toMatchObject({
        status: 'in-progress',
        attempt: 2,
        processId,
        progress: { page: 2 },
      });
      return { pages: 2 };
    }),
  );
  await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
  await worker.stop();
  const job = await admin.get(id);
  expect(job).toMatchObject({ attempt: 2, processId, error: null, progress: { page: 2 }, result: { pages: 2 } });
  expect(job.settledAt?.getTime()).toBeGreaterThanOrEqual(job.claimedAt?.getTime() ?? Infinity);
  const history = await queue.history(id);
  expect(history.map(({ reason, to }) => `${reason}: ${to}`)).toEqual([
    'enqueue: new',
    'claim: in-progress',
    'failed: new',
    'claim: in-progress',
    'complete: complete',
  ]);
  expect(history[2]).toMatchObject({ attempt: 1, error: expect.stringContaining('out of paper') });
  expect(history.at(-1)).toMatchObject({ attempt: 2, processId, worker: expect.any(String) });
  expect(new Set(history.map((move) => move.processId)).size).toBe(3);
});

test('the process id of a unit is the one in its history, for a single job, a batch and a coalesced unit', async () => {
  const queue = newQueue();
  const told = new Map<string, string>();
  const note = (unit: Unit): void => {
    for (const { id } of unit.jobs) told.set(id, unit.processId);
  };
  const ids = await queue.enqueueMany([
    { kind: 'job', payload: 1 },
    { kind: 'job', payload: 2 },
    { kind: 'update', payload: 3, key: 'alone' },
    { kind: 'update', payload: 4, key: 'pair' },
    { kind: 'update', payload: 5, key: 'pair' },
  ]);
  const worker = queue.work(all(note));
  await queue.drain();
  await worker.stop();
  for (const id of ids) expect((await queue.get(id)).processId).toBe(told.get(id));
  expect(new Set(told.values()).size).toBe(4);
});

test('drain waits for the remaining jobs, and rejects when that takes too long', async () => {
  const queue = newQueue();
  await queue.drain();
  await queue.enqueue('job', 1, { runAt: new Date(Date.now() + 400) });
  await queue.drain();
  await expect(queue.drain({ delayed: true, timeout: 50 })).rejects.toThrow(/left are 0 ready.*1 delayed; no worker/);
  await expect(queue.drain({ delayed: true, timeout: 50 })).rejects.toBeInstanceOf(TimedOut);
  const worker = queue.work(all(() => {}));
  await queue.drain({ delayed: true });
  expect((await queue.stats()).new).toBe(0);
  await worker.stop();
  const abort = new AbortController();
  await queue.enqueue('job', 1);
  const draining = queue.drain({ signal: abort.signal });
  abort.abort(new Error('enough'));
  await expect(draining).rejects.toThrow('enough');
});

test('a cancelled new job never runs, wherever it waits', async () => {
  const queue = newQueue();
  const run = await queue.enqueueMany(Array.from({ length: 9 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const chain = await queue.enqueueMany(
    Array.from({ length: 4 }, (_, n) => ({ kind: 'job', payload: n, key: 'k' }) as const),
  );
  const delayed = await queue.enqueue('job', 1, { runAt: new Date(Date.now() + 200) });
  const dead = [run[0], run[4], run[5], run[8], chain[0], chain[2], delayed.id].map(String);
  for (const id of dead) expect(await queue.cancel(id, { reason: 'not wanted' })).toBe('cancelled');
  expect(await queue.cancel(dead[0] ?? '')).toBe('cancelled');
  const seen: string[] = [];
  const worker = queue.work(all((unit) => void seen.push(unit.job.id)));
  await queue.drain({ delayed: true });
  await worker.stop();
  expect(seen.toSorted()).toEqual([...run, ...chain].filter((id) => !dead.includes(id)).toSorted());
  for (const id of dead) {
    expect(await queue.get(id)).toMatchObject({ status: 'cancelled', attempt: 0, error: 'not wanted' });
    expect((await queue.history(id)).map(({ reason }) => reason)).toEqual(['enqueue', 'cancel']);
  }
  await expect(queue.cancel(run[1] ?? '')).rejects.toThrow(/is complete, so it can no longer be cancelled/);
  await expect(queue.cancel(run[1] ?? '')).rejects.toBeInstanceOf(Conflict);
});

test('cancelling the head of a key, parked or backing off, lets the next of the key run', async () => {
  const queue = newQueue();
  const slow = createQueue(engine, queue.name, { kinds, retry: { backoff: { kind: 'fixed', min: '1h' } } });
  const ids = await slow.enqueueMany([1, 2, 3].map((n) => ({ kind: 'job', payload: n, key: 'k' }) as const));
  const seen: unknown[] = [];
  const worker = slow.work(
    all((unit) => {
      seen.push(unit.payload);
      if (unit.payload === 1) throw new Error('always');
    }),
  );
  await eventually(async () => expect(await slow.get(ids[0] ?? '')).toMatchObject({ status: 'new', attempt: 1 }));
  await eventually(async () => expect((await slow.stats()).parked).toBe(2));
  expect(await slow.cancel(ids[1] ?? '')).toBe('cancelled');
  expect(await slow.cancel(ids[0] ?? '')).toBe('cancelled');
  await slow.drain();
  await worker.stop();
  expect(seen).toEqual([1, 3]);
  expect(
    await rows('select 1 from pawl.queue_key k join pawl.queue_definition d on d.id = k.queue where d.name = $1', [
      queue.name,
    ]),
  ).toEqual([]);
});

test.each(['lease', 'transaction'] as const)(
  'the signal of a cancelled running job is aborted at once, and the job ends as cancelled (hold: %s)',
  async (hold) => {
    const queue = newQueue();
    const { run, seen, signals } = gate();
    const worker = queue.work(all(run), { hold, concurrency: 2 });
    const { id } = await queue.enqueue('job', 1, { key: 'k' });
    const next = await queue.enqueue('job', 2, { key: 'k' });
    await eventually(() => expect(seen).toContain(id));
    expect(await queue.cancel(id, { reason: 'customer called' })).toBe('in-progress');
    await eventually(() => expect(signals[0]?.reason).toBeInstanceOf(Cancelled));
    expect(String(signals[0]?.reason)).toContain('customer called');
    await eventually(async () => expect((await queue.get(id)).status).toBe('cancelled'));
    await eventually(() => expect(seen).toContain(next.id));
    expect(await queue.get(id)).toMatchObject({ status: 'cancelled', attempt: 1 });
    expect((await queue.history(id)).at(-1)).toMatchObject({ reason: 'cancel', from: 'in-progress', to: 'cancelled' });
    await queue.cancel(next.id);
    await queue.drain();
    await worker.stop();
  },
);

test('cancelling one job of a coalesced unit cancels that one; the others run again, uncharged', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany([1, 2, 3].map((n) => ({ kind: 'update', payload: n, key: 'k' }) as const));
  const { run, seen, open, signals } = gate();
  const worker = queue.work(all(run));
  await eventually(() => expect(seen).toHaveLength(3));
  expect(await queue.cancel(ids[1] ?? '')).toBe('in-progress');
  await eventually(() => expect(signals[0]?.aborted).toBe(true));
  open();
  await queue.drain();
  await worker.stop();
  expect(await Promise.all(ids.map(async (id) => (await queue.get(id)).status))).toEqual([
    'complete',
    'cancelled',
    'complete',
  ]);
  expect(await queue.get(ids[0] ?? '')).toMatchObject({ attempt: 1 });
});

test('a cancellation counts even if the attempt fails at the same moment, and leaves no row behind', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  let calls = 0;
  let isTold = false;
  const worker = queue.work(
    all(async (unit) => {
      calls += 1;
      // The failure is written before the worker learns of the cancellation.
      await rows(
        `insert into pawl.queue_cancel (id, shard, worker, reason) select $1, 0, id, 'stop it' from pawl.queue_worker w
         where w.queue = (select id from pawl.queue_definition where name = $2)`,
        [unit.job.id, queue.name],
      );
      isTold = unit.signal.aborted;
      await queue.pause();
      throw new Error('by chance');
    }),
    // Long enough for no heartbeat to tell it meanwhile.
    { lease: '20s' },
  );
  await eventually(async () => expect((await queue.get(id)).status).toBe('cancelled'));
  await eventually(async () => expect(await rows('select 1 from pawl.queue_cancel where id = $1', [id])).toEqual([]));
  await worker.stop();
  expect([calls, isTold]).toEqual([1, false]);
});

test('when cancel and claim race, every job either ran or was cancelled: never both, never neither', async () => {
  const queue = newQueue();
  const jobs = Array.from({ length: 400 }, (_, n) =>
    n % 2 === 0 ? ({ kind: 'job', payload: n } as const) : ({ kind: 'job', payload: n, key: `k${n % 7}` } as const),
  );
  const ids = await queue.enqueueMany(jobs);
  const ran = new Set<string>();
  const handler = all(async (unit) => {
    await new Promise((resolve) => setImmediate(resolve));
    unit.signal.throwIfAborted();
    for (const { id } of unit.jobs) ran.add(id);
  });
  const workers = [queue.work(handler, { concurrency: 4 }), queue.work(handler, { concurrency: 4, prefetch: 0 })];
  const answers = await Promise.all(
    ids
      .toReversed()
      .map((id) =>
        queue.cancel(id).catch((error: unknown) => (error instanceof Conflict ? 'complete' : String(error))),
      ),
  );
  await queue.drain();
  await Promise.all(workers.map((worker) => worker.stop()));
  const statuses = await Promise.all(ids.map(async (id) => (await queue.get(id)).status));
  ids.toReversed().forEach((id, index) => {
    const status = statuses[ids.length - 1 - index];
    expect(status).toBe(ran.has(id) ? 'complete' : 'cancelled');
    if (answers[index] !== 'in-progress') expect(answers[index]).toBe(status);
  });
  expect(answers).toContain('cancelled');
  expect(
    await rows('select 1 from pawl.queue_key k join pawl.queue_definition d on d.id = k.queue where d.name = $1', [
      queue.name,
    ]),
  ).toEqual([]);
});

test('retry gives a failed or cancelled job all its attempts again', async () => {
  const queue = newQueue({ attempts: 2 });
  const { id } = await queue.enqueue('job', 1);
  const attempts: number[] = [];
  const worker = queue.work(
    all((unit) => {
      attempts.push(unit.attempt);
      if (attempts.length < 4) throw new Error('not yet');
    }),
  );
  await eventually(async () => expect((await queue.get(id)).status).toBe('error'));
  await expect(queue.cancel(id)).rejects.toThrow(/in error, so it can no longer be cancelled/);
  expect(await queue.retry(id)).toBe('new');
  await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
  await worker.stop();
  expect(attempts).toEqual([1, 2, 1, 2]);
  expect((await queue.history(id)).filter(({ reason }) => reason === 'retry by hand')).toEqual([
    expect.objectContaining({ from: 'error', to: 'new', attempt: 0 }),
  ]);
  await expect(queue.retry(id)).rejects.toThrow(/is complete; only a job that waits, ended in error or was cancelled/);
  const other = await queue.enqueue('job', 2);
  await queue.cancel(other.id);
  expect(await queue.retry(other.id)).toBe('new');
});

test('a retried job of a key takes its old place among the jobs that have not run', async () => {
  const queue = newQueue({ attempts: 1 });
  const first = await queue.enqueue('job', 1, { key: 'k' });
  const failing = queue.work(
    all(() => {
      throw new Error('once');
    }),
  );
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('error'));
  await failing.stop();
  await queue.enqueueMany([2, 3, 4].map((n) => ({ kind: 'job', payload: n, key: 'k' }) as const));
  const order: unknown[] = [];
  const { run, open, seen } = gate();
  const worker = queue.work(
    all(async (unit) => {
      order.push(unit.payload);
      await run(unit);
    }),
    { prefetch: 0, concurrency: 1 },
  );
  await eventually(() => expect(seen).toHaveLength(1));
  await queue.retry(first.id);
  await worker.stop({ timeout: 0 });
  open();
  const again = queue.work(all((unit) => void order.push(unit.payload)));
  await queue.drain();
  await again.stop();
  expect(order).toEqual([2, 1, 2, 3, 4]);
});

test('prefetched jobs do not wait behind jobs that take every slot: they are given back uncharged to another worker', async () => {
  const queue = newQueue();
  const { run, open, seen } = gate();
  const attempts: number[] = [];
  const handler = all(async (unit) => {
    if (unit.payload === 'long') await run(unit);
    else attempts.push(unit.attempt);
  });
  const quick = Array.from({ length: 2000 }, () => ({ kind: 'job', payload: 'quick' }) as const);
  await queue.enqueueMany([...quick, { kind: 'job', payload: 'long' }, ...quick]);
  const worker = queue.work(handler, { concurrency: 1, poll: '1h' });
  await eventually(() => expect(seen).toHaveLength(1));
  await using _other = queue.work(handler, { poll: '1h' });
  await eventually(() => expect(attempts).toHaveLength(4000));
  expect(new Set(attempts)).toEqual(new Set([1]));
  expect(seen).toHaveLength(1);
  const givenBack = await rows(
    `select 1 from pawl.queue_transition t join pawl.queue_definition d on d.id = t.queue
     where d.name = $1 and t.reason = 'claimed too far ahead' limit 1`,
    [queue.name],
  );
  expect(givenBack).toHaveLength(1);
  open();
  await queue.drain();
  await worker.stop();
});

test('after an answer to a claim that is too large to arrive in time, the next claims are smaller', async () => {
  const queue = newQueue();
  await queue.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const asked: number[] = [];
  // As if the answer with more than two jobs took longer than a worker waits.
  const disarm = faults.arm('queue.after_claim', async () => {
    const { inProgress } = await queue.stats();
    asked.push(inProgress);
    if (inProgress > 2) throw new ConnectionFailed('no answer in time', { outcome: 'unknown' });
  });
  onTestFinished(disarm);
  const attempts: number[] = [];
  const worker = queue.work(
    all((unit) => void attempts.push(unit.attempt)),
    { prefetch: 0 },
  );
  await eventually(() => expect(attempts).toHaveLength(30));
  expect(asked[0]).toBe(10);
  expect(new Set(attempts)).toEqual(new Set([1]));
  await worker.stop();
});

test('when a retry and the release of its key race, no job of the key is left behind or runs at the same time as another', async () => {
  const queue = newQueue({ attempts: 1 });
  const ids = await queue.enqueueMany(
    Array.from({ length: 60 }, (_, n) => ({ kind: 'job', payload: n, key: `k${n % 2}` }) as const),
  );
  const busy = new Set<string>();
  const failed = new Set<string>();
  let together = 0;
  const handler = all(async (unit) => {
    const key = unit.key ?? '';
    if (busy.has(key)) together += 1;
    busy.add(key);
    await new Promise((resolve) => setTimeout(resolve, 1));
    busy.delete(key);
    if (failed.has(unit.job.id)) return;
    failed.add(unit.job.id);
    throw new Error('the first time');
  });
  const workers = [queue.work(handler, { prefetch: 0 }), queue.work(handler)];
  const left = new Set(ids);
  await until('each has failed once', async () => {
    const found = await rows('select id::text from pawl.queue_dead where id = any ($1)', [[...left]]);
    await Promise.all(found.map(({ id }) => queue.retry(String(id))));
    for (const { id } of found) left.delete(String(id));
    return left.size === 0;
  });
  await queue.drain();
  await Promise.all(workers.map((worker) => worker.stop()));
  expect(together).toBe(0);
  expect(await Promise.all(ids.map(async (id) => (await queue.get(id)).status))).toEqual(ids.map(() => 'complete'));
  expect(
    await rows('select 1 from pawl.queue_key k join pawl.queue_definition d on d.id = k.queue where d.name = $1', [
      queue.name,
    ]),
  ).toEqual([]);
});

test('queues of several shards are read and changed by id alone', async () => {
  const queue = newQueue({ shards: 16 });
  const ids = await queue.enqueueMany(
    Array.from({ length: 40 }, (_, n) => ({ kind: 'job', payload: n, key: `k${n}` }) as const),
  );
  for (const [n, id] of ids.entries()) expect((await admin.get(id)).payload).toBe(n);
  expect(await admin.cancel(ids[7] ?? '')).toBe('cancelled');
  expect(await queue.stats()).toMatchObject({ new: 39, cancelled: 1 });
});

test('views show the same as the functions', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', { a: 1 }, { key: 'k' });
  expect(
    await rows('select queue, kind, key, status, priority, attempt, payload from pawl.job where id = $1', [id]),
  ).toEqual([{ queue: queue.name, kind: 'job', key: 'k', status: 'new', priority: 0, attempt: 0, payload: { a: 1 } }]);
  expect(await rows('select to_status, reason from pawl.job_history where job = $1', [id])).toEqual([
    { to_status: 'new', reason: 'enqueue' },
  ]);
  expect(await rows(`select kinds, paused_at from ${quoted('pawl', 'queue')} where name = $1`, [queue.name])).toEqual([
    { kinds: ['create', 'job', 'update'], paused_at: null },
  ]);
  const worker = queue.work(all(() => {}));
  await worker.started;
  expect(await admin.workers(queue.name)).toEqual([
    expect.objectContaining({ queue: queue.name, pid: process.pid, hold: 'lease', concurrency: 10, isLive: true }),
  ]);
  await worker.stop();
});

test('bad input is refused, and the error says what to do', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  const other = newQueue();
  await other.register();
  for (const bad of ['', '0', '-1', '1.5', '9223372036854775808', 'abc', 7, null, undefined, '1; drop table x']) {
    await expect(queue.get(bad as string)).rejects.toBeInstanceOf(InvalidInput);
    await expect(queue.cancel(bad as string)).rejects.toBeInstanceOf(InvalidInput);
  }
  await expect(queue.get('9223372036854775807')).rejects.toThrow(/there is no job 9223372036854775807/);
  await expect(queue.get('999999999')).rejects.toBeInstanceOf(NotFound);
  const strange = '999999999';
  await expect(queue.history(strange)).rejects.toBeInstanceOf(NotFound);
  await expect(queue.cancel(strange)).rejects.toBeInstanceOf(NotFound);
  await expect(queue.retry(strange)).rejects.toBeInstanceOf(NotFound);
  await expect(other.get(id)).rejects.toThrow(
    `queue "${other.name}" has no job ${id}; that one is of queue "${queue.name}"`,
  );
  await expect(admin.stats('nope')).rejects.toThrow(/queue "nope" does not exist; there are "ops 1"/);
  for (const call of ['pause', 'resume', 'drain'] as const) {
    await expect(admin[call]('nope')).rejects.toBeInstanceOf(NotFound);
  }
  await expect(queue.cancel(id, { resaon: 'x' } as object)).rejects.toThrow(/did you mean "reason"/);
  await expect(queue.cancel(id, { reason: 'x'.repeat(1001) })).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.drain({ timeout: 'soon' as '1s' })).rejects.toBeInstanceOf(InvalidInput);
  await expect(admin.enqueue('nope', 'job', 1)).rejects.toBeInstanceOf(NotFound);
  await expect(admin.enqueue(queue.name, 'nope', 1)).rejects.toBeInstanceOf(InvalidInput);
  const added = await admin.enqueue(queue.name, 'job', { by: 'hand' }, { key: 'k', priority: 2 });
  expect(await queue.get(added.id)).toMatchObject({ payload: { by: 'hand' }, key: 'k', priority: 2 });
});
