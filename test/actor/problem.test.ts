import { expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../src/actor/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { expectToSayProblems } from '../support/failing/outage.ts';
import { recordLog } from '../support/log.ts';
import { startProxy } from '../support/proxy.ts';
import { openScene } from './scene.ts';

test('a dispatcher says why it can claim nothing, and nothing while it can', async () => {
  const Still = actor('still', {
    initial: 'only',
    states: (state) => ({ only: state({ run: async (a) => a.done() }) }),
  });
  const scene = await openScene([Still]);
  const proxy = await startProxy(scene.url);
  const engine = postgres(proxy.url, { logger: recordLog(), stopTimeoutMs: 500 });
  const dispatcher = createActors(engine, [Still]).run({ lease: '6s', poll: '200ms' });
  onTestFinished(async () => {
    proxy.accept();
    await dispatcher.stop({ timeout: 0 });
    await engine.stop();
    await proxy.stop();
  });
  expect(dispatcher.problem).toBe('it has not started yet');
  await dispatcher.started;
  await expectToSayProblems(dispatcher, proxy);
});
