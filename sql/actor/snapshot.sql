-- Earlier fields: for types that declare fieldHistory, each turn that changes the fields keeps the fields before it. Other types keep nothing, and their
-- commits do not call this.

-- Keeps the fields before these turns, by position, of the turns that keep and change them. Only for actor_commit(), in whose transaction the rows stay
-- locked, so that these are the fields that the turn is about to replace. p_refused: turns that are about to be written as failed.
create or replace function pawl.actor_keep_fields(
  p_now timestamptz, p_worker bigint, p_ids bigint[], p_epochs bigint[], p_keeps boolean[], p_states text[], p_fields json[], p_refused bigint[]
) returns void
language sql /* planner: batch */ set search_path = pg_catalog, pg_temp as $$
  with turn as materialized (
    select a.id, a.epoch, a.type, a.fields, u.state, u.fields as next
    from unnest(p_ids, p_epochs, p_keeps, p_states, p_fields) u (id, epoch, keeps, state, fields)
    join pawl.actor_instance a on a.id = u.id and a.epoch = u.epoch and p_worker in (a.worker, a.tx_worker)
    where u.keeps and (p_refused is null or u.id <> all (p_refused))
    order by a.id for no key update of a
  )
  insert into pawl.actor_snapshot (at, actor, epoch, type, state, fields)
  select p_now, t.id, t.epoch, t.type, t.state, t.fields
  from turn t where t.fields::text <> t.next::text
$$;

-- Removes rows that are older than their type keeps them, p_limit rows of each type at most. If a type has stopped keeping fields, its rows go with its
-- history. If it has no history, either, they stay until its actors go.
create or replace function pawl.actor_prune_snapshots(p_limit int) returns void
language sql set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
  delete from pawl.actor_snapshot s where s.ctid = any (array(
    select o.ctid from pawl.actor_type t
    cross join lateral (
      select s.ctid from pawl.actor_snapshot s
      where s.type = t.id and s.at < clock_timestamp() - coalesce(t.field_history, t.history) order by s.at limit p_limit) o))
$$;
