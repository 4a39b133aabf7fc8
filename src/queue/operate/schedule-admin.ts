import { NotFound } from '../../base/errors.ts';
import { checkOptions, integer, suggest } from '../../base/options/options.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { EnqueueResult } from '../enqueue.ts';
import type { AnyJobTarget } from '../job-id.ts';
import { PostgresQueueSchedules, type ScheduleRun } from '../postgres/operate/schedules.ts';
import { PostgresQueueReader } from '../postgres/reader.ts';
import { JobOperations } from './job-operations.ts';
import { nextTick, type ScheduleOptions, type ScheduleRecord } from './schedule.ts';
import { setScheduleByHand } from './set-schedule.ts';
import { COUNT_LIMIT } from './stats.ts';

export interface ScheduleRunsOptions {
  /** 1 to 100; default 10. */
  readonly limit?: number | undefined;
}

const runsShape = { limit: integer({ min: 1, max: 100, default: 10 }) };

/** Operates the single jobs and the schedules of all queues of a database. */
export class ScheduleAdmin extends JobOperations<AnyJobTarget> {
  readonly #reader: PostgresQueueReader;
  readonly #schedules: PostgresQueueSchedules;

  /** @internal */
  constructor(engine: PostgresEngine) {
    const reader = new PostgresQueueReader(engine);
    super(reader, null);
    this.#reader = reader;
    this.#schedules = new PostgresQueueSchedules(engine);
  }

  /** The schedules of one queue, or of all. */
  schedules(queue?: string): Promise<ScheduleRecord[]> {
    return this.#schedules.list(queue ?? null);
  }

  /** One schedule. @throws NotFound */
  async schedule(queue: string, name: string): Promise<ScheduleRecord> {
    return (await this.#schedules.get(queue, name)) ?? this.#refuseSchedule(queue, name);
  }

  /** The jobs that a schedule has enqueued, newest first; the newest hundred jobs are kept. @throws NotFound */
  async scheduleRuns(queue: string, name: string, options: ScheduleRunsOptions = {}): Promise<ScheduleRun[]> {
    const { limit } = checkOptions('scheduleRuns', options, runsShape);
    const runs = await this.#schedules.runs(queue, name, limit);
    if (runs.length === 0) await this.schedule(queue, name);
    return runs;
  }

  /**
   * Stops a schedule until `resumeSchedule`, even if a program declares it again in between. The jobs that it has enqueued stay.
   * Ticks during the pause are skipped, whatever `missed` says. @throws NotFound
   */
  async pauseSchedule(queue: string, name: string): Promise<void> {
    if (!(await this.#schedules.pause(queue, name))) await this.#refuseSchedule(queue, name);
  }

  /** Ends a pause: the first tick from now on is the next one. @throws NotFound */
  async resumeSchedule(queue: string, name: string): Promise<void> {
    for (;;) {
      const schedule = await this.schedule(queue, name);
      if (schedule.pausedAt === null) return;
      const next = nextTick(schedule.cron, schedule.timezone, await this.#schedules.now()) ?? null;
      // Fails if another pattern was declared since the schedule was read.
      if (await this.#schedules.resume(schedule, next)) return;
    }
  }

  /** Enqueues the job of the schedule now, also while it is paused; its ticks do not change. @throws NotFound */
  async runSchedule(queue: string, name: string): Promise<EnqueueResult> {
    return (await this.#schedules.run(queue, name)) ?? this.#refuseSchedule(queue, name);
  }

  /**
   * Sets a schedule of a registered queue: a new one, or in place of the one of this name. If the pattern and the zone are the
   * same, it keeps its next tick; if it is paused, it stays paused. The payload is checked when its jobs run, because only the
   * program has its schema. If a program declares a schedule of this name by `schedule()`, it overwrites this one at its next
   * start.
   * @throws Conflict  the schedule is of the set that a program declares by `schedules()` @throws NotFound  no such queue or kind
   * @throws InvalidInput
   */
  setSchedule(queue: string, name: string, options: ScheduleOptions): Promise<void> {
    return setScheduleByHand(this.#schedules, queue, name, options);
  }

  /** Removes a schedule. If a program declares it at its start, the program creates it again. @throws NotFound */
  async unschedule(queue: string, name: string): Promise<void> {
    if (!(await this.#schedules.remove(queue, name))) await this.#refuseSchedule(queue, name);
  }

  async #refuseSchedule(queue: string, name: string): Promise<never> {
    // Refuses an unknown queue.
    await this.#reader.stats(queue, COUNT_LIMIT);
    const names = (await this.#schedules.list(queue)).map((one) => one.name);
    const near = suggest(name, names);
    const advice = near !== undefined ? `did you mean "${near}"?` : `it has ${names.join(', ') || 'none'}`;
    throw new NotFound(`queue "${queue}" has no schedule "${name}"; ${advice}`);
  }
}
