import { faults } from '../../base/fault.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { type Due, type DueSchedule, planTick, type Tick } from './schedule.ts';

/** The longest time until this process finds a new schedule of another process. */
const LOOK_MS = 2000;

/** The store of the schedules: it reads the due ones of some queues, and writes their ticks. */
export interface TickRows {
  due(queues: readonly number[]): Promise<Due>;
  /** @returns how many jobs were enqueued; null if another process was quicker */
  tick(tick: Tick): Promise<number | null>;
}

export interface SchedulerOptions {
  readonly rows: TickRows;
  /** The longest interval between two checks. Default: 2 s. */
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

  /** Called when this process has declared a schedule. */
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

  /** If the job of one schedule cannot be enqueued, the others are not delayed. */
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
