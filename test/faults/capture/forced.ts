import { Draw } from '../../support/random.ts';
import { type CapturePlan, drawWorks, planCapture } from './plan.ts';
import { PLANTS, WHOLE } from './plants.ts';

/** A schedule that shows a planted bug: much work for two workers at once, and the turn that the bug needs. */
export function planForced(plant: string): CapturePlan {
  const turn = PLANTS[plant]?.turn ?? 'none';
  // Work on a whole table also repairs lost changes, so only the plant that needs such work has it.
  const isWhole = plant === WHOLE;
  const works = (what: string, n: number): CapturePlan['before'] =>
    [0, 1].map((writer) =>
      drawWorks(new Draw(1, `${what} ${writer}`), writer, n).filter(
        ({ statements }) => isWhole || !statements.some((text) => text.startsWith('truncate')),
      ),
    );
  return {
    ...planCapture(1),
    title: `two workers in haste, then ${turn}`,
    // A worker is cut off with the rows that it has read, for longer than its timeout, and then continues with them.
    faults: [
      { at: 400, do: 'freeze', whom: 0, ms: 2200 },
      { at: 2700, do: 'freeze', whom: 1, ms: 2200 },
    ],
    hasOwnServer: turn !== 'none',
    turn,
    turnAt: 600,
    workers: 2,
    batch: 3,
    concurrency: 2,
    timeoutMs: 1000,
    before: works('before', 120),
    after: turn === 'none' ? [] : works('after', 15),
    changes: isWhole
      ? [
          { at: 500, what: 'attach a partition' },
          { at: 2500, what: 'drop a partition' },
        ]
      : [],
  };
}
