import { faults } from '../../base/fault.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { type Due, type DueSchedule, planTick, type Tick } from './schedule.ts';

/** A new schedule of another process is found within this time. */
const LOOK_MS = 2000;

/** Where the due schedules of some queues are read, and their ticks written. */
export interface TickRows {
  due(queues: readonly number[]): Promise<Due>;
  /** @returns how many jobs; null when another process was quicker */
  tick(tick: Tick): Promise<number | null>;
}

export interface SchedulerOptions {
  readonly rows: TickRows;
  /** How often it looks, at least. Default: 2 s. */
  readonly lookMs?: number | undefined;
  /** The queues whose schedules it runs. */
  readonly queues: () => readonly number[];
  readonly onError: (error: unknown) => void;
}

/** Enqueues the jobs of the schedules of some queues. Any number of processes may do so: each tick is enqueued once. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #loop: Loop;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#loop = startLoop({
      name: 'queue.schedule',
      run: () => this.#look(),
      onError: options.onError,
      unref: true,
    });
  }

  /** A schedule was declared here. */
  look(): void {
    this.#loop.wake();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #look(): Promise<number> {
    const { now, due, wait } = await this.#options.rows.due(this.#options.queues());
    let ticked = false;
    for (const schedule of due) ticked = (await this.#tick(schedule, now)) || ticked;
    const { lookMs = LOOK_MS } = this.#options;
    return ticked ? 0 : Math.min(wait === null || wait === 0 ? lookMs : wait, lookMs);
  }

  /** A schedule whose job cannot be enqueued does not delay the others. */
  async #tick(schedule: DueSchedule, now: number): Promise<boolean> {
    try {
      const tick = planTick(schedule, now);
      if (faults.armed) await faults.reach('queue.before_tick');
      const jobs = await this.#options.rows.tick(tick);
      if (probe.listening) probe.hit('queue.ticked', { ...tick, jobs });
      return jobs !== null;
    } catch (error) {
      this.#options.onError(error);
      return false;
    }
  }
}
