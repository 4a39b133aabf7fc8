import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { Ground } from '../ground.ts';
import { isFoundByChecker } from '../part.ts';
import { capturePart } from './part.ts';
import { PLANTS } from './plants.ts';

/** With a crash, a failover and a restore. */
const SEEDS = [2, 5, 6, 10, 11, 12];

/** A schedule that is not done in its time says what it waits for. */
const options = { timeout: 600_000 };

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

describe.concurrent('schedules of faults', () => {
  for (const seed of SEEDS) {
    test.concurrent(`leave a capture as it promises: seed ${seed}`, options, async () => {
      const { violations, operations } = await capturePart.run(seed, ground, { isShort: !LONG });
      expect(violations, `npm run test:faults -- --part capture --seeds ${seed}${LONG ? '' : ' --short'}`).toEqual([]);
      expect(operations).toBeGreaterThan(100);
    });
  }
});

/** In schedules in which each of them shows; they take as long as all others together. */
describe.concurrent('a planted bug is found', () => {
  for (const plant of Object.keys(PLANTS)) {
    (LONG ? test.concurrent : test.concurrent.skip)(plant, options, async () => {
      const { violations } = await capturePart.run(0, ground, { plant });
      expect(violations.filter(isFoundByChecker)).not.toEqual([]);
    });

    (LONG ? test.concurrent : test.concurrent.skip)(
      `${plant}: without it, the same schedule breaks nothing`,
      options,
      async () => {
        const { violations } = await capturePart.run(0, ground, { scene: plant });
        expect(violations).toEqual([]);
      },
    );
  }
});
