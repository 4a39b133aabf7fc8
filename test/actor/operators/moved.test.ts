import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { aborted, until } from '../../support/eventually.ts';
import { openScene } from '../scene.ts';

/** Its first body stands still until it is told; its second one, too, and may be interrupted. */
function make() {
  const said: string[] = [];
  let endFirst = (): void => {};
  const firstEnds = new Promise<void>((resolve) => {
    endFirst = resolve;
  });
  const Moved = actor('moved', {
    semaphores: ['halt'],
    initial: 'first',
    states: (state) => ({
      first: state({
        to: ['second'],
        run: async (a) => {
          said.push('first begins');
          await firstEnds;
          said.push('first ends');
          return a.hibernate();
        },
      }),
      second: state({
        interrupt: ['halt'],
        run: async (a) => {
          said.push('second begins');
          await aborted(a.signal).catch(() => {});
          // It takes its time to end.
          await sleep(500);
          said.push('second ends');
          return a.hibernate();
        },
      }),
    }),
  });
  return { Moved, said, endFirst };
}

test('the turn of an actor that was moved is interrupted, and awaited by a stop, though the turn before it has ended since', async () => {
  const { Moved, said, endFirst } = make();
  const scene = await openScene([Moved]);
  const one = await scene.actors.create(Moved, {});
  const dispatcher = await scene.run();
  const stale: string[] = [];
  dispatcher.events.on('stale', ({ actors }) => stale.push(...actors));
  await until('the first body runs', () => said.includes('first begins'));
  await scene.actors.move(one, 'second', {}, { reason: 'test' });
  await until('the second one runs', () => said.includes('second begins'));
  endFirst();
  await until('the first one has ended', () => said.includes('first ends'));
  await until('it is told as stale', () => stale.includes(one.id));
  await scene.actors.incr(one, 'halt');
  await dispatcher.stop({ timeout: '30s' });
  expect(said).toEqual(['first begins', 'second begins', 'first ends', 'second ends']);
  expect(await scene.actors.get(one)).toMatchObject({ state: 'second', attempt: 0 });
});
