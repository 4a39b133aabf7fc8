import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Cancelled, InvalidInput, JobFailed, NotFound, TimedOut } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Unit, type Worker } from '../../../src/queue/index.ts';
import { JobWaits } from '../../../src/queue/watch/waits.ts';
import { receiptStep } from '../../../src/queue/work/transaction/statements.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20, logger: recordLog() });
});

afterAll(() => engine.stop());

const kinds = { job: {}, other: {} } as const;

function newQueue(attempts = 1, shards = 1): Queue<typeof kinds> {
  nth += 1;
  return declare(`wait ${nth}`, attempts, shards);
}

function declare(name: string, attempts = 1, shards = 1): Queue<typeof kinds> {
  return createQueue(engine, name, { kinds, shards, retry: { attempts, backoff: { kind: 'fixed', min: 1 } } });
}

async function withWorker<T>(
  queue: Queue<typeof kinds>,
  handler: (unit: Unit) => unknown,
  body: (worker: Worker) => Promise<T>,
  hold: 'lease' | 'transaction' = 'lease',
): Promise<T> {
  const worker = queue.work({ job: handler, other: handler }, { concurrency: 4, hold });
  try {
    return await body(worker);
  } finally {
    await worker.stop();
  }
}

async function count(table: string): Promise<number> {
  const [row] = await engine.query<{ n: number }>(
    statement(`test.count_${table}`, `select count(*)::int as n from pawl.${table}`),
  );
  return row?.n ?? -1;
}

/** Until the wait for so many jobs is registered in the database. */
const registered = (n: number): Promise<void> =>
  eventually(async () => expect(await count('queue_watch_part')).toBe(n));

test.for(['lease', 'transaction'] as const)('a wait gives the result of the handler, hold %s', async (hold) => {
  const queue = newQueue();
  const results = await withWorker(
    queue,
    (unit) => unit.payload,
    async () => {
      const payloads = [{ n: 1 }, 'text', 0, false, [1, 'zwei', null], 'x'.repeat(5000)];
      return Promise.all(payloads.map((payload) => queue.run('job', payload)));
    },
    hold,
  );
  expect(results).toEqual([{ n: 1 }, 'text', 0, false, [1, 'zwei', null], 'x'.repeat(5000)]);
  await registered(0);
});

test("under hold 'transaction' the statement that records the end of a job reports it, and no later look has to", async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 7);
  const wait = queue.waitFor(id, { timeout: '50s' });
  await registered(1);
  const [{ shard, number, of }] = (await engine.query(
    statement('test.job', 'select shard, id::int as number, queue as of from pawl.queue_job order by id desc limit 1'),
  )) as [{ shard: number; number: number; of: number }];
  await engine.query(statement('test.take', 'delete from pawl.queue_ready where id = $1'), [number]);
  const at = { claimedAt: new Date().toISOString(), processId: randomUUID() };
  const receipt = receiptStep({ claim: 1, worker: 1, ...at, shard, queue: of, attempt: 1, id: number });
  await engine.query(receipt.statement, [...receipt.values]);
  // No worker runs that could look.
  expect(await count('queue_watch_part')).toBe(0);
  expect(await wait).toBeNull();
});

test('a run that follows another one waits from its enqueue on, and asks for nothing, however long its job takes', async () => {
  const queue = newQueue();
  const asked = async (): Promise<unknown> =>
    engine.query(statement('test.lease', `select expires_at from pawl.queue_watch where sort = 'process'`));
  await withWorker(
    queue,
    async (unit) => {
      // A statement of the caller that waits would be answered before these are.
      for (let looks = 0; looks < 20; looks += 1) await asked();
      return unit.payload;
    },
    // A producer whose search for a worker was slow twice in a row, as on a busy server, waits as any other wait does for ten seconds: each
    // of these runs has one of its own.
    () =>
      eventually(async () => {
        const [first, second] = [declare(queue.name), declare(queue.name)];
        await first.run('job', 0);
        const before = await asked();
        expect(await second.run('job', 1)).toBe(1);
        expect(await asked()).toEqual(before);
      }),
  );
  await registered(0);
});

test('a job that ends before its id is known here is told anyway; a channel that is gone waits for nothing', async () => {
  const queue = newQueue();
  const add = async (channel: string): Promise<{ id: string; isAwaited: boolean }> => {
    const text = `select pawl.queue_add_awaited(q.id, 0::smallint, k.id, 0::smallint, '7', null, null, null, null, $2)::json as added
      from pawl.queue_definition q join pawl.queue_kind k on k.queue = q.id and k.name = 'job' where q.name = $1`;
    const [row] = await engine.query<{ added: { id: number; isAwaited: boolean } }>(statement('test.add', text), [
      queue.name,
      channel,
    ]);
    return { id: String(row?.added.id), isAwaited: row?.added.isAwaited ?? false };
  };
  await withWorker(
    queue,
    (unit) => unit.payload,
    async () => {
      await queue.run('job', 0);
      await JobWaits.for(engine).during(async (channel = '') => {
        const { id, isAwaited } = await add(channel);
        expect(isAwaited).toBe(true);
        await queue.drain();
        // The notification comes by the same connection, and this one after it.
        await queue.run('job', 1);
        const { signal } = new AbortController();
        expect(await JobWaits.for(engine).ended(queue.name, id, signal, true)).toMatchObject({ told: { result: 7 } });
      });
      expect(await add('pawl_wait_of_none')).toMatchObject({ isAwaited: false });
      await queue.drain();
    },
  );
  await registered(0);
});

test('a handler that returns nothing gives null', async () => {
  const queue = newQueue();
  expect(
    await withWorker(
      queue,
      () => undefined,
      () => queue.run('job', 1),
    ),
  ).toBeNull();
});

test('a wait that begins after the end gives the result at once', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 7);
  await withWorker(
    queue,
    (unit) => unit.payload,
    () => queue.drain(),
  );
  expect(await queue.waitFor(id)).toBe(7);
  expect(await Promise.all([queue.waitFor(id), queue.waitFor(id)])).toEqual([7, 7]);
});

test('a job that ends in error fails its wait with the error', async () => {
  const queue = newQueue(2);
  const failed = withWorker(
    queue,
    () => {
      throw new Error('no route');
    },
    () => queue.run('job', 1),
  );
  await expect(failed).rejects.toThrow(JobFailed);
  await expect(failed).rejects.toMatchObject({
    code: 'job_failed',
    message: expect.stringMatching(
      /^job \d+ \(kind "job" of queue "wait \d+"\) ended in error in attempt 2: .*no route/s,
    ),
    jobError: expect.stringContaining('no route'),
  });
});

test('a cancelled job fails its wait with the reason', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  // It may end before cancel() is answered.
  const ended = queue.waitFor(id).catch((error: unknown) => error);
  await registered(1);
  await queue.cancel(id, { reason: 'not needed' });
  expect(await ended).toBeInstanceOf(Cancelled);
  expect(String(await ended)).toContain('was cancelled: not needed');
});

test('a wait ends with its time or its signal, and the job goes on', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  await expect(queue.waitFor(id, { timeout: 50 })).rejects.toThrow(TimedOut);
  await expect(queue.waitFor(id, { timeout: 50 })).rejects.toThrow(`it is new; queue.explain('${id}') says why`);
  const stop = new AbortController();
  const waiting = queue.waitFor(id, { signal: stop.signal });
  await registered(1);
  stop.abort(new Error('enough'));
  await expect(waiting).rejects.toThrow('enough');
  await registered(0);
  expect((await queue.get(id)).status).toBe('new');
});

test('a wait for what there is not is refused', async () => {
  const queue = newQueue();
  const other = newQueue();
  await queue.register();
  const { id } = await other.enqueue('job', 1);
  await expect(queue.waitFor('987654321')).rejects.toThrow(NotFound);
  await expect(queue.waitFor(id)).rejects.toThrow(`that one is of queue "${other.name}"`);
  await expect(queue.waitFor('x')).rejects.toThrow(InvalidInput);
  await expect(queue.waitFor({ key: 'none' })).rejects.toThrow('has no job of key "none"');
  await expect(queue.waitFor(id, { timeout: -1 })).rejects.toThrow(InvalidInput);
});

test('a wait for a key waits for its newest job, in each shard', async () => {
  const queue = newQueue(1, 4);
  await queue.enqueue('job', 'first', { key: 'k' });
  await queue.enqueue('other', 'last', { key: 'k' });
  const result = await withWorker(
    queue,
    (unit) => unit.payload,
    () => queue.waitFor({ key: 'k' }),
  );
  expect(result).toBe('last');
});

test('a job of another transaction can be waited for once it is committed', async () => {
  const queue = newQueue();
  await queue.register();
  const id = await engine.transaction(async (tx) => {
    const added = await queue.enqueue('job', 1, { tx });
    await expect(queue.waitFor(added.id)).rejects.toThrow(NotFound);
    return added.id;
  });
  expect(
    await withWorker(
      queue,
      (unit) => unit.payload,
      () => queue.waitFor(id),
    ),
  ).toBe(1);
});

test('thousands wait on one connection, and leave nothing', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany(Array.from({ length: 1500 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const waiting = Promise.all(ids.map((id) => queue.waitFor(id, { timeout: '2m' })));
  waiting.catch(() => {});
  await registered(1500);
  const [listeners] = await engine.query<{ n: number }>(
    statement('test.watches', 'select count(*)::int as n from pawl.queue_watch'),
  );
  expect(listeners?.n).toBe(1);
  const results = await withWorker(
    queue,
    (unit) => unit.payload,
    () => waiting,
  );
  expect(results).toEqual(ids.map((_, n) => n));
  await registered(0);
  await eventually(async () => expect(await count('queue_watch')).toBe(0));
});

// Invariants J14.
test('a wait ends where no notification arrives', async () => {
  const silent = postgres(url, { listen: false, logger: recordLog() });
  try {
    const queue = createQueue(silent, 'silent', { kinds });
    const worker = queue.work({ job: (unit) => unit.payload, other: () => {} }, { poll: 50 });
    expect(await queue.run('job', 5)).toBe(5);
    await worker.stop();
  } finally {
    await silent.stop();
  }
});

test('a wait ends when the engine is stopped', async () => {
  const own = postgres(url, { logger: recordLog() });
  const queue = createQueue(own, 'stopped', { kinds });
  const { id } = await queue.enqueue('job', 1);
  const waiting = queue.waitFor(id, { timeout: Infinity });
  waiting.catch(() => {});
  await registered(1);
  await own.stop();
  await expect(waiting).rejects.toThrow('the engine has been stopped');
});

// Invariants J14.
test('what a dead process has left is removed', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  await engine.query(statement('test.dead', "select pawl.queue_wait('pawl_wait_dead', -1, $1::bigint[], '{}', '{}')"), [
    [id],
  ]);
  expect(await count('queue_watch_part')).toBeGreaterThan(0);
  await engine.query(statement('test.sweep', 'select pawl.queue_sweep_watches()'));
  const [left] = await engine.query(
    statement('test.left', "select 1 from pawl.queue_watch w where w.channel = 'pawl_wait_dead'"),
  );
  expect(left).toBeUndefined();
});
