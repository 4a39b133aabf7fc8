import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { LONG } from '../../support/long.ts';
import { Scene } from '../faults.ts';

const { processes, jobs } = LONG ? { processes: 10, jobs: 100_000 } : { processes: 3, jobs: 5000 };

test(`${processes} processes run ${jobs} jobs, none of them twice`, async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const scene = await Scene.open(database.url);
  // A lease long enough for a slow machine: within it no job may run twice.
  const env = { QUIET: '1', LEASE: '60s', CONCURRENCY: '10' };
  const children = await Promise.all(Array.from({ length: processes }, () => scene.child('lease', env)));
  for (let from = 0; from < jobs; from += 5000) {
    const part = Array.from({ length: 5000 }, (_, n) => ({
      kind: 'job' as const,
      ...(n % 5 === 0 ? { key: `k${n % 1000}` } : {}),
    }));
    await scene.queue.enqueueMany(part.map((job) => ({ ...job, payload: null })));
  }
  await scene.drained(LONG ? 600_000 : 30_000);
  const runs = new Map<number, number>();
  let busy = 0;
  for (const child of children) {
    child.send({});
    const { ran } = await child.message<{ ran: number[] }>();
    if (ran.length > 0) busy += 1;
    for (const id of ran) runs.set(id, (runs.get(id) ?? 0) + 1);
  }
  expect(busy).toBe(processes);
  expect(runs.size).toBe(jobs);
  expect([...runs].filter(([, times]) => times !== 1)).toEqual([]);
  expect(await scene.breaches()).toEqual([]);
  expect(await scene.one('select count(*)::int from pawl.queue_transition')).toBe(0);
}, 900_000);
