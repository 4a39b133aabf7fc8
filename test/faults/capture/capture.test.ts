import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { describePlants } from '../describe-plants.ts';
import { Ground } from '../ground.ts';
import { capturePart } from './part.ts';
import { PLANTS } from './plants.ts';

/** With a crash, a failover and a restore; of the first 150 those that cost the least of the processor. */
const SEEDS = [2, 5, 10, 12, 15, 88];

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

/** Schedules that take as long as all others together: `PAWL_LONG=1 npx vitest run test/faults/capture`. */
if (LONG)
  describePlants('a planted bug is found', { part: capturePart, plants: Object.keys(PLANTS), ground: () => ground });
