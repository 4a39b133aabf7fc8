import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { describePlants, PATIENCE_MS } from '../describe-plants.ts';
import { Ground } from '../ground.ts';
import { actorPart } from './part.ts';
import { PLANTS } from './plants.ts';

const SEEDS = [1, 2, 3, 4, 5, 6];

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

describe.concurrent('schedules of faults', () => {
  for (const seed of SEEDS) {
    test.concurrent(`leave actors as they promise: seed ${seed}`, { timeout: PATIENCE_MS }, async () => {
      const { violations, operations } = await actorPart.run(seed, ground, { isShort: !LONG });
      expect(violations, `npm run test:faults -- --part actor --seeds ${seed}${LONG ? '' : ' --short'}`).toEqual([]);
      expect(operations).toBeGreaterThan(30);
    });
  }
});

describePlants('a planted bug is found', { part: actorPart, plants: PLANTS, ground: () => ground });
