import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Unit } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { gate } from '../contract/fixture.ts';

// The next claim makes jobs ready whose time has come. That must neither break the order of a key nor delay other jobs of the
// same moment.

let database: FreshDatabase;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 40 });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

/** A claim makes 1,000 jobs ready, and of each of its keys so many more. */
const MORE = 1100;

const kinds = { update: { coalesce: 'all' }, single: {} } as const;

function newQueue(name: string): Queue<typeof kinds> {
  return createQueue(engine, name, { kinds });
}

describe.each(['lease', 'transaction'] as const)('with hold: %s', (hold) => {
  test('jobs of a key that are due at the same time run in the order they were enqueued', async () => {
    const queue = newQueue(`due together ${hold}`);
    const seen = new Map<string, number[]>();
    const note = (unit: Unit): void => {
      const list = seen.get(unit.key ?? '') ?? [];
      seen.set(unit.key ?? '', [...list, ...unit.jobs.map(({ id }) => Number(id))]);
    };
    const workers = Array.from({ length: 3 }, () =>
      queue.work({ update: note, single: note }, { hold, concurrency: 4, poll: '50ms' }),
    );
    await Promise.all(workers.map(({ started }) => started));
    // More jobs than one claim makes ready, so that several claims take part.
    const keys = Array.from({ length: 20 }, (_, n) => `key ${n}`);
    const runAt = new Date(Date.now() + 1500);
    const jobs = Array.from({ length: 2 * MORE }, (_, n) => ({
      kind: 'update' as const,
      payload: { n },
      key: keys[n % keys.length],
      runAt,
    }));
    await queue.enqueueMany(jobs);
    await until('all are done', () => [...seen.values()].flat().length >= jobs.length);
    for (const worker of workers) await worker.stop();
    for (const [key, ids] of seen) expect(ids, key).toEqual(ids.toSorted((a, b) => a - b));
  });

  test.for(['single', 'update'] as const)(
    'a job without a delay does not overtake a due job of its key, whatever number of jobs is due (kind %s)',
    async (kind) => {
      const queue = newQueue(`overtaken ${hold} ${kind}`);
      const soon = Date.now() + 300;
      // More jobs than one claim makes ready, and due before the one that matters.
      const others = { kind: 'single', payload: null, priority: 10, runAt: new Date(soon) } as const;
      await queue.enqueueMany(Array.from({ length: MORE }, () => others));
      const hot = { kind: 'update', payload: null, key: 'hot', priority: 5, runAt: new Date(soon + 1) } as const;
      const [first = ''] = await queue.enqueueMany([
        { kind, payload: null, key: 'k', priority: 5, runAt: new Date(soon + 100) },
        // A key with more due jobs than one claim makes ready.
        ...Array.from({ length: MORE }, () => hot),
      ]);
      await until('all are due', () => Date.now() > soon + 200);
      const second = await queue.enqueue(kind, null, { key: 'k', priority: -10, runAt: new Date(0) });
      const last = await queue.enqueue('update', null, { key: 'hot', priority: -10 });
      const seen: string[] = [];
      const hots: number[] = [];
      const note = (unit: Unit): void => {
        if (unit.key === 'k') seen.push(...unit.jobs.map(({ id }) => id));
        if (unit.key === 'hot') hots.push(...unit.jobs.map(({ id }) => Number(id)));
      };
      const worker = queue.work({ update: note, single: note }, { hold, concurrency: 4, poll: '50ms' });
      await until('both have run', () => seen.length === 2);
      await until('the hot key has run', () => hots.length === MORE + 1);
      await worker.stop();
      expect(seen).toEqual([first, second.id]);
      expect(hots.at(-1)).toBe(Number(last.id));
      expect(hots).toEqual(hots.toSorted((a, b) => a - b));
    },
  );

  test('a slow handler does not delay other jobs of the same moment', async () => {
    const queue = newQueue(`one is slow ${hold}`);
    const over = gate();
    const seen: unknown[] = [];
    const slow = async (unit: Unit): Promise<void> => {
      seen.push(unit.key);
      await over.opened;
    };
    const runAt = new Date(Date.now() + 500);
    for (let n = 0; n < 10; n += 1) await queue.enqueue('single', {}, { key: `key ${n}`, runAt });
    const worker = queue.work({ update: slow, single: slow }, { hold, concurrency: 10 });
    const all = until('all ten run at the same time', () => seen.length === 10);
    try {
      await all;
    } finally {
      over.open();
      await worker.stop();
    }
  });
});
