import { type PostgresEngine, statement } from '../../../engine/postgres/index.ts';

/** Problems in the queues of a database, present or coming. Healthy when all lists are empty. */
export interface QueueHealth {
  /** Workers whose lease has ended and whose jobs no other worker has rescued yet. */
  readonly lostWorkers: readonly LostWorker[];
  /** Keys that count as busy although no worker has a job of theirs, or that wait behind a job that does not exist. */
  readonly strandedKeys: readonly { readonly queue: string; readonly key: string }[];
  /** Keys that are stopped behind a job that ended in error (`keyOnError: 'block'`): 100 at most, the oldest first. */
  readonly blockedKeys: readonly BlockedKey[];
  /** Queues with ready jobs and without a live worker. */
  readonly unattended: readonly string[];
  readonly paused: readonly string[];
}

export interface BlockedKey {
  readonly queue: string;
  readonly key: string;
  /** The first of the jobs to retry or to skip. */
  readonly job: string;
  readonly since: Date;
}

export interface LostWorker {
  readonly worker: string;
  readonly queue: string;
  /** Its host and process id. */
  readonly process: string;
  readonly lostAt: Date;
  /** How many jobs stay in progress until a worker of the queue rescues them. */
  readonly jobs: number;
}

const HEALTH = statement(
  'queue.health',
  `
with running as materialized (
  select distinct j.shard, j.queue, j.key
  from pawl.queue_running r
  cross join pg_catalog.unnest(r.ids) u (span)
  cross join generate_series(pg_catalog.lower(u.span), pg_catalog.upper(u.span) - 1) i (id)
  join pawl.queue_job j on j.shard = r.shard and j.id = i.id
  where j.key is not null
), stranded as (
  select d.name as queue, k.key
  from pawl.queue_key k join pawl.queue_definition d on d.id = k.queue
  where case when k.held
    then not exists (select 1 from running r where r.shard = k.shard and r.queue = k.queue and r.key = k.key)
      and not exists (select 1 from pawl.queue_blocked b where b.shard = k.shard and b.queue = k.queue and b.key = k.key)
    else not exists (select 1 from pawl.queue_ready r where r.shard = k.shard and r.queue = k.queue and r.key = k.key and r.epoch = k.epoch)
      and not exists (select 1 from pawl.queue_delayed w where w.shard = k.shard and w.queue = k.queue and w.key = k.key and w.epoch = k.epoch)
    end
  limit 100
)
select pg_catalog.json_build_object(
  'lostWorkers', coalesce((
    select pg_catalog.json_agg(pg_catalog.json_build_object('worker', w.id::text, 'queue', d.name, 'process', w.host || ':' || w.pid::text,
      'lostAt', w.expires_at, 'jobs', (
        select coalesce(sum(pg_catalog.upper(u.span) - pg_catalog.lower(u.span)), 0)
        from pawl.queue_running r cross join pg_catalog.unnest(r.ids) u (span) where r.worker = w.id)) order by w.id)
    from pawl.queue_worker w join pawl.queue_definition d on d.id = w.queue
    where w.expires_at < clock_timestamp() - interval '15 seconds'), '[]'),
  'strandedKeys', coalesce((select pg_catalog.json_agg(pg_catalog.json_build_object('queue', s.queue, 'key', s.key)) from stranded s), '[]'),
  'unattended', coalesce((
    select pg_catalog.json_agg(d.name order by d.name) from pawl.queue_definition d
    where d.paused_at is null
      and not exists (select 1 from pawl.queue_worker w where w.queue = d.id and w.expires_at > clock_timestamp())
      and exists (
        select from generate_series(0, d.shards - 1) s cross join lateral (
          (select from pawl.queue_ready r where r.shard = s::smallint and r.queue = d.id limit 1)
          union all
          (select from pawl.queue_running r where r.shard = s::smallint and r.queue = d.id limit 1)) x)), '[]'),
  'blockedKeys', coalesce((
    select pg_catalog.json_agg(pg_catalog.json_build_object('queue', d.name, 'key', b.key, 'job', pg_catalog.lower(b.jobs)::text, 'since', b.since) order by b.since, b.key)
    from (select * from pawl.queue_blocked x order by x.since, x.key limit 100) b join pawl.queue_definition d on d.id = b.queue), '[]'),
  'paused', coalesce((select pg_catalog.json_agg(d.name order by d.name) from pawl.queue_definition d where d.paused_at is not null), '[]')
) as health`,
  { prepare: false },
);

/** In the form of the database: JSON has no times. */
interface HealthJson extends Omit<QueueHealth, 'lostWorkers' | 'blockedKeys'> {
  readonly blockedKeys: readonly (Omit<BlockedKey, 'since'> & { readonly since: string })[];
  readonly lostWorkers: readonly (Omit<LostWorker, 'lostAt'> & { readonly lostAt: string })[];
}

/**
 * Finds problems that no worker solves by itself. One statement, so that it sees one moment; its cost grows with the jobs in
 * progress and the busy keys, not with history.
 * @throws SchemaMismatch  the database has no Pawl schema
 */
export async function readQueueHealth(engine: PostgresEngine): Promise<QueueHealth> {
  const [row] = await engine.query<{ health: HealthJson }>(HEALTH);
  if (row === undefined) throw new Error('the database returned no row where there is always one');
  const { lostWorkers, blockedKeys, ...rest } = row.health;
  return {
    ...rest,
    lostWorkers: lostWorkers.map((worker) => ({ ...worker, lostAt: new Date(worker.lostAt) })),
    blockedKeys: blockedKeys.map((blocked) => ({ ...blocked, since: new Date(blocked.since) })),
  };
}
