import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Worker, type WorkOptions } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

// Parts of a queue: a kind, a key, a tag.

let database: FreshDatabase;
let engine: PostgresEngine;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 30, logger: recordLog() });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

const kinds = { send: {}, bill: {} } as const;
type Mail = Queue<typeof kinds>;

function newQueue(): Mail {
  made += 1;
  return createQueue(engine, `partly ${made}`, { kinds });
}

/** Starts a worker that notes the payloads of what it runs. */
async function start(queue: Mail, options: WorkOptions): Promise<{ ran: unknown[]; worker: Worker }> {
  const ran: unknown[] = [];
  const note = ({ payload }: { payload: unknown }): void => void ran.push(payload);
  const worker = queue.work({ send: note, bill: note }, { poll: '200ms', lease: '10s', ...options });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await worker.started;
  return { ran, worker };
}

const setAside = (queue: Mail): Promise<number> => queue.stats().then(({ delayed }) => delayed);

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  const options = { hold, concurrency: 3 };

  test('jobs of a paused kind wait, whenever they were enqueued, and the others go on', async () => {
    const queue = newQueue();
    await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'send', payload })));
    await queue.pause({ kind: 'send' });
    const { ran } = await start(queue, options);
    await queue.enqueue('send', 4);
    await queue.enqueue('bill', 5);
    await eventually(() => expect(ran).toEqual([5]));
    await eventually(async () => expect(await setAside(queue)).toBe(4));
    expect(ran).toEqual([5]);
    await queue.resume({ kind: 'send' });
    await eventually(() => expect(new Set(ran)).toEqual(new Set([1, 2, 3, 4, 5])));
    expect((await queue.stats()).pausedParts).toEqual([]);
  });

  test('what is enqueued after pause() has returned does not start, while a worker is at work', async () => {
    const queue = newQueue();
    const { ran } = await start(queue, options);
    for (let round = 0; round < 8; round += 1) {
      await queue.enqueue('send', `before ${round}`);
      await queue.pause({ kind: 'send' });
      await queue.enqueue('send', `after ${round}`);
      await queue.enqueue('bill', `bill ${round}`);
      await eventually(() => expect(ran).toContain(`bill ${round}`));
      expect(ran).not.toContain(`after ${round}`);
      await queue.resume({ kind: 'send' });
      await eventually(() => expect(ran).toEqual(expect.arrayContaining([`before ${round}`, `after ${round}`])));
    }
  });

  test('a paused job holds its place in its key: those behind it wait, and the order is kept', async () => {
    const queue = newQueue();
    await queue.pause({ kind: 'send' });
    const { ran } = await start(queue, options);
    await queue.enqueue('bill', 1, { key: 'k' });
    await queue.enqueue('send', 2, { key: 'k' });
    await queue.enqueue('bill', 3, { key: 'k' });
    await queue.enqueue('bill', 'other', { key: 'l' });
    await eventually(() => expect(new Set(ran)).toEqual(new Set([1, 'other'])));
    await eventually(async () => expect(await setAside(queue)).toBe(1));
    await queue.enqueue('bill', 4, { key: 'k' });
    await queue.enqueue('bill', 'last', { key: 'l' });
    await eventually(() => expect(ran).toContain('last'));
    await queue.resume({ kind: 'send' });
    await eventually(() => expect(ran).toHaveLength(6));
    expect(ran.filter((payload) => typeof payload === 'number')).toEqual([1, 2, 3, 4]);
  });

  test('a key and a tag can be paused, and what is named together has to apply together', async () => {
    const queue = newQueue();
    await queue.pause({ key: 'acme' });
    await queue.pause({ tag: 'slow', kind: 'send' });
    const { ran } = await start(queue, options);
    await queue.enqueue('send', 'of acme', { key: 'acme' });
    await queue.enqueue('send', 'slow', { tags: ['new', 'slow'] });
    await queue.enqueue('bill', 'slow bill', { tags: ['slow'] });
    await queue.enqueue('send', 'plain');
    await eventually(() => expect(new Set(ran)).toEqual(new Set(['plain', 'slow bill'])));
    await eventually(async () => expect(await setAside(queue)).toBe(2));
    await queue.resume({ key: 'acme' });
    await eventually(() => expect(ran).toContain('of acme'));
    expect(ran).not.toContain('slow');
    // Another part, which is not paused.
    await queue.resume({ tag: 'slow' });
    await queue.enqueue('bill', 'next');
    await eventually(() => expect(ran).toContain('next'));
    expect(ran).not.toContain('slow');
    await queue.resume({ kind: 'send', tag: 'slow' });
    await eventually(() => expect(ran).toContain('slow'));
  });

  test('a job that two parts hold runs when both are resumed, and has lost no attempt', async () => {
    const queue = newQueue();
    await queue.pause({ kind: 'send' });
    await queue.pause({ tag: 'acme' });
    const { ran } = await start(queue, options);
    const { id } = await queue.enqueue('send', 'both', { tags: ['acme'] });
    await eventually(async () => expect(await setAside(queue)).toBe(1));
    await queue.resume({ kind: 'send' });
    await queue.enqueue('send', 'free');
    await eventually(() => expect(ran).toEqual(['free']));
    await eventually(async () => expect(await setAside(queue)).toBe(1));
    expect((await queue.get(id)).attempt).toBe(0);
    await queue.resume({ tag: 'acme' });
    await eventually(() => expect(ran).toEqual(['free', 'both']));
    await queue.drain();
    expect(await queue.get(id)).toMatchObject({ status: 'complete', attempt: 1 });
  });

  test('many paused jobs ahead do not stop the others', async () => {
    const queue = newQueue();
    await queue.pause({ kind: 'send' });
    // More than one claim takes: a lane takes one, and a look-ahead begins with sixteen.
    const many = hold === 'lease' ? 3000 : 400;
    await queue.enqueueMany(Array.from({ length: many }, (_, payload) => ({ kind: 'send', payload })));
    await queue.enqueue('bill', 'behind');
    const { ran } = await start(queue, options);
    await eventually(() => expect(ran).toEqual(['behind']));
    await queue.resume({ kind: 'send' });
    await eventually(() => expect(ran).toHaveLength(many + 1));
  });
});

test('stats, list and explain show which parts are paused, and a job that waits for one can be cancelled', async () => {
  const queue = newQueue();
  await queue.pause({ kind: 'send', key: 'acme', tag: 'slow' });
  await queue.pause({ kind: 'send', key: 'acme', tag: 'slow' });
  const part = { kind: 'send', key: 'acme', tag: 'slow', since: expect.any(Date) };
  expect(await queue.stats()).toMatchObject({ paused: false, pausedParts: [part] });
  const { id } = await queue.enqueue('send', 1, { key: 'acme', tags: ['slow'] });
  const why = { code: 'part_paused', text: expect.stringContaining('kind "send", key "acme", tag "slow" of queue') };
  expect((await queue.explain(id)).reasons).toContainEqual(expect.objectContaining(why));
  const { ran } = await start(queue, {});
  await eventually(async () => expect(await setAside(queue)).toBe(1));
  expect((await queue.explain(id)).reasons[0]).toMatchObject(why);
  const { id: behind } = await queue.enqueue('bill', 2, { key: 'acme' });
  // While the worker's poll looks at it, explain says that a claim holds it.
  const whyBehind = async (): Promise<unknown> => (await queue.explain(behind)).reasons[0];
  await eventually(async () => expect(await whyBehind()).toMatchObject({ code: 'behind_job', job: id }));
  expect((await queue.get(id)).runAt).toBeNull();
  expect((await queue.history(id)).map(({ reason }) => reason)).toContain(
    'paused: kind "send", key "acme", tag "slow"',
  );
  await queue.cancel(id);
  await eventually(() => expect(ran).toEqual([2]));
});

test('a job that is set aside just after its part was resumed is brought back by the workers', async () => {
  const queue = newQueue();
  await queue.pause({ kind: 'send' });
  const { ran } = await start(queue, {});
  await queue.enqueue('send', 'late');
  await eventually(async () => expect(await setAside(queue)).toBe(1));
  // As if the worker had set it aside after the resume: no call brings it back.
  await engine.query(statement('test.forget', 'update pawl.queue_definition set paused_parts = null where name = $1'), [
    queue.name,
  ]);
  await eventually(() => expect(ran).toEqual(['late']));
});

test('a claim by a call does not get jobs of a paused part, and gets those behind them', async () => {
  const queue = newQueue();
  await queue.enqueueMany(Array.from({ length: 30 }, (_, payload) => ({ kind: 'send', payload })));
  await queue.enqueueMany(['a', 'b'].map((payload) => ({ kind: 'bill', payload })));
  await queue.pause({ kind: 'send' });
  const units = await queue.claim({ limit: 5 });
  expect(units.map(({ payload }) => payload)).toEqual(['a', 'b']);
  for (const unit of units) await unit.complete();
  await queue.resume({ kind: 'send' });
  expect((await queue.claim({ limit: 5 })).map(({ payload }) => payload)).toEqual([0, 1, 2, 3, 4]);
});

test('a part needs a name, a kind that exists, and at most 99 others', async () => {
  const queue = newQueue();
  await expect(queue.pause({})).rejects.toThrow(InvalidInput);
  await expect(queue.resume({})).rejects.toThrow(InvalidInput);
  await expect(queue.pause({ kind: 'sned' as 'send' })).rejects.toThrow(NotFound);
  for (let nth = 0; nth < 100; nth += 1) await queue.pause({ key: `k${nth}` });
  await expect(queue.pause({ key: 'one more' })).rejects.toThrow(Conflict);
  await queue.resume({ key: 'k50' });
  await queue.pause({ key: 'one more' });
  expect((await queue.stats()).pausedParts).toHaveLength(100);
});

test('a job that is handed over after a resume begins at once, though the worker has claimed nothing since the pause', async () => {
  const queue = newQueue();
  const { ran } = await start(queue, { poll: '10m' });
  await queue.pause({ kind: 'send' });
  const { id } = await queue.enqueue('send', 'before');
  await eventually(async () => expect(await setAside(queue)).toBe(1));
  await queue.cancel(id);
  await queue.resume({ kind: 'send' });
  const offers = statement(
    'test.offers',
    'select 1 from pawl.queue_offer o join pawl.queue_definition q on q.id = o.queue where q.name = $1',
  );
  await eventually(async () => expect(await engine.query(offers, [queue.name])).toHaveLength(1));
  using handed = probe.watch('queue.handed');
  const after = await queue.enqueue('send', 'after');
  await handed.next();
  await eventually(() => expect(ran).toEqual(['after']));
  const reasons = (await queue.history(after.id)).map(({ reason }) => reason);
  expect(reasons.filter((reason) => reason?.startsWith('paused'))).toEqual([]);
});
