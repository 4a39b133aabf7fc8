import { afterAll, beforeAll, expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { type BatchProgress, createQueue, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 30, logger: recordLog() });
});

afterAll(() => engine.stop());

const kinds = { job: { attempts: 1 }, called: {} } as const;
type Jobs = Queue<typeof kinds>;

function newQueue(shards = 1): Jobs {
  nth += 1;
  return createQueue(engine, `batch ${nth}`, { kinds, shards });
}

interface Calls {
  readonly seen: [unknown, unknown][];
}

async function working<T>(
  queue: Jobs,
  body: (calls: Calls) => Promise<T>,
  run: (unit: Unit) => unknown = fails,
  hold: 'lease' | 'transaction' = 'lease',
): Promise<T> {
  const seen: [unknown, unknown][] = [];
  const called = (unit: Unit): void => void seen.push([unit.payload, unit.job.meta?.['batch']]);
  const workers = [1, 2].map(() => queue.work({ job: run, called }, { concurrency: 4, hold }));
  try {
    return await body({ seen });
  } finally {
    for (const worker of workers) await worker.stop();
  }
}

const fails = (unit: Unit): unknown => {
  if (unit.payload === 'fails') throw new Error('it fails');
  return unit.payload;
};

const ALL = {
  onComplete: { kind: 'called', payload: 'complete' },
  onError: { kind: 'called', payload: 'error' },
  onDone: { kind: 'called', payload: 'done' },
} as const;

function many(n: number, payload: unknown = 1): { kind: 'job'; payload: unknown }[] {
  return Array.from({ length: n }, () => ({ kind: 'job', payload }));
}

async function isDone(batch: { progress(): Promise<BatchProgress> }): Promise<BatchProgress> {
  return eventually(async () => {
    const progress = await batch.progress();
    expect(progress.doneAt).not.toBeNull();
    return progress;
  });
}

test.for(['lease', 'transaction'] as const)(
  'the callbacks of a batch are enqueued once, when all its jobs have completed, hold %s',
  async (hold) => {
    const queue = newQueue(3);
    await working(
      queue,
      async ({ seen }) => {
        const batch = await queue.batch(ALL);
        await batch.enqueueMany(many(300));
        await batch.enqueue({ kind: 'job', payload: 2, key: 'k' });
        await batch.seal();
        const progress = await isDone(batch);
        expect(progress).toMatchObject({
          total: 301,
          outstanding: 0,
          complete: 301,
          errors: 0,
          cancelled: 0,
          problem: null,
        });
        await queue.drain();
        const about = { id: batch.id, total: 301, errors: 0, cancelled: 0 };
        expect(new Set(seen)).toEqual(
          new Set([
            ['complete', about],
            ['done', about],
          ]),
        );
        expect(seen).toHaveLength(2);
      },
      fails,
      hold,
    );
  },
);

test('a batch is of the transaction in which it is made, and so are its jobs', async () => {
  const queue = newQueue();
  await queue.register();
  const undone = engine.transaction(async (tx) => {
    const batch = await queue.batch(ALL, { tx });
    await batch.enqueueMany(many(2), { tx });
    throw new Error(batch.id);
  });
  const id = await undone.then(
    () => '',
    (error: Error) => error.message,
  );
  await expect(queue.openBatch(id).progress()).rejects.toThrow(NotFound);
  await working(queue, async () => {
    const batch = await queue.batch(ALL);
    await batch.enqueueMany(many(3));
    // A transaction that adds and is rolled back leaves nothing to wait for; a seal waits until one that adds is over.
    const rolledBack = engine.transaction(async (tx) => {
      await batch.enqueueMany(many(2), { tx });
      throw new Error('undone');
    });
    await expect(rolledBack).rejects.toThrow('undone');
    let sealing: Promise<void> | undefined;
    await engine.transaction(async (tx) => {
      await batch.enqueueMany(many(4), { tx });
      sealing = batch.seal();
      await queue.drain();
    });
    await sealing;
    expect(await isDone(batch)).toMatchObject({ total: 7, complete: 7 });
  });
});

test('a seal that waits for a transaction does not keep the jobs of its batch from being settled', async () => {
  const queue = newQueue();
  const batch = await queue.batch(ALL);
  await batch.enqueueMany(many(3));
  const waits = statement(
    'test.seal_waits',
    `select exists (select from pg_locks l join pg_database d on d.oid = l.database
       where d.datname = current_database() and l.locktype = 'advisory' and not l.granted) as is`,
  );
  await engine
    .transaction(async (tx) => {
      await batch.enqueueMany(many(1), { tx });
      const sealing = batch.seal();
      await eventually(async () => expect(await engine.query(waits)).toEqual([{ is: true }]));
      await working(queue, () => queue.drain());
      return { sealing };
    })
    .then(({ sealing }) => sealing);
  await working(queue, async () => expect(await isDone(batch)).toMatchObject({ total: 4, complete: 4 }));
});

test('a callback that cannot be enqueued keeps no job from being settled, and is told', async () => {
  const queue = newQueue();
  const batch = await queue.batch(ALL);
  await engine.query(
    statement(
      'test.break',
      `update pawl.queue_watch set callbacks = '{"onDone":{"queue":"no such","kind":"job"}}' where id = $1::bigint`,
    ),
    [batch.id],
  );
  await batch.enqueueMany(many(2));
  await batch.seal();
  await working(queue, async () => {
    expect((await isDone(batch)).problem).toBe(
      'onDone was not enqueued: queue "no such" does not exist; create it with createQueue(…) and register() it first',
    );
    expect((await queue.stats()).inProgress).toBe(0);
  });
});
