import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { eventually, until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { most } from '../../support/long.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { expectOneEffectEach, FAULTS, HOLDS, openScene, proxied } from '../faults.ts';

// Half-open connections: the other side is gone without closing them.

test.for(most(HOLDS, 'transaction'))(
  'a worker whose connections all die silently works again within seconds (hold: %s)',
  async (hold) => {
    const scene = await openScene();
    const { proxy, options } = await proxied(scene);
    const worker = await scene.worker(hold, { lease: '4s', concurrency: 8 }, options);
    const errors: unknown[] = [];
    worker.events.on('error', ({ error }) => errors.push(error));
    await scene.enqueue(20);
    await scene.drained();
    proxy.stall();
    const since = awakeMs();
    const { id } = await scene.queue.enqueue('job', {});
    await until('it has run', async () => (await scene.runs(id)).attempts.length > 0);
    // The lease, a poll, and time for a busy machine.
    expect(awakeMs() - since).toBeLessThan(4_000 + 200 + 20_000);
    expect(errors.every((error) => error instanceof ConnectionFailed)).toBe(true);
    await scene.drained();
    await expectOneEffectEach(scene, hold, 41);
  },
);

test.for(HOLDS)('when connections die silently under load, every job takes effect once (hold: %s)', async (hold) => {
  const scene = await openScene();
  const { proxy, options } = await proxied(scene);
  await scene.worker(hold, { lease: '2s' }, options);
  for (let round = 0; round < 2; round += 1) {
    await scene.enqueue(50);
    await until(
      'some have run',
      async () => (await scene.one<number>('select count(*)::int from test_run')) > round * 100 + 10,
    );
    proxy.stall();
    await scene.enqueue(1);
    await scene.drained();
  }
  await expectOneEffectEach(scene, hold, 204);
  expect(await scene.disorder()).toEqual([]);
});

test.for(most(HOLDS, 'lease'))(
  'a worker and its engine stop though every connection is dead (hold: %s)',
  async (hold) => {
    const scene = await openScene();
    const { proxy, options } = await proxied(scene);
    const engine = postgres(options.url, { max: 12, logger: recordLog(), stopTimeoutMs: 1_000 });
    const worker = createQueue(engine, 'faults', FAULTS).work(
      { job: () => {}, fragile: () => {} },
      { hold, lease: '20s', poll: '200ms', concurrency: 4 },
    );
    await worker.started;
    proxy.stall();
    await scene.queue.enqueueMany(Array.from({ length: 20 }, () => ({ kind: 'job', payload: {} })));
    const since = awakeMs();
    await worker.stop({ timeout: '1s' });
    await engine.stop();
    // The worker's time and 10 s, the engine's time and 2 s, and 4 s for a busy machine.
    expect(awakeMs() - since).toBeLessThan(1_000 + 10_000 + 1_000 + 2_000 + 4_000);
    await eventually(() => expect(proxy.open).toBe(0));
  },
);

test('a worker that is stopped while it starts on a dead connection does not hang, and leaves nothing behind', async () => {
  const scene = await openScene();
  const { proxy, options } = await proxied(scene);
  const engine = postgres(options.url, { max: 12, logger: recordLog(), stopTimeoutMs: 1_000 });
  const queue = createQueue(engine, 'faults', FAULTS);
  await engine.query(statement('test.one', 'select 1'));
  proxy.stall();
  const worker = queue.work({ job: () => {}, fragile: () => {} });
  const since = awakeMs();
  await worker.stop({ timeout: '1s' });
  await engine.stop();
  expect(awakeMs() - since).toBeLessThan(10_000);
  await expect(worker.started).rejects.toThrow();
  await eventually(() => expect(proxy.open).toBe(0));
});

test.for(HOLDS)(
  'a worker finds its jobs within two polls though the server has lost the LISTEN of a live connection (hold: %s)',
  async (hold) => {
    const scene = await openScene();
    const connect = vi.spyOn(pg.Client.prototype, 'connect');
    await scene.worker(hold, { poll: '500ms', lease: '20s' });
    await scene.enqueue(2);
    await scene.drained();
    const mine = connect.mock.contexts.filter((one) => one instanceof pg.Client);
    connect.mockRestore();
    let forgotten = 0;
    for (const client of mine) {
      const { rows } = await client.query('select pg_listening_channels()').catch(() => ({ rows: [] }));
      forgotten += rows.length;
      if (rows.length > 0) await client.query('discard all');
    }
    expect(forgotten).toBeGreaterThan(0);
    for (let n = 0; n < 3; n += 1) {
      const since = awakeMs();
      const { id } = await scene.queue.enqueue('job', {});
      await until('it has run', async () => (await scene.runs(id)).attempts.length > 0);
      // 15 s more for a busy machine.
      expect(awakeMs() - since).toBeLessThan(2 * 625 + 15_000);
      expect((await scene.runs(id)).attempts).toEqual([1]);
    }
  },
);

test('statements of a handler in its own transaction may take longer than the lease', async () => {
  const scene = await openScene();
  const engine = postgres(scene.url, { max: 6, logger: recordLog() });
  const attempts: number[] = [];
  const worker = createQueue(engine, 'faults', FAULTS).work(
    {
      job: async (unit) => {
        attempts.push(unit.attempt);
        await unit.tx.query(statement('test.sleep', 'select pg_sleep(4)'));
        await unit.tx.client.query({ text: 'select pg_sleep(4)' });
      },
      fragile: () => {},
    },
    { hold: 'transaction', concurrency: 1, lease: '3s', poll: '200ms' },
  );
  onTestFinished(async () => {
    await worker.stop({ timeout: '100ms' });
    await engine.stop();
  });
  await worker.started;
  await scene.queue.enqueue('job', {});
  await scene.drained();
  expect(attempts).toEqual([1]);
});
