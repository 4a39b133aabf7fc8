import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { sharedDynamo } from '../../support/dynamodb.ts';
import { LONG } from '../../support/long.ts';
import { describePlants, PATIENCE_MS } from '../describe-plants.ts';
import { Ground } from '../ground.ts';
import { NOTHING_HAPPENED } from '../part.ts';
import { lockOnDynamo, lockPart } from './part.ts';
import { FAILURE, plantsOf } from './plants.ts';

let ground: Ground;

beforeAll(async () => {
  ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
});

afterAll(() => ground[Symbol.asyncDispose]());

const parts = {
  postgres: lockPart,
  dynamodb: lockOnDynamo(async () => {
    const { kind, endpoint } = await sharedDynamo();
    if (kind === 'dynalite') throw new Error('guards need transactions, which dynalite has not');
    return endpoint;
  }),
};

for (const engine of ['postgres', 'dynamodb'] as const) {
  const part = parts[engine];

  describe.concurrent(`schedules of faults on ${engine}`, () => {
    for (const seed of [1, 2, 3, 4, 5, 6]) {
      test.concurrent(
        `leave locks as they promise: seed ${seed}`,
        async ({ skip }) => {
          if (engine === 'dynamodb' && (await sharedDynamo()).kind === 'dynalite') skip('dynalite has no transactions');
          const { violations, operations } = await part.run(seed, ground, { isShort: !LONG });
          expect(
            violations,
            `npm run test:faults -- --part ${part.name} --seeds ${seed}${LONG ? '' : ' --short'}`,
          ).toEqual([]);
          expect(operations).toBeGreaterThan(10);
        },
        PATIENCE_MS,
      );
    }
  });

  /** In schedules in which each of them shows. */
  describePlants(`a planted bug is found on ${engine}`, {
    part,
    plants: plantsOf(engine),
    ground: () => ground,
    isMissing: async () =>
      engine === 'dynamodb' && (await sharedDynamo()).kind === 'dynalite' ? 'dynalite has no transactions' : undefined,
  });
}

test(
  'a schedule in which every operation fails breaks a rule, though it leaves nothing wrong behind',
  async () => {
    const { violations } = await lockPart.run(0, ground, { plant: FAILURE });
    const missing = violations.filter(({ rule }) => rule === NOTHING_HAPPENED).map(({ about }) => about);
    expect(missing).toEqual(['a lock is granted', 'a grant is noted']);
  },
  PATIENCE_MS,
);
