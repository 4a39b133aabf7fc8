import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { describePlants, PATIENCE_MS } from '../describe-plants.ts';
import { Ground } from '../ground.ts';
import { queuePart } from './part.ts';
import { PLANTS } from './plants.ts';

/** Of both holds, with and without related kinds, with a restart of the server, and with several shards. */
const SEEDS = [2, 4, 7, 11, 12, 23];

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

describe.concurrent('schedules of faults', () => {
  for (const seed of SEEDS) {
    test.concurrent(`leave a queue as it promises: seed ${seed}`, { timeout: PATIENCE_MS }, async () => {
      const { violations, operations } = await queuePart.run(seed, ground, { isShort: !LONG });
      expect(violations, `npm run test:faults -- --part queue --seeds ${seed}${LONG ? '' : ' --short'}`).toEqual([]);
      expect(operations).toBeGreaterThan(30);
    });
  }
});

describePlants('a planted bug is found', { part: queuePart, plants: PLANTS, ground: () => ground });
