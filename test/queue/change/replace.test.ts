import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput, LockNotAvailable } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type KindOptions, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20, logger: recordLog() });
});

afterAll(() => engine.stop());

const unique = { while: 'waiting', replace: true } as const;

function newQueue<const J extends KindOptions>(more: J): Queue<{ job: J & { unique: typeof unique } }> {
  nth += 1;
  const backoff = { kind: 'fixed', min: '1h' } as const;
  return createQueue(engine, `replace ${nth}`, { kinds: { job: { unique, ...more } }, retry: { backoff } });
}

const IN_AN_HOUR = new Date(Date.now() + 3_600_000);

test('the job that waits gets the payload, and what else the enqueue names; the rest stays', async () => {
  const queue = newQueue({});
  const first = await queue.enqueue('job', 'v1', { key: 'k', runAt: IN_AN_HOUR, priority: 7, tags: ['a'] });
  expect(await queue.enqueue('job', 'v2', { key: 'k' })).toEqual({ id: first.id, status: 'new', duplicate: true });
  expect(await queue.get(first.id)).toMatchObject({ payload: 'v2', runAt: IN_AN_HOUR, priority: 7, tags: ['a'] });
  await queue.enqueue('job', 'v3', { key: 'k', delay: '0s', priority: 3, tags: ['b'], attempts: 2 });
  const [unit, ...others] = await queue.claim({ limit: 5 });
  expect(others).toEqual([]);
  expect(unit).toMatchObject({ payload: 'v3', attempt: 1 });
  expect(await queue.get(first.id)).toMatchObject({ priority: 3, tags: ['b'], attempts: 2 });
});

test('behind a job that runs another one waits, and that is the one that is replaced', async () => {
  const queue = newQueue({});
  const first = await queue.enqueue('job', 1, { key: 'k' });
  const [unit] = await queue.claim();
  const second = await queue.enqueue('job', 2, { key: 'k' });
  expect(second).toMatchObject({ status: 'new', duplicate: false });
  expect(await queue.enqueue('job', 3, { key: 'k' })).toMatchObject({ id: second.id, duplicate: true });
  await unit?.complete();
  expect((await queue.get(first.id)).payload).toBe(1);
  const [next] = await queue.claim();
  expect(next?.payload).toBe(3);
});

test('a job that waits for its next attempt is replaced, and may be due now', async () => {
  const queue = newQueue({});
  const { id } = await queue.enqueue('job', 'wrong', { key: 'k' });
  const [unit] = await queue.claim();
  await unit?.fail(new Error('wrong'));
  expect(await queue.enqueue('job', 'right', { key: 'k', delay: '0s' })).toMatchObject({ id, duplicate: true });
  const [again] = await queue.claim();
  expect(again).toMatchObject({ payload: 'right', attempt: 2 });
});

test('one that a transaction holds has begun, before its claim is committed', async () => {
  const queue = newQueue({});
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  const [begun, work] = [gate(), gate()];
  const seen: unknown[] = [];
  const job = async ({ payload }: { readonly payload: unknown }): Promise<void> => {
    seen.push(payload);
    begun.open();
    await work.opened;
  };
  const worker = queue.work({ job }, { hold: 'transaction', concurrency: 1 });
  await begun.opened;
  const second = await queue.enqueue('job', 2, { key: 'k' });
  expect(second.duplicate).toBe(false);
  expect(second.id).not.toBe(id);
  work.open();
  await queue.drain();
  await worker.stop();
  expect(seen).toEqual([1, 2]);
});

test('behind a job that a transaction holds for long it is refused, says what to do, and changes nothing', async () => {
  const queue = newQueue({});
  await queue.enqueue('job', 1, { key: 'k' });
  const [begun, work] = [gate(), gate()];
  const seen: unknown[] = [];
  const job = async ({ payload }: { readonly payload: unknown }): Promise<void> => {
    seen.push(payload);
    begun.open();
    await work.opened;
  };
  const worker = queue.work({ job }, { hold: 'transaction', concurrency: 1 });
  await begun.opened;
  const { id } = await queue.enqueue('job', 2, { key: 'k' });
  const refused = await queue.enqueue('job', 3, { key: 'k' }).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(LockNotAvailable);
  expect(refused).toMatchObject({
    message: expect.stringMatching(
      `job ${id} waits with an earlier payload .* coalesce: 'latest' instead of replace`,
    ) as string,
  });
  expect(await queue.get(id)).toMatchObject({ status: 'new', payload: 2 });
  work.open();
  await queue.drain();
  await worker.stop();
  expect(seen).toEqual([1, 2]);
});

test('a replacement that is rolled back leaves the job as it is', async () => {
  const queue = newQueue({});
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  const failed = engine.transaction(async (tx) => {
    expect((await queue.enqueue('job', 2, { key: 'k', tx })).id).toBe(id);
    expect((await queue.get(id, { tx })).payload).toBe(2);
    throw new Error('no');
  });
  await expect(failed).rejects.toThrow('no');
  expect((await queue.get(id)).payload).toBe(1);
});

test('of many producers of one key, while a worker runs: no payload but the newest is the last, and never two wait', async () => {
  const queue = newQueue({});
  const seen: unknown[] = [];
  const worker = queue.work({
    job: ({ payload }) => {
      seen.push(payload);
    },
  });
  for (let round = 0; round < 5; round += 1) {
    await Promise.all(Array.from({ length: 20 }, (_, i) => queue.enqueue('job', `${round}.${i}`, { key: 'k' })));
    expect((await queue.stats()).new).toBeLessThanOrEqual(1);
    await queue.enqueue('job', `${round} newest`, { key: 'k' });
  }
  await queue.drain();
  await worker.stop();
  expect(seen.at(-1)).toBe('4 newest');
  expect(new Set(seen).size).toBe(seen.length);
});

test('enqueueMany and pawl.enqueue replace as well, by key or by paths', async () => {
  const queue = newQueue({ unique: { ...unique, by: ['user'] } });
  const jobs = [1, 2, 1].map((user, i) => ({ kind: 'job' as const, payload: { user, i } }));
  const ids = await queue.enqueueMany(jobs);
  expect(ids.duplicates).toEqual([2]);
  expect((await queue.get(String(ids[0]))).payload).toEqual({ user: 1, i: 2 });
  const request = { queue: queue.name, kind: 'job', payload: { user: 2, i: 3 }, tags: ['sql'] };
  await engine.query(statement('test.replace', 'select pawl.enqueue($1::jsonb)', { prepare: false }), [
    JSON.stringify(request),
  ]);
  expect(await queue.get(String(ids[1]))).toMatchObject({ payload: { user: 2, i: 3 }, tags: ['sql'] });
  await eventually(async () => expect((await queue.stats()).new).toBe(2));
});

test('replace that could lose a payload, or change none, is refused', async () => {
  for (const rule of [
    { replace: true },
    { while: 'ever', replace: true },
    { by: 'payload', while: 'waiting', replace: true },
  ]) {
    expect(() => newQueue({ unique: rule as never })).toThrow(InvalidInput);
  }
  const queue = newQueue({});
  await queue.register();
  for (const rule of [{ replace: true }, { while: 'waiting', replace: 1 }]) {
    const request = { queue: queue.name, kind: 'job', key: 'k', payload: 1, unique: rule };
    const text = statement('test.replace_bad', 'select pawl.enqueue($1::jsonb)', { prepare: false });
    await expect(engine.query(text, [JSON.stringify(request)])).rejects.toThrow(/unique\.replace/);
  }
});
