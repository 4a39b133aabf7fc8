import { afterAll, beforeAll, describe, inject, test } from 'vitest';
import { LONG } from '../support/long.ts';
import { Ground } from './ground.ts';
import type { Runner } from './part.ts';

/** A schedule takes ten seconds, on a busy machine minutes. If a schedule is too late, its error names what it waits for. */
export const PATIENCE_MS = 600_000;

/** The ground that all schedules of a test file share, from its first test to its last. */
export function openGround(): () => Ground {
  let ground: Ground | undefined;
  beforeAll(async () => {
    ground = await Ground.open({ children: inject('children'), cluster: inject('cluster') });
  });
  // If no server starts, that is the failure, and there is nothing to close.
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
  /** The least number of operations of a schedule. */
  readonly operations: number;
  /** Why these schedules cannot run here; undefined if they can. */
  readonly isMissing?: () => Promise<string | undefined>;
}

/** No schedule of these seeds breaks a promise. The schedules are short; in a long run they are whole. */
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
