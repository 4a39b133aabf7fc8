import { describe, expect, test } from 'vitest';
import { LONG } from '../support/long.ts';
import type { Ground } from './ground.ts';
import { type Runner, UNPLAYED } from './part.ts';

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
  describe(title, () => {
    for (const plant of plants) {
      test.concurrent(plant, { timeout: PATIENCE_MS }, async ({ skip }) => {
        const missing = await isMissing?.();
        if (missing !== undefined) skip(missing);
        const { violations } = await part.run(0, ground(), { plant });
        expect(violations.filter(({ rule }) => rule !== UNPLAYED)).not.toEqual([]);
      });

      (LONG ? test.concurrent : test.skip)(
        `${plant}: without it, the same schedule breaks nothing`,
        { timeout: PATIENCE_MS },
        async () => {
          const { violations } = await part.run(0, ground(), { scene: plant });
          expect(violations).toEqual([]);
        },
      );
    }
  });
}
