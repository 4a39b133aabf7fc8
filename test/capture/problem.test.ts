import { getEventListeners } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { createCapture } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { expectToSayProblems } from '../support/failing/outage.ts';
import { recordLog } from '../support/log.ts';
import { startProxy } from '../support/proxy.ts';
import { build, openScene, TARGET, VIA } from './scene.ts';

test('consumers of a capture say why they do not go on, and nothing while they do', async () => {
  const { url } = await openScene();
  const proxy = await startProxy(url);
  const engine = postgres(proxy.url, { max: 12, logger: recordLog(), stopTimeoutMs: 500 });
  const capture = createCapture(engine, { entity: 'watched', root: 'orders', via: VIA });
  capture.project({ ...TARGET, name: 'watched', build });
  capture.follow({ name: 'copy', handler: async () => {} });
  await capture.apply();
  const worker = capture.run({ poll: '50ms' });
  onTestFinished(async () => {
    proxy.accept();
    await worker.stop();
    await engine.stop();
    await proxy.stop();
  });
  expect(worker.problem).toBe('it has not started yet');
  await worker.started;
  await expectToSayProblems(worker, proxy);
});

test.each([
  ['the captured database', 0],
  ['the database that it writes to', 1],
])('a consumer ends with the engine of %s, and says so once', async (_which, nth) => {
  const { url } = await openScene();
  const logger = recordLog();
  const engines = [postgres(url, { max: 12, logger }), postgres((await openScene()).url, { logger })] as const;
  onTestFinished(async () => {
    for (const engine of engines) await engine.stop();
  });
  const [engine, to] = engines;
  const capture = createCapture(engine, { entity: 'forgotten', root: 'orders', via: VIA });
  const projection = capture.project({ ...TARGET, name: 'forgotten', build, to });
  const follower = capture.follow({ name: 'copy', handler: async () => {}, to });
  await capture.apply();
  const workers = [projection.run({ poll: '20ms', concurrency: 2 }), follower.run({ poll: '20ms' })];
  onTestFinished(() => Promise.all(workers.map((worker) => worker.stop())).then(() => {}));
  await Promise.all(workers.map(({ started }) => started));
  await engines[nth]?.stop();
  if (nth === 1) await engine.session((session) => session.run("update orders set status = 'late' where id = 1"));
  await until('they have ended', () => workers.every(({ problem }) => problem === 'it is stopping'));
  await Promise.all(workers.map((worker) => worker.stop()));
  expect(logger.count('warn', /stop consumers before their engine/)).toBe(2);
  expect(logger.count('warn', /keeps trying/)).toBe(0);
});

test('the signal of run() stops projections and followers, and keeps none of them', async () => {
  const { capture, engine } = await openScene();
  capture.follow({ name: 'copy', handler: async () => {} });
  await capture.apply();
  const abort = new AbortController();
  const early = capture.run({ signal: abort.signal });
  await early.started;
  await early.stop();
  expect(getEventListeners(abort.signal, 'abort')).toEqual([]);
  const follower = capture.followers[0]?.run({ signal: abort.signal });
  const all = capture.run({ signal: abort.signal });
  onTestFinished(() => all.stop().then(() => follower?.stop()));
  // Of the follower, and of the projection and the follower of all.
  expect(getEventListeners(abort.signal, 'abort')).toHaveLength(3);
  abort.abort();
  expect([all.problem, follower?.problem]).toEqual(['it is stopping', 'it is stopping']);
  expect(engine.isStopped).toBe(false);
});
