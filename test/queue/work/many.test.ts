import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { LONG } from '../../support/long.ts';
import { Scene } from '../faults.ts';

const { processes, jobs } = LONG ? { processes: 10, jobs: 100_000 } : { processes: 3, jobs: 5000 };

/** A process that stood still gives back what it has not begun. That is no attempt. */
const RETURNS = ['claimed too far ahead', 'claim lost', 'handed to a worker without a free slot'];

const PART = 5000;
const part = Array.from({ length: PART }, (_, n) => ({
  kind: 'job' as const,
  payload: null,
  ...(n % 5 === 0 ? { key: `k${n % 1000}` } : {}),
}));

test(`${processes} processes run ${jobs} jobs, none of them twice`, async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const scene = await Scene.open(database.url);
  // A lease long enough for a slow machine: within it no job may run twice.
  const env = { QUIET: '1', LEASE: '60s', CONCURRENCY: '10' };
  const children = await Promise.all(Array.from({ length: processes }, () => scene.child('lease', env)));
  let enqueued = 0;
  let all: number[][] = [];
  // One that stands still may come too late for the first ones.
  while (all.length === 0 || all.some((ran) => ran.length === 0)) {
    for (let from = 0; from < jobs; from += PART) await scene.queue.enqueueMany(part);
    enqueued += jobs;
    await scene.drained(LONG ? 600_000 : 50_000);
    all = [];
    for (const child of children) {
      child.send({});
      all.push((await child.message<{ ran: number[] }>()).ran);
    }
  }
  const runs = new Map<number, number>();
  for (const id of all.flat()) runs.set(id, (runs.get(id) ?? 0) + 1);
  expect(runs.size).toBe(enqueued);
  expect([...runs].filter(([, times]) => times !== 1)).toEqual([]);
  expect(await scene.breaches()).toEqual([]);
  const { rows } = await scene.eye.client.query(
    'select reason, attempt from pawl.queue_transition where reason <> all ($1)',
    [RETURNS],
  );
  expect(rows).toEqual([]);
}, 900_000);
