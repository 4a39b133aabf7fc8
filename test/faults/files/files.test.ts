import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { Ground } from '../ground.ts';
import { isFoundByChecker } from '../part.ts';
import { filesPart } from './part.ts';
import { LONG_PLANTS, PLANTS } from './plants.ts';

/** Three on a disk, and three on a store that speaks S3: with many faults, and quick ones of the first 150. */
const SEEDS = [3, 6, 21, 22, 62, 109];

/** A schedule that is not done in its time says what it waits for. */
const options = { timeout: 600_000 };

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

describe.concurrent('schedules of faults', () => {
  for (const seed of SEEDS) {
    test.concurrent(`leave files as they promise: seed ${seed}`, options, async () => {
      const { violations, operations } = await filesPart.run(seed, ground, { isShort: !LONG });
      expect(violations, `npm run test:faults -- --part files --seeds ${seed}${LONG ? '' : ' --short'}`).toEqual([]);
      expect(operations).toBeGreaterThan(30);
    });
  }
});

/** In schedules in which each of them shows. */
describe.concurrent('a planted bug is found', () => {
  for (const plant of PLANTS) {
    (LONG || !LONG_PLANTS.has(plant) ? test.concurrent : test.concurrent.skip)(plant, options, async () => {
      const { violations } = await filesPart.run(0, ground, { plant });
      expect(violations.filter(isFoundByChecker)).not.toEqual([]);
    });
  }
});
