import { faults } from '../../base/fault.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { PostgresQueueSchedules } from '../postgres/schedules.ts';
import { type DueSchedule, planTick } from './schedule.ts';

/** A new schedule of another process is found within this time. */
const LOOK_MS = 2000;

export interface SchedulerOptions {
  readonly engine: PostgresEngine;
  /** How long each statement may take. */
  readonly deadlineMs: number;
  /** The queues whose schedules it runs. */
  readonly queues: () => readonly number[];
  readonly onError: (error: unknown) => void;
}

/** Enqueues the jobs of the schedules of some queues. Any number of processes may do so: each tick is enqueued once. */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #store: PostgresQueueSchedules;
  readonly #loop: Loop;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#store = new PostgresQueueSchedules(options.engine, options);
    this.#loop = startLoop({
      name: 'queue.schedule',
      run: () => this.#look(),
      onError: options.onError,
      unref: true,
    });
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #look(): Promise<number> {
    const { now, due, wait } = await this.#store.due(this.#options.queues());
    let ticked = false;
    for (const schedule of due) ticked = (await this.#tick(schedule, now)) || ticked;
    return ticked ? 0 : Math.min(wait === null || wait === 0 ? LOOK_MS : wait, LOOK_MS);
  }

  /** A schedule whose job cannot be enqueued does not delay the others. */
  async #tick(schedule: DueSchedule, now: number): Promise<boolean> {
    try {
      const tick = planTick(schedule, now);
      if (faults.armed) await faults.reach('queue.before_tick');
      const jobs = await this.#store.tick(tick);
      if (probe.listening) probe.hit('queue.ticked', { ...tick, jobs });
      return jobs !== null;
    } catch (error) {
      this.#options.onError(error);
      return false;
    }
  }
}
