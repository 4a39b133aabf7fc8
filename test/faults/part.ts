import { setTimeout as sleep } from 'node:timers/promises';
import type { Ground } from './ground.ts';
import type { Plan, Violation } from './plan.ts';
import { Stage } from './stage.ts';

/** The rule that a schedule breaks if it could not be played to its end. */
export const UNPLAYED = 'the schedule could not be played';
/** The rule that a schedule breaks if nothing succeeded in it: then its checker had nothing to check. */
export const NOTHING_HAPPENED = 'something happens in every schedule';
/** Longer than all waits of a schedule together: a schedule that takes longer is stuck. */
const PLAY_MS = 420_000;
/** The limit for the end of its processes and of its own server. */
const CLOSE_MS = 60_000;

/** One part of the library under faults; README.md says how to write one. */
export interface Part<P extends Plan, H> {
  readonly name: string;
  /** Pure: one seed gives the same plan on every machine. */
  plan(seed: number): P;
  /** A schedule that shows a planted bug which a drawn plan rarely shows. Without it, the bug runs with the seed's plan. */
  forced?(plant: string): P;
  /** Pure: the same plan with less to do, for a run that has to be short. */
  shorten?(plan: P): P;
  /** Plays the plan with real processes until nothing is left to do. @returns the history */
  play(plan: P, stage: Stage): Promise<H>;
  /** Pure: the events of the history that no part which keeps its promises can leave. */
  check(history: H): Violation[];
  /** The counts of events that every schedule must have. */
  successes(history: H): Readonly<Record<string, number>>;
  /** How much there was to check. */
  operations(history: H): number;
}

/** The result of one schedule. */
export interface Report {
  readonly plan: Plan;
  readonly operations: number;
  /** How often each fault was inflicted. */
  readonly faults: Readonly<Record<string, number>>;
  readonly violations: readonly Violation[];
  readonly ms: number;
}

export interface RunOptions {
  /** The name of a planted bug, which the part's processes read. */
  readonly plant?: string | undefined;
  /** The plan that shows the plant of this name, in place of the seed's plan. Default: that of `plant`. */
  readonly scene?: string | undefined;
  /** How long the schedule may take before it counts as stuck. Default: 7 minutes. */
  readonly limitMs?: number | undefined;
  /** Play the seed's plan with less to do. Default: false. */
  readonly isShort?: boolean;
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
    run: async (seed, ground, { plant, scene = plant, limitMs = PLAY_MS, isShort = false } = {}) => {
      const since = performance.now();
      const drawn = part.plan(seed);
      const usual = isShort ? (part.shorten?.(drawn) ?? drawn) : drawn;
      const plan = (scene === undefined ? undefined : part.forced?.(scene)) ?? usual;
      const outcome = await onStage(part, plan, { ground, plant, limitMs });
      return { plan, ...outcome, ms: Math.round(performance.now() - since) };
    },
  };
}

type Outcome = Pick<Report, 'operations' | 'faults' | 'violations'>;

interface Terms {
  readonly ground: Ground;
  readonly plant: string | undefined;
  readonly limitMs: number;
}

/** Never rejects: this is one of many schedules, and the others continue. */
async function onStage<P extends Plan, H>(
  part: Part<P, H>,
  plan: P,
  { ground, plant, limitMs }: Terms,
): Promise<Outcome> {
  const failures: Violation[] = [];
  const note = (error: unknown): undefined => void failures.push(unplayed(plan, error));
  const stage = await Stage.open(ground, plan, plant).catch(note);
  if (stage === undefined) return { operations: 0, faults: {}, violations: failures };
  const describe = (): Promise<string[]> => stage.describe();
  const history = await inTime(part.play(plan, stage), limitMs, describe).catch(note);
  await inTime(stage[Symbol.asyncDispose](), CLOSE_MS, describe).catch(note);
  const [operations, found] = history === undefined ? [0, []] : [part.operations(history), judge(part, history)];
  return { operations, faults: stage.inflicted, violations: [...found, ...failures, ...stage.crashes] };
}

/** The rules that a history breaks, and the necessary events that it lacks. */
export function judge<H>(part: Pick<Part<Plan, H>, 'check' | 'successes'>, history: H): Violation[] {
  const missing = Object.entries(part.successes(history)).filter(([, count]) => count === 0);
  return [
    ...part.check(history),
    ...missing.map(([what]) => ({ rule: NOTHING_HAPPENED, about: what, story: ['did not happen once'] })),
  ];
}

/** Whether a checker found the violation. A schedule that cannot be played, or in which nothing happens, finds no bug. */
export function isFoundByChecker({ rule }: Violation): boolean {
  return rule !== UNPLAYED && rule !== NOTHING_HAPPENED;
}

function unplayed({ seed }: Plan, error: unknown): Violation {
  const story = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return { rule: UNPLAYED, about: `seed ${seed}`, story: [story] };
}

/** @throws Error  the work has not ended in time; the message has the last note of each process */
async function inTime<T>(work: Promise<T>, ms: number, describe: () => Promise<string[]>): Promise<T> {
  const late = new AbortController();
  const onTime = async (): Promise<never> => {
    // The timer also keeps this process alive while the work has not ended.
    await sleep(ms, undefined, { signal: late.signal });
    throw new Error([`stuck for ${ms} ms:`, ...(await describe())].join('\n'));
  };
  try {
    return await Promise.race([work, onTime()]);
  } finally {
    late.abort();
  }
}
