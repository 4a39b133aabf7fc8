import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { InvalidInput, LeaseLost, NotFound } from '../../../src/base/errors.ts';
import { createQueueAdmin } from '../../../src/queue/index.ts';
import { eventually, until } from '../../support/eventually.ts';
import { expectOneEffectEach, HOLDS, openScene } from '../faults.ts';

describe.each(HOLDS)('hold: %s', (hold) => {
  test('jobs of a paused process are given back when an operator releases it, long before its lease is over', async () => {
    const scene = await openScene();
    const { id } = await scene.queue.enqueue('job', { ms: 1000, stops: true }, { key: 'k' });
    const paused = await scene.child(hold, { LEASE: '10m' });
    expect(await paused.message()).toEqual({ run: Number(id) });
    const admin = createQueueAdmin(scene.engine);
    const isKnown =
      'select exists (select from pawl.queue_running) or exists (select from pawl.queue_worker w where cardinality(w.holding) > 0)';
    await until('the database knows what it runs', () => scene.one(isKnown));
    await until('its process stands still', () => isStopped(paused.pid));
    const [worker] = await admin.workers();
    expect(await admin.releaseWorker(worker?.id ?? '')).toEqual({ jobs: 1, left: 0 });
    await scene.worker(hold);
    await until('the job has run elsewhere', async () => (await scene.runs(id)).attempts.length > 1);
    await scene.drained();
    const { attempts, reasons } = await scene.runs(id);
    expect(attempts).toEqual([1, 2]);
    expect(reasons).toContain('worker lost');
    // It wakes, and writes nothing. Its outcome may be refused before it is told that its lease is lost.
    paused.resume();
    const told: object = await paused.message();
    expect('stale' in told ? await paused.message() : told).toEqual({ lost: true });
    expect(await scene.one('select count(*)::int from pawl.queue_running')).toBe(0);
    await paused.kill();
    if (hold === 'transaction') await expectOneEffectEach(scene, hold, 1);
    else expect(await scene.breaches()).toEqual([]);
  });

  test('a worker that lives is told at once that it was released, and registers anew', async () => {
    const scene = await openScene();
    const admin = createQueueAdmin(scene.engine);
    const worker = await scene.worker(hold, { lease: '10m', poll: '200ms' });
    const [before] = await admin.workers();
    const lost = new Promise<unknown>((resolve) => worker.events.on('lost', ({ reason }) => resolve(reason)));
    expect(await admin.releaseWorker(before?.id ?? '')).toEqual({ jobs: 0, left: 0 });
    expect(await lost).toBeInstanceOf(LeaseLost);
    await eventually(async () => {
      const live = (await admin.workers()).filter(({ isLive }) => isLive);
      expect(live.map(({ id }) => id)).not.toContain(before?.id);
      expect(live).toHaveLength(1);
    });
    await scene.enqueue(3);
    await scene.drained();
  });
});

test('a worker that does not exist cannot be released', async () => {
  const scene = await openScene();
  const admin = createQueueAdmin(scene.engine);
  await expect(admin.releaseWorker('4711')).rejects.toThrow(NotFound);
  await expect(admin.releaseWorker('host:1')).rejects.toThrow(InvalidInput);
});

/** Whether the kernel has stopped the process. */
function isStopped(pid: number): boolean {
  return /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}
