import type { Ground } from './ground.ts';
import type { Plan, Violation } from './plan.ts';
import { Stage } from './stage.ts';

/** The rule that a schedule breaks which was not played to its end. */
export const UNPLAYED = 'the schedule could not be played';

/** One part of the library under faults; README.md says how to write one. */
export interface Part<P extends Plan, H> {
  readonly name: string;
  /** Pure: the same plan for the same seed, on every machine. */
  plan(seed: number): P;
  /** A schedule in which a planted bug shows, where chance rarely meets it. Without, the bug is run with the seed's plan. */
  forced?(plant: string): P;
  /** Plays the plan with real processes, until nothing is left to do, and gives what was seen. */
  play(plan: P, stage: Stage): Promise<H>;
  /** Pure: what in the history cannot have come from a part that keeps its promises. */
  check(history: H): Violation[];
  /** How much there was to check. */
  operations(history: H): number;
}

/** What became of one schedule. */
export interface Report {
  readonly plan: Plan;
  readonly operations: number;
  /** How often each fault was inflicted. */
  readonly faults: Readonly<Record<string, number>>;
  readonly violations: readonly Violation[];
  readonly ms: number;
}

export interface RunOptions {
  /** The name of a planted bug, which the part's processes look for. */
  readonly plant?: string | undefined;
  /** The plan in which the plant of this name shows, in place of the seed's. Default: that of `plant`. */
  readonly scene?: string | undefined;
}

/** A part with its types closed over, as the command and the tests run it. */
export interface Runner {
  readonly name: string;
  plan(seed: number): Plan;
  run(seed: number, ground: Ground, options?: RunOptions): Promise<Report>;
}

export function runner<P extends Plan, H>(part: Part<P, H>): Runner {
  return {
    name: part.name,
    plan: (seed) => part.plan(seed),
    run: async (seed, ground, { plant, scene = plant } = {}) => {
      const since = performance.now();
      const plan = (scene === undefined ? undefined : part.forced?.(scene)) ?? part.plan(seed);
      await using stage = await Stage.open(ground, plan, plant);
      const report = (operations: number, violations: readonly Violation[]): Report => ({
        plan,
        operations,
        faults: stage.inflicted,
        violations: [...violations, ...stage.crashes],
        ms: Math.round(performance.now() - since),
      });
      try {
        const history = await part.play(plan, stage);
        return report(part.operations(history), part.check(history));
      } catch (error) {
        // One of many schedules: the others go on.
        const story = error instanceof Error ? (error.stack ?? error.message) : String(error);
        return report(0, [{ rule: UNPLAYED, about: `seed ${seed}`, story: [story] }]);
      }
    },
  };
}
