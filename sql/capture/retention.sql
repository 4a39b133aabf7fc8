-- Each capture says how long its changes are kept ("keepMs" in its definition; without it they are kept for ever), and workers see to it: no schedule has
-- to be made. A month holds the changes of all captures, so it is dropped when all of them agree.

-- One step of the care for months: makes the table of this month or of one of the two to come, or drops a month that no capture keeps. Both answers are
-- null if there is nothing to do. No table is made for a month of which rows are in the rest already. Fails with lock_not_available if the log is in use;
-- then the caller can try again.
create or replace function pawl.capture_keep(p_capture smallint, p_keep interval, p_drops boolean, out made text, out dropped text)
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  v_at timestamptz;
  v_month record;
begin
  perform set_config('lock_timeout', '20ms', true);
  perform pg_advisory_xact_lock(hashtextextended('capture_make_months', (-1000000)::bigint));
  select 'capture_change_' || to_char(m.at at time zone 'utc', 'YYYYMM'), m.at into made, v_at
  from (
    select (date_trunc('month', clock_timestamp() at time zone 'utc') + make_interval(months => i)) at time zone 'utc' as at,
      (date_trunc('month', clock_timestamp() at time zone 'utc') + make_interval(months => i + 1)) at time zone 'utc' as ends_at
    from generate_series(0, 2) i
  ) m
  where to_regclass('pawl.capture_change_' || to_char(m.at at time zone 'utc', 'YYYYMM')) is null
    and not exists (select from pawl.capture_change_rest r where r.at >= m.at and r.at < m.ends_at)
  order by m.at limit 1;
  if found then
    perform pawl.capture_lock_log(null);
    execute format('create table pawl.%I partition of pawl.capture_change for values from (%L) to (%L)', made, v_at,
      (v_at at time zone 'utc' + interval '1 month') at time zone 'utc');
    return;
  end if;
  if not p_drops then
    return;
  end if;
  for v_month in
    select c.relname::text as name, (to_date(substr(c.relname, 16), 'YYYYMM') + interval '1 month') at time zone 'utc' as ends_at
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pawl.capture_change'::regclass and c.relname ~ '^capture_change_[0-9]{6}$' order by 1
  loop
    continue when v_month.ends_at > clock_timestamp() or pawl.capture_is_kept(v_month.name, v_month.ends_at, p_capture, p_keep);
    perform pawl.capture_lock_log(v_month.name);
    -- A transaction that was still writing has committed by now.
    continue when pawl.capture_is_kept(v_month.name, v_month.ends_at, p_capture, p_keep);
    execute format('drop table pawl.%I', v_month.name);
    dropped := v_month.name;
    return;
  end loop;
  if pawl.capture_prune_rest(p_capture, p_keep) then
    dropped := 'capture_change_rest';
  end if;
end $$;

-- Months without a table of their own are in the rest. Deletes some of their changes that no capture keeps. Answers whether there were any.
create or replace function pawl.capture_prune_rest(p_capture smallint, p_keep interval) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  delete from pawl.capture_change_rest r
  where r.ctid = any (array(
    select c.ctid
    from pawl.capture_change_rest c
    join pawl.capture_definition d on d.id = c.capture
    cross join lateral (
      select case when d.id = p_capture then p_keep else (d.definition ->> 'keepMs')::float8 * interval '1 millisecond' end
    ) k (keep)
    where (date_trunc('month', c.at at time zone 'utc') + interval '1 month') at time zone 'utc' <= clock_timestamp() - k.keep
      and not exists (
        select from pawl.capture_line l
        where l.guarantee = 'ordered' and l.capture = c.capture
          and (pawl.capture_is_foreign(l) or not pg_visible_in_snapshot(c.xid, l.seen)))
    limit 10000));
  return found;
end $$;

-- Whether a capture or a line keeps a month. p_capture, p_keep: the time asked for this capture now, in place of what it declared.
create or replace function pawl.capture_is_kept(p_month text, p_ends_at timestamptz, p_capture smallint, p_keep interval) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  v_is_kept boolean;
begin
  execute format($q$
    select exists (
      select from pawl.capture_definition d
      cross join lateral (
        select case when d.id = $1 then $2 else (d.definition ->> 'keepMs')::float8 * interval '1 millisecond' end
      ) k (keep)
      where (k.keep is null or $3 > clock_timestamp() - k.keep) and exists (select from pawl.%1$I c where c.capture = d.id)
    ) or exists (
      select from pawl.capture_line l join pawl.%1$I c on c.capture = l.capture and c.xid >= pg_snapshot_xmin(l.seen)
      where l.guarantee = 'ordered' and not pg_visible_in_snapshot(c.xid, l.seen)
    ) or exists (
      -- Rows that were written since the restore have numbers that say nothing.
      select from pawl.capture_line l
      where l.guarantee = 'ordered' and pawl.capture_is_foreign(l) and exists (select from pawl.%1$I c where c.capture = l.capture)
    )$q$, p_month) into v_is_kept using p_capture, p_keep, p_ends_at;
  return v_is_kept;
end $$;

-- Locks the log. Writers of the log wait while this waits for it, so it gives up after 20 ms; it takes the locks after that one without waiting.
create or replace function pawl.capture_lock_log(p_month text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  lock table only pawl.capture_change in access exclusive mode;
  lock table pawl.capture_change_rest in access exclusive mode nowait;
  if p_month is not null then
    execute format('lock table pawl.%I in access exclusive mode nowait', p_month);
  end if;
end $$;
