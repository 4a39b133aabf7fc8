import { type PostgresEngine, statement } from '../engine/postgres/index.ts';

/** What the process of a job holds, or held while the job ran there. */
export interface JobLocks {
  readonly host: string;
  readonly pid: number;
  /** Jobs that run in that process now. With only this one, what was taken since it began is its own. */
  readonly running: number;
  readonly items: readonly object[];
}

/**
 * A lock knows its process and not the job: a handler takes it as any other code does. So these are the locks of the process
 * that the job runs in, or, when it has ended, those that were taken and given back there meanwhile, as long as the
 * history of locks goes back. Undefined when the worker of the job is not known any more.
 */
const JOB_LOCKS = statement(
  'http.job_locks',
  `
with run as (
  select w.host, w.pid, l.claimed_at, l.settled_at,
    (select coalesce(sum(pawl.queue_size(r.ids)), 0)::int from pawl.queue_running r
      where r.worker in (select o.id from pawl.queue_worker o where o.host = w.host and o.pid = w.pid)) as running
  from pawl.queue_job j
  cross join lateral pawl.queue_look(j.shard, j.id, j.queue, j.kind, j.priority, j.key) l
  join pawl.queue_worker w on w.id = l.worker
  where j.shard = pawl.queue_find(null, $1::bigint) and j.id = $1::bigint and l.claimed_at is not null
), held as (
  select x.* from run cross join lateral (
    (select g.namespace, g.name, g.mode, g.permits, g.token::text as token, g.since, null::timestamptz as "endedAt",
      g.since >= run.claimed_at as "sinceJobBegan"
    from pawl.lock g
    where run.settled_at is null and g.state = 'held' and g.host = run.host and g.pid = run.pid
    limit 50)
    union all
    (select p.namespace, p.name, p.mode, p.permits, p.token::text, p.granted_at, p.ended_at, true
    from pawl.lock_history p
    where p.ended_at >= run.claimed_at and p.ended_at <= coalesce(run.settled_at, 'infinity') and p.granted_at >= run.claimed_at
      and p.host = run.host and p.pid = run.pid
    order by p.ended_at desc
    limit 50)
  ) x
)
select run.host, run.pid, run.running,
  coalesce((select json_agg(h order by h.since desc) from held h), '[]') as items
from run`,
);

/** @param engine  with a limit to how long a statement may take */
export async function readJobLocks(engine: PostgresEngine, job: string): Promise<JobLocks | undefined> {
  const [row] = await engine.query<JobLocks>(JOB_LOCKS, [job]);
  return row;
}
