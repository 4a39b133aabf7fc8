import { only, type PostgresEngine, statement, type Transaction } from '../../engine/postgres/index.ts';
import { type JobStatus, nextTicks } from '../../queue/index.ts';

const NEWEST = statement(
  'test_queue.newest',
  'select case when is_called then last_value else 0 end::text as id from pawl.queue_job_id',
);
const RESTLESS = statement(
  'test_queue.restless',
  `
with q as (select id from pawl.queue_definition where name = $1::text)
select exists (select from pawl.queue_ready r join q on q.id = r.queue)
  or exists (select from pawl.queue_running r join q on q.id = r.queue)
  or exists (select from pawl.queue_delayed d join q on q.id = d.queue where d.run_at <= clock_timestamp())
  -- Behind a head that backs off, or is delayed, a job is at rest until that one is due; behind one in error that blocks the key, until
  -- that one is retried or skipped.
  or exists (
    select from pawl.queue_parked p join q on q.id = p.queue
    where not exists (select from pawl.queue_delayed d where d.shard = p.shard and d.queue = p.queue and d.key = p.key)
      and not exists (select from pawl.queue_blocked b where b.queue = p.queue and b.shard = p.shard and b.key = p.key))
  -- A full group is at rest as long as the jobs that have its places are.
  or exists (
    select from pawl.queue_grouped g join q on q.id = g.queue
    where exists (
      select from pawl.queue_group_note n where n.shard = g.shard and n.queue = g.queue and n.group_name = g.group_name))
  or exists (select from pawl.queue_rate r join q on q.id = r.queue where r.due_at <= clock_timestamp()) as restless`,
);
const FIND = statement(
  'test_queue.find',
  `
select j.id::text as id
from pawl.queue_job j
join pawl.queue_definition q on q.id = j.queue
join pawl.queue_kind k on k.id = j.kind
where q.name = $1::text and j.id > $2::bigint and ($3::text is null or k.name = $3::text)
  and ($4::text is null or exists (select from pawl.queue_history(j.shard, j.id) h where h.to_status = $4::text))
order by j.id`,
);
// Later than every time that a caller can name. A job that comes after others, or is of a paused part, has such a time, and waits for
// none: see pawl.queue_never() and pawl.queue_set_aside_at().
const NEVER = "timestamptz '10000-01-01 00:00:00+00'";
// Rounded up to whole milliseconds, so that a job is then due, and a tick keeps its time to the millisecond.
const NEXT = statement(
  'test_queue.next',
  `
select pg_catalog.ceil(extract(epoch from pg_catalog.min(d.at) - clock_timestamp()) * 1000::numeric)::float8 as wait
from (select queue, run_at as at from pawl.queue_delayed union all select queue, due_at from pawl.queue_rate) d
join pawl.queue_definition q on q.id = d.queue
where q.name = $1::text and d.at < ${NEVER}`,
);
const SCHEDULES = statement(
  'test_queue.schedules',
  `
select s.queue, s.name, s.cron, s.timezone, (extract(epoch from s.next_at) * 1000::numeric)::float8 as next,
  pg_catalog.ceil(extract(epoch from s.next_at - clock_timestamp()) * 1000::numeric)::float8 as wait
from pawl.queue_schedule s join pawl.queue_definition q on q.id = s.queue
where q.name = $1::text and s.paused_at is null and s.next_at < 'infinity'`,
);
const TICK = statement('test_queue.tick', 'select pawl.queue_tick($1::json)');
const SHIFT_JOBS = statement(
  'test_queue.shift_jobs',
  `
with time as (
  select q.id as queue, $2::float8 * interval '1 millisecond' as gone from pawl.queue_definition q where q.name = $1::text
), jobs as (
  update pawl.queue_job j set created_at = j.created_at - t.gone, run_at = j.run_at - t.gone
  from pawl.queue_delayed d join time t on t.queue = d.queue
  where j.shard = d.shard and j.id >= d.id and j.id < d.id + d.n
), permits as (
  update pawl.queue_permit p set used_at = p.used_at - t.gone from time t where p.queue = t.queue
), rates as (
  update pawl.queue_rate r set tat = r.tat - t.gone, due_at = r.due_at - t.gone from time t where r.queue = t.queue
), digests as (
  update pawl.queue_unique u set at = u.at - t.gone from time t where u.queue = t.queue
)
update pawl.queue_delayed d set run_at = d.run_at - t.gone
from time t where d.queue = t.queue and d.run_at < ${NEVER}`,
);
// A statement of its own: the one before changes the same rows.
const SHIFT_EXPIRIES = statement(
  'test_queue.shift_expiries',
  `
with moved as (
  update pawl.queue_expiry e set expires_at = e.expires_at - $2::float8 * interval '1 millisecond'
  from pawl.queue_definition q where q.name = $1::text and e.queue = q.id returning e.shard, e.id
)
update pawl.queue_job j set options = pg_catalog.jsonb_set(j.options::jsonb, '{expiresAt}', pg_catalog.to_jsonb(pg_catalog.to_char(
  ((j.options ->> 'expiresAt'::text)::timestamptz - $2 * interval '1 millisecond') at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))::json
from moved m where j.shard = m.shard and j.id = m.id and j.options ->> 'expiresAt'::text is not null`,
);
const EXPIRE = statement(
  'test_queue.expire',
  'select pawl.queue_expire(q.id, 1000) from pawl.queue_definition q where q.name = $1::text',
);
const SHIFT_SCHEDULES = statement(
  'test_queue.shift_schedules',
  `
with time as (
  select q.id as queue, $2::float8 * interval '1 millisecond' as gone from pawl.queue_definition q where q.name = $1::text
)
update pawl.queue_schedule s set next_at = s.next_at - t.gone
from time t where s.queue = t.queue`,
);

interface ScheduleRow extends Record<string, unknown> {
  readonly queue: number;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly next: number;
  readonly wait: number;
}

/** The queue of a test, in the database. */
export class PostgresTestQueue {
  readonly #engine: PostgresEngine;
  readonly #queue: string;
  /** The time that has passed for schedules, although no clock shows it: their patterns are computed with it. */
  #passedMs = 0;

  constructor(engine: PostgresEngine, queue: string) {
    this.#engine = engine;
    this.#queue = queue;
  }

  /** The id of the newest job of any queue. */
  async newest(): Promise<string> {
    return only(await this.#engine.query<{ id: string }>(NEWEST)).id;
  }

  /** Whether a job runs or could run. */
  async isRestless(): Promise<boolean> {
    return only(await this.#engine.query<{ restless: boolean }>(RESTLESS, [this.#queue])).restless;
  }

  /** Jobs with a higher id, oldest first; with a status, jobs that are or were in it. */
  async find(since: string, kind: string | null, status: JobStatus | null): Promise<string[]> {
    const rows = await this.#engine.query<{ id: string }>(FIND, [this.#queue, since, kind, status]);
    return rows.map(({ id }) => id);
  }

  /** How long until the next delayed job is due; undefined if there is none. */
  async waitForJob(): Promise<number | undefined> {
    const { wait } = only(await this.#engine.query<{ wait: number | null }>(NEXT, [this.#queue]));
    return wait === null ? undefined : Math.max(0, wait);
  }

  /** How long until the next delayed job or the next tick of a schedule is due; undefined if there is neither. */
  async wait(): Promise<number | undefined> {
    const job = await this.waitForJob();
    const ticks = (await this.#schedules()).map(({ wait }) => Math.max(0, wait));
    const all = job === undefined ? ticks : [job, ...ticks];
    return all.length === 0 ? undefined : Math.min(...all);
  }

  /** Moves all that is for later closer by this time, except schedules; jobs that have expired by then end. */
  async shiftJobs(ms: number): Promise<void> {
    await this.#engine.transaction((tx) => this.#shiftJobs(tx, ms));
  }

  /**
   * Lets time pass: moves all future times closer by this time. It enqueues the jobs of ticks that become due, because a worker
   * would compute the next tick from a clock that has not moved.
   */
  async shift(ms: number): Promise<void> {
    const due = (await this.#schedules()).filter(({ wait }) => wait <= ms);
    await this.#engine.transaction(async (tx) => {
      // Before the ticks: this time has passed for no job that they enqueue, and a jitter delays such a job.
      await this.#shiftJobs(tx, ms);
      for (const schedule of due) await tx.query(TICK, [JSON.stringify(this.#tick(schedule))]);
      await tx.query(SHIFT_SCHEDULES, [this.#queue, ms]);
    });
    this.#passedMs += ms;
  }

  async #shiftJobs(tx: Transaction, ms: number): Promise<void> {
    await tx.query(SHIFT_JOBS, [this.#queue, ms]);
    await tx.query(SHIFT_EXPIRIES, [this.#queue, ms]);
    // Before a worker sees the jobs that are due now.
    await tx.query(EXPIRE, [this.#queue]);
  }

  /** The job gets the time of the pattern, as if all the time had passed. */
  #tick({ queue, name, cron, timezone, next }: ScheduleRow): object {
    const at = next + this.#passedMs;
    const [, following] = nextTicks(cron, timezone, new Date(at), 2);
    const then = following === undefined ? null : following.getTime() - this.#passedMs;
    return { queue, name, cron, seen: next, ticks: [at], next: then };
  }

  #schedules(): Promise<ScheduleRow[]> {
    return this.#engine.query<ScheduleRow>(SCHEDULES, [this.#queue]);
  }
}
