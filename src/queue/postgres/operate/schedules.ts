import {
  type AnswerOptions,
  instant,
  type PostgresEngine,
  type Statement,
  statement,
} from '../../../engine/postgres/index.ts';
import type { EnqueueResult } from '../../enqueue.ts';
import type { JobStatus } from '../../job.ts';
import type { Due, ScheduleRecord, Tick } from '../../operate/schedule.ts';
import { limited, only, type Runner } from '../runner.ts';

const NOW = statement(
  'queue.now',
  'select pg_catalog.to_json(extract(epoch from clock_timestamp()) * 1000::numeric) as now',
);
const SET = statement('queue.set_schedule', 'select pawl.queue_set_schedule($1::json)');
const SET_ALL = statement('queue.set_schedules', 'select pawl.queue_set_schedules($1::json)');
const REMOVE = statement(
  'queue.remove_schedule',
  `
with runs as (
  delete from pawl.queue_schedule_run where queue = pawl.queue_id($1::text) and name = $2::text
)
delete from pawl.queue_schedule where queue = pawl.queue_id($1::text) and name = $2::text returning name`,
);
const LIST = statement(
  'queue.schedules',
  `
select q.name as queue, s.name, s.cron, s.timezone, k.name as kind, s.key, s.group_name as "group", s.priority, s.payload, s.missed,
  pg_catalog.to_json(extract(epoch from s.missed_for) * 1000::numeric) as "missedForMs", s.overlap,
  pg_catalog.to_json(extract(epoch from s.jitter) * 1000::numeric) as "jitterMs",
  ${instant("case when s.paused_at is null then nullif(s.next_at, 'infinity') end")} as "nextAt", ${instant('s.last_at')} as "lastAt",
  ${instant('s.paused_at')} as "pausedAt", s.of_set as "ofSet"
from pawl.queue_schedule s
join pawl.queue_definition q on q.id = s.queue
join pawl.queue_kind k on k.id = s.kind
where ($1::text is null or q.name = $1::text) and ($2::text is null or s.name = $2::text)
order by q.name, s.name`,
);
const RUN = statement(
  'queue.run_schedule',
  'select pawl.queue_schedule_enqueue(pawl.queue_id($1::text), $2::text, clock_timestamp()) as answer',
);
const RUNS = statement(
  'queue.schedule_runs',
  `
select ${instant('r.at')} as at, r.job::text as job, j.status
from (
  select r.at, r.job from pawl.queue_schedule_run r
  where r.queue = pawl.queue_id($1::text) and r.name = $2::text
  order by r.at desc, r.job desc limit $3::int) r
left join lateral (
  select j.status from pawl.job j where j.shard = pawl.queue_shard_of(r.job) and j.id = r.job) j on true
order by r.at desc, r.job desc`,
);
const PAUSE = statement(
  'queue.pause_schedule',
  `
update pawl.queue_schedule
set paused_at = coalesce(paused_at, clock_timestamp())
where queue = pawl.queue_id($1::text) and name = $2::text
returning name`,
);
/** Only if the schedule is still paused, and still has the pattern from which its next tick was computed. */
const RESUME = statement(
  'queue.resume_schedule',
  `
update pawl.queue_schedule
set paused_at = null, next_at = coalesce(pg_catalog.to_timestamp($3::float8 / 1000::float8), 'infinity')
where queue = pawl.queue_id($1::text) and name = $2::text and cron = $4::text and timezone = $5::text and paused_at is not null
returning name`,
);
const DUE = statement('queue.due', 'select pawl.queue_due($1::smallint[]) as answer');
const TICK = statement('queue.tick', 'select pawl.queue_tick($1::json) as jobs');

/** A job that a schedule enqueued. */
export interface ScheduleRun {
  /** The tick; if the schedule was run by hand, the time of that run. */
  readonly at: Date;
  readonly job: string;
  /** Null: the job was removed with the history of its queue. */
  readonly status: JobStatus | null;
}

/** The statements of schedules. One round trip each. */
export class PostgresQueueSchedules {
  readonly #engine: PostgresEngine;
  readonly #answer: AnswerOptions;
  readonly #runner: Runner;

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    this.#engine = engine;
    this.#answer = answer;
    this.#runner = limited(engine, answer);
  }

  /** The database's clock, in ms. */
  async now(): Promise<number> {
    const [row] = await this.#runner.query<{ now: number }>(NOW);
    return only(row).now;
  }

  async set(schedule: object): Promise<void> {
    await this.#decide(SET, [JSON.stringify(schedule)]);
  }

  /** Writes the whole set of a queue, unless one of a higher version was written. */
  async setAll(set: object): Promise<void> {
    await this.#decide(SET_ALL, [JSON.stringify(set)]);
  }

  /** @returns whether there was such a schedule */
  async remove(queue: string, name: string): Promise<boolean> {
    return (await this.#decide(REMOVE, [queue, name])).length > 0;
  }

  list(queue: string | null): Promise<ScheduleRecord[]> {
    return this.#runner.query<ScheduleRecord>(LIST, [queue, null]);
  }

  async get(queue: string, name: string): Promise<ScheduleRecord | undefined> {
    const [row] = await this.#runner.query<ScheduleRecord>(LIST, [queue, name]);
    return row;
  }

  /** Enqueues the job of a schedule now. @returns undefined if there is no such schedule @throws NotFound  no such queue */
  async run(queue: string, name: string): Promise<EnqueueResult | undefined> {
    const [row] = await this.#decide<{ answer: EnqueueResult | null }>(RUN, [queue, name]);
    return only(row).answer ?? undefined;
  }

  /** Newest first. @throws NotFound  no such queue */
  runs(queue: string, name: string, limit: number): Promise<ScheduleRun[]> {
    return this.#runner.query<ScheduleRun>(RUNS, [queue, name, limit]);
  }

  /** @returns whether there is such a schedule @throws NotFound  no such queue */
  async pause(queue: string, name: string): Promise<boolean> {
    return (await this.#decide(PAUSE, [queue, name])).length > 0;
  }

  /** @param next  its next tick, ms; null: none @returns whether it was paused, had this pattern, and is resumed now */
  async resume({ queue, name, cron, timezone }: ScheduleRecord, next: number | null): Promise<boolean> {
    return (await this.#decide(RESUME, [queue, name, next, cron, timezone])).length > 0;
  }

  async due(queues: readonly number[]): Promise<Due> {
    const [row] = await this.#runner.query<{ answer: Due }>(DUE, [queues]);
    return only(row).answer;
  }

  /** Enqueues and sets the next tick, in one transaction. @returns how many jobs; null if another process was quicker */
  async tick(tick: Tick): Promise<number | null> {
    const [row] = await this.#decide<{ jobs: number | null }>(TICK, [JSON.stringify(tick)]);
    return only(row).jobs;
  }

  #decide<Row>(sql: Statement, values: unknown[]): Promise<Row[]> {
    return this.#engine.decide<Row>(sql, values, this.#answer);
  }
}
