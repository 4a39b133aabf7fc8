import { expect, onTestFinished, test } from 'vitest';
import { actor, createActors, type Dispatcher } from '../../../src/actor/index.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { startProxy } from '../../support/proxy.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { openScene } from '../scene.ts';

test.each([
  ['alone', false],
  ['with effects', true],
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

test('a dispatcher stops within its bound though what it asks is accepted and never answered: at rest, with bodies, while it starts', async () => {
  let begun = 0;
  const Endless = actor('endless', {
    initial: 'only',
    states: (state) => ({
      only: state({
        run: (a) => {
          begun += 1;
          return new Promise((resolve) => a.signal.addEventListener('abort', () => resolve(a.done()), { once: true }));
        },
      }),
    }),
  });
  const scene = await openScene([Endless]);
  await scene.actors.register();
  const proxy = await startProxy(scene.url);
  onTestFinished(() => proxy.stop());
  const channels = [{ name: 'log', deliver: () => Promise.resolve() }];
  const open = (): { engine: PostgresEngine; dispatcher: Dispatcher } => {
    const engine = postgres(proxy.url, { max: 8, logger: recordLog(), stopTimeoutMs: 1_000 });
    return { engine, dispatcher: createActors(engine, [Endless]).run({ poll: '100ms', channels }) };
  };
  const busy = open();
  await busy.dispatcher.started;
  for (let n = 0; n < 5; n += 1) await scene.actors.create(Endless, {});
  await until('bodies run', () => begun === 5);
  const resting = open();
  await resting.dispatcher.started;
  proxy.silence();
  const starting = open();
  const since = awakeMs();
  await Promise.all(
    [resting, busy, starting].map(async ({ engine, dispatcher }) => {
      await dispatcher.stop({ timeout: '1s' });
      await engine.stop();
    }),
  );
  // Of a dispatcher its time and 10 s, of an engine its time and 2 s, and what a busy machine needs.
  expect(awakeMs() - since).toBeLessThan(1_000 + 10_000 + 1_000 + 2_000 + 4_000);
  await expect(starting.dispatcher.started).rejects.toThrow();
  await until('nothing is left open', () => proxy.open === 0);
});
