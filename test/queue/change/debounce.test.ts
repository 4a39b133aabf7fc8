import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import type { Duration } from '../../../src/base/time/duration.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type KindOptions, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 60, logger: recordLog() });
  session = await SqlSession.open(url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
});

function newQueue<const J extends KindOptions>(save: J): Queue<{ save: J; other: object }> {
  nth += 1;
  return createQueue(engine, `debounce ${nth}`, {
    kinds: { save, other: {} },
    retry: { attempts: 2, backoff: { kind: 'fixed', min: 1 } },
  });
}

/** Makes a job as old as that: its enqueue and the time of its delay. */
async function age(id: string, interval: string): Promise<void> {
  await session.client.query(
    'update pawl.queue_job set created_at = created_at - $2::interval, run_at = run_at - $2::interval where id = $1',
    [id, interval],
  );
  await session.client.query('update pawl.queue_delayed set run_at = run_at - $2::interval where id = $1', [
    id,
    interval,
  ]);
}

/** What the next claim of a worker begins with. */
function bringDue(queue: { name: string }): Promise<unknown> {
  return session.one('select pawl.queue_bring_due(d.id, 0::smallint) from pawl.queue_definition d where d.name = $1', [
    queue.name,
  ]);
}

async function place(id: string): Promise<string> {
  return session.one(
    `select case when exists (select from pawl.queue_ready r where r.id = $1) then 'ready'
      when exists (select from pawl.queue_delayed d where d.id = $1) then 'delayed' else 'elsewhere' end`,
    [id],
  );
}

// Invariants J7.
test.each(['latest', 'all'] as const)(
  "2,000 saves by 50 producers make one or two runs, coalesce: '%s'",
  async (coalesce) => {
    const queue = newQueue({ debounce: { wait: '2s', max: '10m' }, coalesce });
    const runs: { newest: unknown; n: number }[] = [];
    const worker = queue.work({
      save: ({ payload, jobs }) => void runs.push({ newest: payload, n: jobs.length }),
      other: () => {},
    });
    await worker.started;
    const last = { id: '0', payload: '' };
    await Promise.all(
      Array.from({ length: 50 }, async (_, producer) => {
        for (let n = 0; n < 40; n += 1) {
          const payload = `${producer} ${n}`;
          const { id, duplicate } = await queue.enqueue('save', payload, { key: 'document' });
          expect(duplicate).toBe(false);
          if (BigInt(id) > BigInt(last.id)) Object.assign(last, { id, payload });
        }
      }),
    );
    await queue.drain({ delayed: true });
    await worker.stop();
    expect(runs.length).toBeLessThanOrEqual(2);
    expect(runs.at(-1)?.newest).toBe(last.payload);
    if (coalesce === 'all') expect(runs.reduce((sum, { n }) => sum + n, 0)).toBe(2000);
    expect(await breaches(session.client)).toEqual([]);
  },
);

test('jobs wait until their key gets some rest, and then run together', async () => {
  const queue = newQueue({ debounce: '1h' });
  const first = await queue.enqueue('save', 1, { key: 'k' });
  const second = await queue.enqueue('save', 2, { key: 'k' });
  await age(first.id, '70 min');
  await age(second.id, '50 min');
  await bringDue(queue);
  expect([await place(first.id), await place(second.id)]).toEqual(['delayed', 'delayed']);
  await age(second.id, '11 min');
  await bringDue(queue);
  expect([await place(first.id), await place(second.id)]).toEqual(['ready', 'ready']);
});

test('a key that gets no rest runs all that it has after the longest wait', async () => {
  const queue = newQueue({ debounce: { wait: '1h', max: '3h' } });
  const ids = [
    await queue.enqueue('save', 1, { key: 'k' }),
    await queue.enqueue('save', 2, { key: 'k' }),
    await queue.enqueue('save', 3, { key: 'k' }),
  ].map(({ id }) => id);
  const [first = '', second = ''] = ids;
  await age(first, '2 h 50 min');
  await age(second, '2 h');
  await bringDue(queue);
  expect(await Promise.all(ids.map(place))).toEqual(['delayed', 'delayed', 'delayed']);
  // It was put off to the end of its longest wait, and no further.
  await age(first, '11 min');
  await bringDue(queue);
  expect(await Promise.all(ids.map(place))).toEqual(['ready', 'ready', 'ready']);
});

test('other keys and other kinds of the key do not wait with it', async () => {
  const queue = newQueue({ debounce: '1h' });
  const held = await queue.enqueue('save', 'held', { key: 'k' });
  await queue.enqueue('other', 'of the key', { key: 'k' });
  const other = await queue.enqueue('save', 'of another key', { key: 'other' });
  await age(other.id, '2 h');
  const seen: unknown[] = [];
  const note = ({ payload }: { payload: unknown }): void => void seen.push(payload);
  const worker = queue.work({ save: note, other: note });
  await eventually(() => expect(new Set(seen)).toEqual(new Set(['of another key', 'of the key'])));
  await worker.stop();
  expect((await queue.get(held.id)).status).toBe('new');
});

// Invariants J7.
test('a save that is committed late runs after it, and none is lost', async () => {
  const queue = newQueue({ debounce: '50ms', coalesce: 'all' });
  const seen: unknown[] = [];
  const worker = queue.work({
    save: ({ jobs }) => void seen.push(...jobs.map(({ payload }) => payload)),
    other: () => {},
  });
  await engine.transaction(async (tx) => {
    await queue.enqueue('save', 'late', { key: 'k', tx });
    await queue.enqueue('save', 'early', { key: 'k' });
    await eventually(() => expect(seen).toEqual(['early']));
  });
  await eventually(() => expect(seen).toEqual(['early', 'late']));
  await worker.stop();
});

test('a unit that failed backs off as any other, and takes with it what came meanwhile', async () => {
  const queue = newQueue({ debounce: '20ms', coalesce: 'all' });
  const units: unknown[][] = [];
  const worker = queue.work({
    save: ({ jobs, attempt }) => {
      units.push(jobs.map(({ payload }) => payload));
      if (attempt === 1 && units.length === 1) throw new Error('again');
    },
    other: () => {},
  });
  await queue.enqueueMany([1, 2].map((payload) => ({ kind: 'save', payload, key: 'k' }) as const));
  await queue.drain({ delayed: true });
  await worker.stop();
  expect(units).toEqual([
    [1, 2],
    [1, 2],
  ]);
});

test('retry runs one now that waits for its key to get some rest', async () => {
  const queue = newQueue({ debounce: '1h' });
  const { id } = await queue.enqueue('save', 1, { key: 'k' });
  expect(await queue.retry({ key: 'k' })).toBe('new');
  expect(await place(id)).toBe('ready');
});

test('it needs a key, and sets the time of its jobs', async () => {
  const queue = newQueue({ debounce: '1h' });
  await expect(queue.enqueue('save', 1)).rejects.toThrow(/needs a key/);
  await expect(queue.enqueue('save', 1, { key: 'k', runAt: new Date() })).rejects.toThrow(/leave runAt and delay out/);
  await expect(queue.enqueueMany([{ kind: 'save', payload: 1, key: 'k', runAt: new Date() }])).rejects.toBeInstanceOf(
    InvalidInput,
  );
  await queue.register();
  await expect(
    session.one('select pawl.enqueue($1)', [
      JSON.stringify({ queue: queue.name, kind: 'save', key: 'k', delay: '1 s' }),
    ]),
  ).rejects.toThrow(/leave runAt and delay out/);
});

test('what becomes due between two statements of a claim is not brought without the others of its key', async () => {
  const queue = newQueue({ debounce: '1h' });
  const { id } = await queue.enqueue('save', 1, { key: 'k' });
  await age(id, '2h');
  const [kind] = (await session.client.query<{ queue: number }>('select queue from pawl.queue_job where id = $1', [id]))
    .rows;
  await session.one('select pawl.queue_promote($1::smallint, 0::smallint, 1000)', [kind?.queue]);
  await session.one(`select pawl.queue_promote_keys($1::smallint, 0::smallint, '{k}', 1000)`, [kind?.queue]);
  expect(await place(id)).toBe('delayed');
  await bringDue(queue);
  expect(await place(id)).toBe('ready');
});

test('a delayed job notifies sleeping workers only where none is due as early', async () => {
  const queue = newQueue({});
  await queue.register();
  const id = await session.one<number>('select pawl.queue_id($1)', [queue.name]);
  const worker = await session.addWorker(id);
  let told = 0;
  session.client.on('notification', ({ payload }) => {
    if (payload === String(id)) told += 1;
  });
  await session.client.query('listen pawl_queue');
  // The server sends notifications before the next answer.
  const heard = async (enqueue: Promise<unknown>): Promise<number> => {
    const before = told;
    await enqueue;
    await session.client.query('select 1');
    return told - before;
  };
  const later = (delay: Duration): Promise<number> => heard(queue.enqueue('save', 1, { key: 'k', delay }));
  const bySql = (delay: string): Promise<number> =>
    heard(
      session.one('select pawl.enqueue($1)', [JSON.stringify({ queue: queue.name, kind: 'save', key: 'k', delay })]),
    );
  expect([await later('2h'), await later('3h'), await bySql('4h')]).toEqual([1, 0, 0]);
  expect([await later('1h'), await later('90m'), await bySql('30m'), await bySql('31m')]).toEqual([1, 0, 1, 0]);
  // One that may run now always does, whatever is due.
  expect([await heard(queue.enqueue('save', 1, { key: 'k' })), await bySql('-1h')]).toEqual([1, 1]);
  await session.client.query('unlisten pawl_queue');
  await session.client.query('delete from pawl.queue_worker where id = $1', [worker]);
});

test('one that was put off by hand keeps its time, though others of its key come and run', async () => {
  const queue = newQueue({ debounce: { wait: '1h', max: '3h' } });
  const first = await queue.enqueue('save', 1, { key: 'k' });
  const second = await queue.enqueue('save', 2, { key: 'k' });
  const runAt = new Date(Date.now() + 24 * 3_600_000);
  await queue.update(first.id, { runAt });
  await age(second.id, '50 min');
  await queue.enqueue('save', 3, { key: 'k' });
  // The key gets no rest, and then some.
  await age(second.id, '20 min');
  await bringDue(queue);
  await age(second.id, '2 h');
  await bringDue(queue);
  expect([await place(first.id), await place(second.id)]).toEqual(['delayed', 'ready']);
  expect((await queue.get(first.id)).runAt).toEqual(runAt);
});
