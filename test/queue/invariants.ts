import type pg from 'pg';

/** Every place of a job, one row per job; the receipts are those of complete jobs. */
const PLACES = `
place as materialized (
  select shard, r.id + i as id, key, 'ready' as place, null::bigint as worker, epoch
  from pawl.queue_ready r cross join lateral generate_series(0, r.n - 1) i
  union all
  select shard, d.id + i, key, 'delayed', null, epoch
  from pawl.queue_delayed d cross join lateral generate_series(0, d.n - 1) i
  union all select shard, id, key, 'parked', null, null from pawl.queue_parked
  union all select shard, id, key, 'grouped', null, null from pawl.queue_grouped
  union all
  select r.shard, i.id, null, 'running', r.worker, null
  from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
  cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
  union all select shard, id, key, 'dead', null, null from pawl.queue_dead
  union all
  select r.shard, i.id, null, 'complete', r.worker, null
  from pawl.queue_receipt r cross join lateral unnest(r.ids) u (span)
  cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
  union all select shard, id, null, 'complete', worker, null from pawl.queue_receipt_one
)`;

/**
 * The invariants of every committed state of a queue whose history is not pruned. Each returned row is a breach, in words.
 */
const BREACHES = `
with ${PLACES}, job as materialized (
  select j.shard, j.id, j.queue, case when q.keyed then j.key end as key
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue
), busy as materialized (
  select j.shard, j.queue, j.key, count(distinct p.worker) as workers
  from place p join job j on j.shard = p.shard and j.id = p.id
  where p.place = 'running' and j.key is not null group by 1, 2, 3
)
select format('job %s is in no place', j.id) as breach
from job j where not exists (select 1 from place p where p.shard = j.shard and p.id = j.id)
union all
select format('job %s is in %s', p.id, string_agg(p.place, ' and ' order by p.place))
from place p group by p.shard, p.id having count(*) > 1
union all
select format('%s holds job %s, which was never enqueued', p.place, p.id)
from place p where not exists (select 1 from job j where j.shard = p.shard and j.id = p.id)
union all
select format('job %s of key %s is %s under key %s', p.id, j.key, p.place, p.key)
from place p join job j on j.shard = p.shard and j.id = p.id
where p.place in ('ready', 'delayed', 'parked', 'grouped') and p.key is distinct from j.key
union all
select format('job %s is parked under key %s, of which nothing is ready and which nobody has', p.id, p.key)
from place p join job j on j.shard = p.shard and j.id = p.id
where p.place = 'parked' and not exists (
  select 1 from pawl.queue_key k where k.shard = p.shard and k.queue = j.queue and k.key = p.key)
and not exists (
  select 1 from pawl.queue_ready r where r.shard = p.shard and r.queue = j.queue and r.key = p.key)
union all
select format('key %s waits with %s heads', k.key, h.n)
from pawl.queue_key k cross join lateral (
  select count(*) as n from place p join job j on j.shard = p.shard and j.id = p.id
  where p.place in ('ready', 'delayed') and p.shard = k.shard and j.queue = k.queue and p.key = k.key and p.epoch = k.epoch
) h
where not k.held and h.n <> 1
union all
select format('key %s is held, and none of its jobs is running', k.key)
from pawl.queue_key k
where k.held and not exists (select 1 from busy b where b.shard = k.shard and b.queue = k.queue and b.key = k.key)
  and not exists (select 1 from pawl.queue_blocked b where b.shard = k.shard and b.queue = k.queue and b.key = k.key)
union all
select format('key %s is blocked, and claims may take it', b.key)
from pawl.queue_blocked b where not exists (
  select 1 from pawl.queue_key k where k.shard = b.shard and k.queue = b.queue and k.key = b.key and k.held)
  or exists (select 1 from busy x where x.shard = b.shard and x.queue = b.queue and x.key = b.key)
union all
select format('job %s blocks key %s, and has not ended in error', i.id, b.key)
from pawl.queue_blocked b cross join lateral unnest(b.jobs) u (span)
cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
where not exists (select 1 from pawl.queue_dead d where d.shard = b.shard and d.id = i.id and d.status = 'error')
union all
select format('key %s has running jobs, and is not held', b.key)
from busy b where not exists (
  select 1 from pawl.queue_key k where k.shard = b.shard and k.queue = b.queue and k.key = b.key and k.held)
union all
select format('job %s of group %s is %s without a place', j.id, j.group_name, p.place)
from place p join pawl.queue_job j on j.shard = p.shard and j.id = p.id
where j.group_name is not null and not exists (select 1 from pawl.queue_place o where o.shard = j.shard and o.id = j.id)
  and (p.place in ('ready', 'parked', 'running') or p.place = 'delayed' and exists (
    select 1 from pawl.queue_delayed d where d.shard = j.shard and d.id = j.id and d.group_name is null))
union all
select format('job %s has a place of group %s and is %s', o.id, o.group_name, coalesce(p.place, 'nowhere'))
from pawl.queue_place o left join place p on p.shard = o.shard and p.id = o.id
where p.place is null or p.place in ('grouped', 'dead', 'complete') or p.place = 'delayed' and exists (
  select 1 from pawl.queue_delayed d where d.shard = o.shard and d.id = o.id and d.group_name is not null)
union all
select format('jobs of group %s wait, %s places of %s are taken, and nobody is to look', g.group_name, t.taken, q.per_group)
from (select distinct g.shard, g.queue, g.group_name from pawl.queue_grouped g) g join pawl.queue_definition q on q.id = g.queue
cross join lateral (
  select count(*) as taken from pawl.queue_place o where o.shard = g.shard and o.queue = g.queue and o.group_name = g.group_name) t
where (q.per_group is null or t.taken < q.per_group) and not exists (
  select 1 from pawl.queue_group_note n where n.shard = g.shard and n.queue = g.queue and n.group_name = g.group_name)
and not exists (
  select 1 from pawl.queue_rate r where r.shard = g.shard and r.queue = g.queue and r.group_name = g.group_name and r.due_at is not null
    and q.rate_limit is not null)
union all
select format('group %s is %s ahead of its rate', r.group_name, r.tat - clock_timestamp())
from pawl.queue_rate r join pawl.queue_definition q on q.id = r.queue
where q.rate_limit is not null and r.tat > clock_timestamp() + q.rate_per + interval '2 s'
union all
select format('places are taken in queue %s, and settlements do not look for them', o.queue)
from (select distinct o.shard, o.queue from pawl.queue_place o) o where not exists (
  select 1 from pawl.queue_watch_part w where w.shard = o.shard and w.bucket = -1 and w.first = o.queue)
union all
select format('key %s is worked on by %s workers', b.key, b.workers) from busy b where b.workers > 1`;

/**
 * A function, so that its plan is cached. The planner estimates each range at a hundred thousand jobs, and freeing a hash
 * table of that size takes 50 ms.
 */
const CHECK = `
create function pg_temp.breaches() returns setof text language plpgsql
set enable_hashjoin = off set enable_hashagg = off set jit = off as $$ begin return query ${BREACHES}; end $$`;

const checked = new WeakSet<pg.ClientBase>();

/** Every breach of the queue's invariants in this database; empty when all of them hold. */
export async function breaches(client: pg.ClientBase): Promise<string[]> {
  if (!checked.has(client)) await client.query(CHECK);
  checked.add(client);
  const { rows } = await client.query<{ breach: string }>('select pg_temp.breaches() as breach');
  return rows.map((row) => row.breach);
}

/** How many jobs are in each place, for messages and for "everything is done". */
export async function places(client: pg.ClientBase, queue: number): Promise<Record<string, number>> {
  // By a name, since it is asked again and again, and planning it takes longer than it does.
  const { rows } = await client.query<{ place: string; n: number }>({
    name: 'test.places',
    text: `with ${PLACES} select p.place, count(*)::int as n from place p
     join pawl.queue_job j on j.shard = p.shard and j.id = p.id where j.queue = $1 group by 1`,
    values: [queue],
  });
  return Object.fromEntries(rows.map(({ place, n }) => [place, n]));
}
