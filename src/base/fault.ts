import { writeSync } from 'node:fs';
import { InvalidInput } from './errors.ts';
import { suggest } from './options/suggest.ts';

/**
 * The effect of an armed fault point. The process kills itself (SIGKILL), pauses itself (SIGSTOP, until it gets SIGCONT), never
 * returns from the point, or throws {@link InjectedFault} there; or a function of the test runs.
 */
export type FaultAction = 'kill' | 'stop' | 'hang' | 'throw' | (() => unknown);

export interface ArmOptions {
  /** Act only on the n-th time the point is reached, counted from 1 since it was armed. Default: every time. */
  readonly occurrence?: number;
}

/** The error of an armed fault point with the action `throw`. Never thrown in production. */
export class InjectedFault extends Error {
  override readonly name = 'InjectedFault';
}

interface FaultArm {
  readonly action: FaultAction;
  readonly occurrence: number | undefined;
  readonly announce: boolean;
  reached: number;
}

const ACTIONS = ['kill', 'stop', 'hang', 'throw'] as const;

/**
 * Fault points: places where a test makes a process crash, pause, hang or fail. An unarmed point costs one boolean check: `if
 * (faults.armed) await faults.reach('queue.after_commit');`
 *
 * Arm a point in the process by {@link Faults.arm}, or in a child process by the environment variable PAWL_FAULT, a
 * comma-separated list of `point:action` or `point:action#3` (third time only). A point that was armed by the variable first
 * writes the line `PAWL_FAULT reached point:action` to stderr, so that the parent learns of the moment.
 */
class Faults {
  /** Whether any point is armed. */
  armed = false;
  readonly #points = new Map<string, Set<FaultArm>>();
  readonly #hanging = new Map<FaultArm, Set<() => void>>();

  /** Arms a point. @returns a function that disarms it; code that hangs there then goes on */
  arm(point: string, action: FaultAction, options: ArmOptions = {}): () => void {
    return this.#add(point, { action, occurrence: options.occurrence, announce: false, reached: 0 });
  }

  /**
   * Arms the points of PAWL_FAULT. @throws InvalidInput if the text cannot be parsed: a crash test that never crashes is no test
   */
  armFrom(text: string): void {
    for (const part of text.split(',')) {
      const [, point = '', word = '', nth] = /^([\w.-]+):(\w+)(?:#([1-9]\d*))?$/.exec(part.trim()) ?? [];
      const action = ACTIONS.find((known) => known === word);
      if (action === undefined) throw notUnderstood(part, word);
      this.#add(point, { action, occurrence: nth === undefined ? undefined : Number(nth), announce: true, reached: 0 });
    }
  }

  /** Passes a point: at once, unless it is armed. */
  async reach(point: string): Promise<void> {
    for (const armed of this.#points.get(point) ?? []) {
      armed.reached++;
      if (armed.occurrence === undefined || armed.occurrence === armed.reached) await this.#act(point, armed);
    }
  }

  /** Disarms every point; code that hangs there goes on. */
  clear(): void {
    for (const [point, all] of this.#points) for (const armed of all) this.#remove(point, armed);
  }

  #add(point: string, armed: FaultArm): () => void {
    this.#points.set(point, (this.#points.get(point) ?? new Set()).add(armed));
    this.armed = true;
    return () => this.#remove(point, armed);
  }

  #remove(point: string, armed: FaultArm): void {
    const all = this.#points.get(point);
    all?.delete(armed);
    if (all?.size === 0) this.#points.delete(point);
    this.armed = this.#points.size > 0;
    for (const release of this.#hanging.get(armed) ?? []) release();
    this.#hanging.delete(armed);
  }

  async #act(point: string, armed: FaultArm): Promise<void> {
    const { action } = armed;
    // Synchronous, because the process may end before queued output is written.
    if (armed.announce) writeSync(2, `PAWL_FAULT reached ${point}:${String(action)}\n`);
    if (typeof action === 'function') await action();
    else if (action === 'throw') throw new InjectedFault(`the armed fault point "${point}" was reached`);
    else if (action === 'stop') process.kill(process.pid, 'SIGSTOP');
    else {
      if (action === 'kill') process.kill(process.pid, 'SIGKILL');
      await this.#hang(armed);
    }
  }

  #hang(armed: FaultArm): Promise<void> {
    return new Promise((resolve) => {
      // A hanging process must stay: Node would exit with only a pending promise.
      const alive = setInterval(() => {}, 60_000);
      const release = (): void => {
        clearInterval(alive);
        resolve();
      };
      this.#hanging.set(armed, (this.#hanging.get(armed) ?? new Set()).add(release));
    });
  }
}

function notUnderstood(part: string, word: string): InvalidInput {
  const near = suggest(word, ACTIONS);
  const advice = near === undefined ? `actions are ${ACTIONS.join(', ')}` : `did you mean "${near}"?`;
  return new InvalidInput(`PAWL_FAULT must hold point:action or point:action#n, but holds "${part}"; ${advice}`, {
    field: 'PAWL_FAULT',
  });
}

/** The fault points of this process. */
export const faults: Faults = new Faults();

/** The short form, where a microtask more does not matter: `await faultPoint('queue.after_commit')`. */
export function faultPoint(point: string): Promise<void> | undefined {
  return faults.armed ? faults.reach(point) : undefined;
}

const fromEnvironment = process.env.PAWL_FAULT;
if (fromEnvironment !== undefined && fromEnvironment !== '') faults.armFrom(fromEnvironment);
