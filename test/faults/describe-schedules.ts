import { afterAll, beforeAll, describe, inject, test } from 'vitest';
import { LONG } from '../support/long.ts';
import { Ground } from './ground.ts';
import type { Runner } from './part.ts';

/** A schedule takes ten seconds, and on a busy machine minutes; one that is not done in its time says what it waits for. */
export const PATIENCE_MS = 600_000;

/** What all schedules of a test file share, from its first test to its last. */
export function openGround(): () => Ground {
  let ground: Ground | undefined;
  beforeAll(async () => {
    ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
  });
  // Where no server starts, that is the failure, and there is nothing to close.
  afterAll(() => ground?.[Symbol.asyncDispose]());
  return () => {
    if (ground === undefined) throw new Error('no ground was opened');
    return ground;
  };
}

export interface ScheduleTests {
  readonly part: Runner;
  readonly seeds: readonly number[];
  readonly ground: () => Ground;
  /** A schedule has at least so many operations. */
  readonly operations: number;
  /** Why these cannot be run here, if they cannot. */
  readonly isMissing?: () => Promise<string | undefined>;
}

/** No schedule of these seeds breaks a promise: short ones, and in a long run whole ones. */
export function describeSchedules(
  title: string,
  { part, seeds, ground, operations: least, isMissing }: ScheduleTests,
): void {
  describe.concurrent('schedules of faults', () => {
    for (const seed of seeds) {
      test(`${title}: seed ${seed}`, { timeout: PATIENCE_MS }, async ({ expect, skip }) => {
        const missing = await isMissing?.();
        if (missing !== undefined) skip(missing);
        const { violations, operations } = await part.run(seed, ground(), { isShort: !LONG });
        const command = `npm run test:faults -- --part ${part.name} --seeds ${seed}${LONG ? '' : ' --short'}`;
        expect(violations, `${command}: ${JSON.stringify(violations, undefined, 2)}`).toEqual([]);
        expect(operations).toBeGreaterThan(least);
      });
    }
  });
}
