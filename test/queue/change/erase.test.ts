import { afterAll, beforeAll, expect, test } from 'vitest';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';
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

const kinds = { job: {}, sum: { coalesce: 'all' } } as const;
type Any = Queue<typeof kinds>;

function newQueue(): Any {
  nth += 1;
  return createQueue(engine, `erase ${nth}`, { kinds, retry: { attempts: 1 } });
}

async function run(queue: Any, handler: (unit: Unit) => unknown): Promise<void> {
  const worker = queue.work({ job: handler, sum: handler });
  await queue.drain();
  await worker.stop();
}

/** Every row of the schema in which a word stands. */
async function traces(word: string): Promise<string[]> {
  const { rows } = await session.client.query<{ name: string }>(
    `select c.relname as name from pg_class c where c.relnamespace = 'pawl'::regnamespace and c.relkind = 'r' order by 1`,
  );
  const found = await Promise.all(
    rows.map(async ({ name }) => {
      const n = Number(
        await session.one(`select count(*) from pawl.${name} t where t::text like '%' || $1 || '%'`, [word]),
      );
      return n > 0 ? [name] : [];
    }),
  );
  return found.flat();
}

test('nothing of what a job said is left: payload, progress, result, errors, tags, key', async () => {
  const queue = newQueue();
  const failed = await queue.enqueue('job', 'Sesame', { key: 'Sesame' });
  const done = await queue.enqueue('job', { open: 'Sesame' });
  await run(queue, async (unit) => {
    await unit.progress('Sesame is opening');
    if (unit.job.id === failed.id) throw new Error('Sesame does not open');
    return 'Sesame is open';
  });
  expect(await traces('Sesame')).toEqual(['queue_dead', 'queue_job', 'queue_output', 'queue_transition']);
  await queue.erase(failed.id);
  await queue.erase(done.id);
  expect(await traces('Sesame')).toEqual([]);
  await expect(queue.get(failed.id)).rejects.toBeInstanceOf(NotFound);
  await expect(queue.erase(failed.id)).rejects.toBeInstanceOf(NotFound);
});

test('an error that many have in common stays with the others, whichever of them is erased', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany(Array.from({ length: 6 }, () => ({ kind: 'job', payload: 1 }) as const));
  await run(queue, () => {
    throw new Error('out of paper');
  });
  for (const at of [0, 3, 5, 1, 4]) {
    await queue.erase(ids[at] ?? '');
    await expect(queue.history(ids[at] ?? '')).rejects.toBeInstanceOf(NotFound);
    const moves = await queue.history(ids[2] ?? '');
    expect(moves).toHaveLength(3);
    expect(moves.at(-1)?.error).toContain('out of paper');
  }
});

test('the result of a unit stays with its other jobs', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'sum', payload, key: 'k' }) as const));
  await run(queue, () => 'six');
  await queue.erase(ids[0] ?? '');
  for (const at of [1, 2]) expect((await queue.get(ids[at] ?? '')).result).toBe('six');
  await queue.erase(ids[1] ?? '');
  expect((await queue.get(ids[2] ?? '')).result).toBe('six');
});

test('one that waits never runs, and the jobs behind it in its key do; one in progress is refused', async () => {
  const queue = newQueue();
  const work = gate();
  const seen: unknown[] = [];
  const handler = async ({ payload }: Unit): Promise<void> => {
    seen.push(payload);
    await work.opened;
  };
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'job', payload, key: 'k' }) as const));
  const worker = queue.work({ job: handler, sum: handler }, { prefetch: 0 });
  await eventually(() => expect(seen).toEqual([1]));
  const erased: unknown = await queue.erase(ids[0] ?? '').catch((error: unknown) => error);
  expect(erased).toBeInstanceOf(Conflict);
  expect(erased).toMatchObject({ message: expect.stringContaining('is in progress, so it cannot be erased') });
  const later = await queue.enqueue('job', 4, { key: 'k' });
  await queue.erase(later.id);
  work.open();
  await queue.drain();
  await worker.stop();
  expect(seen).toEqual([1, 2, 3]);
});

test('erasing is part of your transaction, and a function in SQL', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  await expect(
    engine.transaction(async (tx) => {
      await queue.erase({ key: 'k' }, { tx });
      throw new Error('roll it back');
    }),
  ).rejects.toThrow('roll it back');
  expect((await queue.get(id)).status).toBe('new');
  expect(await session.one('select pawl.erase($1)', [JSON.stringify({ id })])).toEqual({ id, status: 'erased' });
  await expect(queue.get(id)).rejects.toBeInstanceOf(NotFound);
});

test('purge erases what a query finds, and retryAll makes it new; what is in progress stays', async () => {
  const queue = newQueue();
  await queue.enqueueMany(
    Array.from({ length: 250 }, (_, n) => ({ kind: 'job', payload: n % 2 === 0 ? 'even' : 'odd' }) as const),
  );
  await run(queue, ({ payload }) => {
    if (payload === 'odd') throw new Error('odd');
  });
  expect(await queue.retryAll('status:error')).toEqual({ done: 125, left: 0 });
  expect(await queue.stats()).toMatchObject({ new: 125, error: 0 });
  expect(await queue.retryAll('even')).toEqual({ done: 0, left: 125 });
  expect(await createQueueAdmin(engine).purge(queue.name, 'even')).toEqual({ done: 125, left: 0 });
  expect(await queue.purge('status:new')).toEqual({ done: 125, left: 0 });
  expect(await queue.purge('')).toEqual({ done: 0, left: 0 });
  expect(await queue.stats()).toMatchObject({ new: 0, ready: 0, error: 0, cancelled: 0 });
  await expect(queue.purge('status:nwe')).rejects.toBeInstanceOf(InvalidInput);
});

test('cancelAll cancels what a query finds, and tells the handlers of what runs', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'job', payload, tags: ['acme'] }) as const));
  await queue.enqueue('job', 4);
  const [first, second] = await queue.claim({ limit: 2 });
  await second?.complete();
  expect(await queue.cancelAll('tag:acme', { reason: 'gone' })).toEqual({ done: 2, left: 1 });
  expect(await first?.extend('1m')).toMatchObject({ isCancelled: true, reason: 'gone' });
  expect(await queue.get(ids[2] ?? '')).toMatchObject({ status: 'cancelled', error: 'gone' });
  expect(await queue.stats()).toMatchObject({ new: 1, cancelled: 1 });
});

test('a purge that was ended goes on with the next call', async () => {
  const queue = newQueue();
  await queue.enqueueMany(Array.from({ length: 250 }, () => ({ kind: 'job', payload: 1 }) as const));
  const ending = new AbortController();
  const ended = queue.purge('status:new', { signal: ending.signal });
  ending.abort(new Error('enough'));
  await expect(ended).rejects.toThrow('enough');
  const { new: rest } = await queue.stats();
  expect(await queue.purge('status:new')).toEqual({ done: rest, left: 0 });
});
