import { hostname } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';

let engine: PostgresEngine;
let nth = 0;
const here = `${hostname()}:${process.pid}`;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

const kinds = { job: {}, create: {}, update: { after: ['create'] } } as const;

function newQueue(attempts = 5): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `explain ${nth}`, { kinds, retry: { attempts, backoff: { kind: 'fixed', min: '1h' } } });
}

const all = (handler: (unit: Unit) => unknown): Record<keyof typeof kinds, (unit: Unit) => unknown> => ({
  job: handler,
  create: handler,
  update: handler,
});

/** Runs until the worker stops. */
const forever = (unit: Unit): Promise<never> =>
  new Promise((_, reject) => unit.signal.addEventListener('abort', () => reject(new Error('told to stop'))));

async function codes(queue: Queue<typeof kinds>, id: string): Promise<string[]> {
  return (await queue.explain(id)).reasons.map(({ code }) => code);
}

test('a job without a worker says that one is missing', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  expect(await queue.explain(id)).toEqual({
    status: 'new',
    reasons: [{ code: 'no_worker', text: `no worker of queue "${queue.name}" is running; start one` }],
  });
});

test('a delayed job says when it is due, and a job of a paused queue says that the queue is paused', async () => {
  const queue = newQueue();
  const runAt = new Date(Date.now() + 3_600_000);
  const later = await queue.enqueue('job', 1, { runAt });
  expect((await queue.explain(later.id)).reasons[0]).toMatchObject({
    code: 'scheduled',
    until: runAt,
    text: expect.stringMatching(/^scheduled for later: until .*, in (1h|59m)/),
  });
  await queue.pause();
  const { id } = await queue.enqueue('job', 1);
  expect((await queue.explain(id)).reasons[0]).toMatchObject({ code: 'queue_paused', since: expect.any(Date) });
  expect(await codes(queue, later.id)).toEqual(['scheduled', 'queue_paused', 'no_worker']);
});

test('a job whose time has come, and which no worker has polled since, says so', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1, { delay: '1h' });
  for (const table of ['queue_job', 'queue_delayed']) {
    const text = `update pawl.${table} set run_at = clock_timestamp() where id = $1`;
    await engine.query(statement('test.due', text, { prepare: false }), [id]);
  }
  expect((await queue.explain(id)).reasons).toMatchObject([
    { code: 'scheduled', text: 'it is due, and the next poll of a worker makes it ready' },
    { code: 'no_worker' },
  ]);
});

test('a job with attempts, a timeout, a backoff or an end of its own says so, until it has completed', async () => {
  const queue = newQueue();
  const expiresAt = new Date(Date.now() + 3_600_000);
  const asked = { attempts: 2, timeout: '30s', backoff: { kind: 'fixed', min: '5s' }, expiresAt } as const;
  const { id } = await queue.enqueue('job', 1, asked);
  const text = `its enqueue set options of its own: 2 attempts, a timeout of 30s, a fixed backoff of 5s, an end at ${expiresAt.toISOString()} unless it has begun`;
  expect((await queue.explain(id)).reasons.at(-1)).toEqual({ code: 'own_options', text });
  const once = await queue.enqueue('job', 2, { attempts: 1, tags: ['blue'] });
  expect((await queue.explain(once.id)).reasons.at(-1)?.text).toMatch(/: 1 attempt$/);
  const tagged = await queue.enqueue('job', 3, { tags: ['blue'] });
  expect(await codes(queue, tagged.id)).not.toContain('own_options');
  const worker = queue.work(all(() => undefined));
  await queue.drain();
  await worker.stop();
  expect(await codes(queue, id)).toEqual(['complete']);
});

test('a job of a key names the job before it and the state of that', async () => {
  const queue = newQueue();
  const first = await queue.enqueue('job', 1, { key: 'k' });
  const second = await queue.enqueue('job', 2, { key: 'k' });
  expect((await queue.explain(second.id)).reasons[0]).toMatchObject({
    code: 'behind_job',
    job: first.id,
    text: `behind job ${first.id} of its key "k", which is ready and has not started`,
  });
  let fail = (): void => {};
  const failing = new Promise<never>((_, reject) => {
    fail = () => reject(new Error('the printer is on fire'));
  });
  failing.catch(() => {});
  const worker = queue.work(
    all(() => failing),
    { prefetch: 0 },
  );
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('in-progress'));
  const third = await queue.enqueue('job', 3, { key: 'k' });
  await eventually(async () =>
    expect((await queue.explain(third.id)).reasons[0]).toMatchObject({
      code: 'behind_job',
      job: first.id,
      worker: here,
    }),
  );
  expect((await queue.explain(first.id)).reasons).toEqual([
    expect.objectContaining({ code: 'in_progress', worker: here, since: expect.any(Date) }),
  ]);
  fail();
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('new'));
  const [backing] = (await queue.explain(first.id)).reasons;
  expect(backing).toMatchObject({ code: 'backing_off', until: expect.any(Date) });
  expect(backing?.text).toMatch(/^backing off until .* after attempt 1 failed: Error: the printer is on fire$/);
  expect((await queue.explain(third.id)).reasons[0]).toMatchObject({
    code: 'behind_job',
    job: first.id,
    text: expect.stringContaining('which waits until'),
  });
  await worker.stop();
});

test('a job whose kind comes after another kind names the job that it waits for', async () => {
  const queue = newQueue();
  const create = await queue.enqueue('create', 1, { key: 'k', runAt: new Date(Date.now() + 3_600_000) });
  const update = await queue.enqueue('update', 1, { key: 'k' });
  const worker = queue.work(all(forever));
  await eventually(async () => expect((await queue.stats()).parked).toBe(1));
  expect((await queue.explain(update.id)).reasons[0]).toEqual({
    code: 'waits_for_kind',
    job: create.id,
    kind: 'create',
    text: `kind "update" comes after kind "create", and job ${create.id} of that kind and key is delayed`,
  });
  await worker.stop({ timeout: 0 });
});

test('when all workers are busy, a job says how many jobs are ahead of it', async () => {
  const queue = newQueue();
  const worker = queue.work(all(forever), { concurrency: 2, prefetch: 0 });
  const ids = await queue.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  await eventually(async () => expect((await queue.stats())['in-progress']).toBe(2));
  expect((await queue.explain(ids[19] ?? '')).reasons).toEqual([
    { code: 'workers_busy', ahead: 17, text: 'all 2 slots of 1 worker are busy, and 17 jobs are ahead of it' },
  ]);
  await worker.stop({ timeout: 0 });
});

test('a job that an open transaction holds says so, and names the connection', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  const worker = queue.work(all(forever), { hold: 'transaction', concurrency: 1 });
  await eventually(async () =>
    expect((await queue.explain(id)).reasons[0]).toMatchObject({ code: 'held', worker: here }),
  );
  await worker.stop({ timeout: 0 });
  const other = newQueue();
  const alone = await other.enqueue('job', 1);
  await engine.transaction(async (tx) => {
    await tx.client.query({ text: 'select 1 from pawl.queue_ready where id = $1 for update', values: [alone.id] });
    expect(await codes(other, alone.id)).toEqual(['held', 'no_worker']);
  });
  expect(await codes(other, alone.id)).toEqual(['no_worker']);
});

test('a job that an open transaction of a dead process holds says so, and so does the next one of its key', async () => {
  const queue = newQueue();
  const [id, next] = [await queue.enqueue('job', 1, { key: 'k' }), await queue.enqueue('job', 2, { key: 'k' })];
  const worker = queue.work(all(forever), { hold: 'transaction', concurrency: 1, lease: '60s' });
  await eventually(async () =>
    expect((await queue.explain(next.id)).reasons[0]).toMatchObject({
      code: 'behind_job',
      job: id.id,
      worker: here,
      text: expect.stringContaining('which runs in an open transaction at'),
    }),
  );
  // As if its heartbeat had stopped a while ago.
  const past = `update pawl.queue_worker set beat_at = now() - interval '2 minutes', expires_at = now() - interval '1 minute' where $1::bigint = any (holding)`;
  await engine.query(statement('test.past', past), [id.id]);
  for (const one of [id, next]) {
    expect((await queue.explain(one.id)).reasons[0]?.text).toMatch(/no heartbeat since .*end that transaction/);
  }
  await worker.stop({ timeout: 0 });
});

test('a settled job says how it ended', async () => {
  const queue = newQueue(1);
  const [bad, good, gone] = [
    await queue.enqueue('job', 'bad'),
    await queue.enqueue('job', 'good'),
    await queue.enqueue('job', 'gone'),
  ];
  await queue.cancel(gone.id, { reason: 'not needed' });
  const worker = queue.work(
    all((unit) => {
      if (unit.payload === 'bad') throw new Error('no such customer');
    }),
  );
  await queue.drain();
  await worker.stop();
  expect((await queue.explain(bad.id)).reasons[0]?.text).toMatch(
    /^ended in error since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z: Error: no such customer; retry/,
  );
  expect((await queue.explain(good.id)).reasons[0]).toMatchObject({ code: 'complete' });
  expect((await queue.explain(gone.id)).reasons[0]?.text).toMatch(/^cancelled since .*: not needed$/);
  await expect(createQueueAdmin(engine).explain('999999999')).rejects.toBeInstanceOf(NotFound);
});

test('a job of a kind that the worker does not know says so, and loses no attempt', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('create', 1);
  const older = createQueue(engine, queue.name, { kinds: { job: {} } }).work({ job: () => {} });
  await eventually(async () =>
    expect((await queue.explain(id)).reasons[0]).toMatchObject({
      code: 'no_handler',
      text: expect.stringContaining('no handler for kind "create"'),
      until: expect.any(Date),
    }),
  );
  expect(await queue.get(id)).toMatchObject({ status: 'new', attempt: 0 });
  await older.stop();
});
