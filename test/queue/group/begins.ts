import type pg from 'pg';

export interface Begin {
  readonly job: string;
  /** By the server's clock, in microseconds. */
  readonly atUs: number;
}

const BEGINS = `
with queue as (select id from pawl.queue_definition where name = $1), run as (
  select r.shard, r.ids, r.claimed_at from pawl.queue_receipt r join queue q on q.id = r.queue
  union all select r.shard, r.ids, r.claimed_at from pawl.queue_running r join queue q on q.id = r.queue
  union all select r.shard, int8multirange(int8range(r.id, r.id + 1)), r.claimed_at from pawl.queue_receipt_one r join queue q on q.id = r.queue
  union all select t.shard, int8multirange(int8range(t.id, t.id + t.n)), t.claimed_at from pawl.queue_transition t join queue q on q.id = t.queue
  where t.from_status = 'in-progress' and t.claimed_at is not null
)
select i.id::text as job, (extract(epoch from r.claimed_at) * 1000000)::bigint::text as at
from run r cross join lateral unnest(r.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
join pawl.queue_job j on j.shard = r.shard and j.id = i.id
where j.group_name = $2 order by r.claimed_at, i.id`;

/** All runs of a group that have begun, those that ended in a crash of their worker included, in the order in which they did. */
export async function beginsOf(client: pg.ClientBase, queue: string, group: string): Promise<Begin[]> {
  const { rows } = await client.query<{ job: string; at: string }>(BEGINS, [queue, group]);
  return rows.map(({ job, at }) => ({ job, atUs: Number(at) }));
}

/** The times that have more begins than a rate allows. @param atUs  rising */
export function excesses(atUs: readonly number[], { limit, perMs }: { limit: number; perMs: number }): string[] {
  return atUs.flatMap((from, first) =>
    atUs.slice(first).flatMap((to, nth) => {
      const most = limit + Math.ceil(((to - from) * limit) / (perMs * 1000));
      return nth + 1 > most ? [`${nth + 1} begins in ${to - from} us, and not ${most}`] : [];
    }),
  );
}
