import { describe, test } from 'vitest';
import { LONG } from '../../support/long.ts';
import { PATIENCE_MS } from '../describe-schedules.ts';
import type { Ground } from '../ground.ts';
import { isFoundByChecker, type Runner } from '../part.ts';
import type { Violation } from '../plan.ts';

/** On a busy machine, one schedule may miss a bug that shows only if two processes meet. */
const TRIES = 3;

export interface PlantTests {
  readonly part: Runner;
  readonly plants: readonly string[];
  readonly ground: () => Ground;
  /** Plants whose schedules take long: they run only in long runs. */
  readonly long?: ReadonlySet<string>;
  /** Why these tests cannot run here; undefined if they can. */
  readonly isMissing?: () => Promise<string | undefined>;
}

/** Tests the checker of a part: each bug is planted in a schedule that shows it. Without the bug the schedule breaks no rule. */
export function describePlants(title: string, { part, plants, ground, long, isMissing }: PlantTests): void {
  const isLeftOut = (plant: string): boolean => !LONG && long?.has(plant) === true;
  describe.concurrent(title, () => {
    // Skipped tests come last, because tests before a skipped one do not run together with tests after it.
    for (const plant of plants.toSorted((a, b) => Number(isLeftOut(a)) - Number(isLeftOut(b)))) {
      test.skipIf(isLeftOut(plant))(plant, { timeout: PATIENCE_MS }, async ({ skip, expect }) => {
        const missing = await isMissing?.();
        if (missing !== undefined) skip(missing);
        let found: readonly Violation[] = [];
        for (let tries = 0; tries < TRIES && found.length === 0; tries += 1) {
          const { violations } = await part.run(0, ground(), { plant });
          found = violations.filter(isFoundByChecker);
        }
        expect(found).not.toEqual([]);
      });
    }
  });

  describe.skipIf(!LONG)(`${title}: without it, the same schedule breaks nothing`, { concurrent: true }, () => {
    for (const plant of plants) {
      test(plant, { timeout: PATIENCE_MS }, async ({ expect }) => {
        const { violations } = await part.run(0, ground(), { scene: plant });
        expect(violations).toEqual([]);
      });
    }
  });
}
