import { expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../src/actor/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { startProxy } from '../support/proxy.ts';
import { openScene } from './scene.ts';

test.each([
  ['alone', false],
  ['with what it asked for beside its row', true],
])(
  'a commit on a connection that says nothing any more is made again on another, %s, and its dispatcher stops when it is told to',
  async (_how, isRich) => {
    let isSilent = false;
    const Quiet = actor('quiet', {
      initial: 'only',
      states: (state) => ({
        only: state({
          run: async (a) => {
            if (!isSilent) proxy.silence();
            isSilent = true;
            // From here on new connections are answered.
            proxy.accept();
            if (isRich) a.page({ tag: 'quiet', summary: 'seen' });
            return a.done();
          },
        }),
      }),
    });
    const scene = await openScene([Quiet]);
    const proxy = await startProxy(scene.url);
    const engine = postgres(proxy.url, { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
    const actors = createActors(engine, [Quiet]);
    const dispatcher = actors.run({ lease: '2s', poll: '100ms' });
    onTestFinished(async () => {
      await dispatcher.stop({ timeout: 0 });
      await engine.stop();
      await proxy.stop();
    });
    await dispatcher.started;
    const one = await scene.actors.create(Quiet, {});
    await until('it is final', async () => (await scene.actors.get(one)).status === 'final');
    expect(await scene.actors.pages()).toHaveLength(isRich ? 1 : 0);
    await dispatcher.stop({ timeout: '1s' });
  },
);
