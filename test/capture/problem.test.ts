import { expect, onTestFinished, test } from 'vitest';
import { createCapture } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
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
