import { randomBytes } from 'node:crypto';
import { expect, onTestFinished, test } from 'vitest';
import { LeaseLost } from '../../../src/base/errors.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Worker, type WorkerEvents } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { type RecordedLog, recordLog } from '../../support/log.ts';
import { FAULTS, HOLDS, type Hold, openScene, type Scene } from '../faults.ts';

const ONCE = { ...FAULTS, kinds: { ...FAULTS.kinds, fragile: { attempts: 1, maxBytes: 16_000_000 } } } as const;

/** Workers of one process, and the failures that they report. */
async function listen(
  scene: Scene,
  hold: Hold,
  workers = 1,
): Promise<{ told: WorkerEvents['failed'][]; log: RecordedLog }> {
  const log = recordLog();
  const engine = postgres(scene.url, { max: 12, logger: log });
  const told: WorkerEvents['failed'][] = [];
  const all: Worker[] = [];
  for (let n = 0; n < workers; n += 1) {
    const worker = createQueue(engine, 'faults', ONCE).work(
      { job: () => {}, fragile: () => {} },
      { hold, lease: '1s', poll: '200ms', concurrency: 4 },
    );
    worker.events.on('failed', (event) => told.push(event));
    all.push(worker);
  }
  onTestFinished(async () => {
    await Promise.all(all.map((worker) => worker.stop({ timeout: '1s' })));
    await engine.stop();
  });
  await Promise.all(all.map(({ started }) => started));
  return { told, log };
}

for (const hold of HOLDS) {
  test.for([undefined, 'k'])(
    `a job whose worker died in its last attempt emits one event, in the process that finds it: hold ${hold}, key %s`,
    async (key) => {
      const scene = await openScene();
      const payload = { ms: 600_000 };
      const { id } = await scene.queue.enqueue('fragile', payload, key === undefined ? {} : { key });
      const victim = await scene.child(hold, { FRAGILE: '1' });
      await scene.begins(id);
      // With hold: transaction the job is new again at once, and would run again before the worker is found dead.
      await scene.queue.pause();
      await victim.kill();
      const { told } = await listen(scene, hold, 2);
      const workers = 'select count(*)::int from pawl.queue_worker';
      await until('the dead worker is gone', async () => (await scene.one(workers)) === 2);
      await scene.queue.resume();
      await until('the event is emitted', () => told.length > 0);
      // The event may come before the end of the job is written.
      await until('it has ended', async () => (await scene.queue.get(id)).status === 'error');
      const job = await scene.queue.get(id);
      expect(told).toHaveLength(1);
      for (const event of told) {
        const { unit, to, error } = event;
        expect([job.status, job.error]).toEqual([to, error]);
        expect(error).toMatch(/^the worker was lost during/);
        expect(unit.jobs).toEqual([event.job]);
        expect(JSON.parse(JSON.stringify(event.job))).toMatchObject({ id, queue: 'faults', kind: 'fragile', payload });
        expect(unit.key).toBe(key ?? null);
        expect(Math.abs(event.job.enqueuedAt.getTime() - job.enqueuedAt.getTime())).toBeLessThanOrEqual(1);
        if (hold === 'lease') expect([unit.attempt, unit.processId]).toEqual([1, job.processId]);
        await expect(unit.progress('too late')).rejects.toThrow(LeaseLost);
        await expect(scene.engine.transaction((tx) => unit.guard(tx))).rejects.toThrow(LeaseLost);
      }
    },
  );
}

test('however many jobs ended with a worker, one answer lists a bounded number of them, and counts the rest', async () => {
  const scene = await openScene();
  const producer = createQueue(scene.engine, 'faults', ONCE);
  await producer.register();
  const { queue } = await scene.row();
  const lose = async (jobs: readonly { kind: 'fragile'; payload: string }[]): Promise<number[]> => {
    await producer.enqueueMany(jobs);
    const worker = await scene.eye.addWorker(queue);
    // Of large jobs each claim returns as many as fit.
    for (const _ of jobs.slice(0, 3)) await scene.eye.claim(queue, worker, { limit: 5000, rows: 5000 });
    await scene.eye.expire(worker);
    const ended = await scene.one<{ jobs: { payload: string }[]; more: number }>(
      'select ended from pawl.queue_rescue($1::smallint)',
      [queue],
    );
    expect(ended.jobs.map(({ payload }) => payload)).toEqual(
      jobs.slice(0, ended.jobs.length).map((job) => job.payload),
    );
    return [ended.jobs.length, ended.more];
  };
  const many = Array.from({ length: 1200 }, (_, n) => ({ kind: 'fragile' as const, payload: String(n) }));
  expect(await lose(many)).toEqual([1000, 200]);
  const noise = randomBytes(4_500_000).toString('hex');
  const large = [1, 2, 3].map((n) => ({ kind: 'fragile' as const, payload: `${n}${noise}` }));
  expect(await lose(large.slice(0, 1))).toEqual([1, 0]);
  expect(await lose(large)).toEqual([2, 1]);
});

test('the log says how many more jobs ended than it lists', async () => {
  const scene = await openScene();
  const queue = createQueue(scene.engine, 'faults', ONCE);
  await queue.register();
  await queue.enqueueMany(Array.from({ length: 1100 }, () => ({ kind: 'fragile' as const, payload: {} })));
  const row = await scene.row();
  const worker = await scene.eye.addWorker(row.queue);
  await scene.eye.claim(row.queue, worker, { limit: 5000, rows: 5000 });
  await scene.eye.expire(worker);
  const { told, log } = await listen(scene, 'lease');
  await until('the log has the line', () => told.length >= 1000);
  expect(told).toHaveLength(1000);
  expect(log.count('warn', /^queue worker: 100 more jobs of lost workers ended in error/)).toBe(1);
});
