import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { Ground } from '../ground.ts';
import { UNPLAYED } from '../part.ts';
import { queuePart } from './part.ts';
import { PLANTS } from './plants.ts';

/** Of both holds, with and without related kinds, with a restart of the server, and with several shards. */
const SEEDS = [2, 4, 7, 11, 12, 23];

/** A schedule that is not done in its time says what it waits for. */
const options = { timeout: 600_000 };

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

describe('schedules of faults', () => {
  for (const seed of SEEDS) {
    test.concurrent(`leave a queue as it promises: seed ${seed}`, options, async () => {
      const { violations, operations } = await queuePart.run(seed, ground);
      expect(violations, `npm run test:faults -- --part queue --seeds ${seed}`).toEqual([]);
      expect(operations).toBeGreaterThan(50);
    });
  }
});

/** In schedules in which each of them shows. */
describe('a planted bug is found', () => {
  for (const plant of PLANTS) {
    // What a process wakes up to is a matter of a moment: this one shows in two schedules of three.
    const isChancy = plant === 'a unit begins after its claim is lost';
    (isChancy && !LONG ? test.skip : test.concurrent)(plant, options, async () => {
      const { violations } = await queuePart.run(0, ground, { plant });
      const found = violations.filter(({ rule }) => rule !== UNPLAYED);
      expect(found).not.toEqual([]);
    });

    (LONG ? test.concurrent : test.skip)(
      `${plant}: without it, the same schedule breaks nothing`,
      options,
      async () => {
        const { violations } = await queuePart.run(0, ground, { scene: plant });
        expect(violations).toEqual([]);
      },
    );
  }
});
