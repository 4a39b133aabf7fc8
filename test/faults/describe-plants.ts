import { describe, test } from 'vitest';
import { LONG } from '../support/long.ts';
import type { Ground } from './ground.ts';
import { isFoundByChecker, type Runner } from './part.ts';

/** A schedule takes ten seconds, and on a busy machine minutes; one that is not done in its time says what it waits for. */
export const PATIENCE_MS = 600_000;

export interface PlantTests {
  readonly part: Runner;
  readonly plants: readonly string[];
  readonly ground: () => Ground;
  /** Why these cannot be run here, if they cannot. */
  readonly isMissing?: () => Promise<string | undefined>;
}

/** The checker of a part is checked: each bug is planted in a schedule in which it shows, which breaks nothing without it. */
export function describePlants(title: string, { part, plants, ground, isMissing }: PlantTests): void {
  // Tests that are concurrent run together only where none that is not stands between them, and one that is skipped is not.
  describe.concurrent(title, () => {
    for (const plant of plants) {
      test(plant, { timeout: PATIENCE_MS }, async ({ skip, expect }) => {
        const missing = await isMissing?.();
        if (missing !== undefined) skip(missing);
        const { violations } = await part.run(0, ground(), { plant });
        expect(violations.filter(isFoundByChecker)).not.toEqual([]);
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
