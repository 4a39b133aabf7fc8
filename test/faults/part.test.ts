import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Ground } from './ground.ts';
import { runner, UNPLAYED } from './part.ts';

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

test('a schedule that never ends is reported, with the process that is stuck', { timeout: 60_000 }, async () => {
  const part = runner({
    name: 'stuck',
    plan: (seed) => ({ seed, title: 'a process that stands still', faults: [], hasOwnServer: false }),
    play: async (_plan, stage) => {
      const [member] = await stage.start([{ script: 'faults/idle.child.ts', name: 'idler' }]);
      process.kill(member?.pid ?? 0, 'SIGSTOP');
      await new Promise(() => {});
    },
    check: () => [],
    operations: () => 1,
  });
  const { violations } = await part.run(7, ground, { limitMs: 1000 });
  expect(violations).toHaveLength(1);
  expect(violations[0]).toMatchObject({ rule: UNPLAYED, about: 'seed 7' });
  expect(violations[0]?.story.join()).toMatch(
    /stuck for 1000 ms:\nidler: process \d+ has not ended; its last note is .*"do":"waits"/,
  );
});

test('a schedule whose surroundings cannot be made is reported, and no other is disturbed', async () => {
  const part = runner({
    name: 'homeless',
    plan: (seed) => ({ seed, title: 'no server', faults: [], hasOwnServer: true }),
    play: () => Promise.resolve(),
    check: () => [],
    operations: () => 1,
  });
  const homeless = Object.create(ground, { database: { value: () => Promise.reject(new Error('no room')) } });
  const { violations } = await part.run(8, homeless);
  expect(violations).toMatchObject([{ rule: UNPLAYED, about: 'seed 8' }]);
});
