-- How long changes are kept is said by each capture ("keepMs" in its definition; without it they are kept for ever), and workers see to
-- it: no schedule has to be made. A month holds the changes of all captures, so it is dropped when all of them agree.
-- Workers of the version before may keep running.

-- p_capture, p_keep: what somebody asks for this capture now, in place of what it declared.
create function pawl.capture_drop_kept(p_capture smallint, p_keep interval) returns text[]
language plpgsql as $$
declare
  v_month record;
  v_is_kept boolean;
  v_dropped text[] := '{}';
begin
  perform pg_advisory_xact_lock(hashtextextended('capture_make_months', -1000000));
  for v_month in
    select c.relname::text as name, (to_date(substr(c.relname, 16), 'YYYYMM') + interval '1 month') at time zone 'utc' as ends_at
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pawl.capture_change'::regclass and c.relname ~ '^capture_change_[0-9]{6}$' order by 1
  loop
    continue when v_month.ends_at > clock_timestamp();
    execute format($q$
      select exists (
        select from pawl.capture_definition d
        cross join lateral (
          select case when d.id = $1 then $2 else (d.definition ->> 'keepMs')::double precision * interval '1 millisecond' end
        ) k (keep)
        where (k.keep is null or $3 > clock_timestamp() - k.keep) and exists (select from pawl.%1$I c where c.capture = d.id)
      ) or exists (
        select from pawl.capture_line l join pawl.%1$I c on c.capture = l.capture and c.xid >= pg_snapshot_xmin(l.seen)
        where l.guarantee = 'ordered' and not pg_visible_in_snapshot(c.xid, l.seen)
      )$q$, v_month.name) into v_is_kept using p_capture, p_keep, v_month.ends_at;
    continue when v_is_kept;
    execute format('drop table pawl.%I', v_month.name);
    v_dropped := v_dropped || v_month.name;
  end loop;
  return v_dropped;
end $$;

-- What workers run now and then: the months to come are made, those that nobody keeps are dropped. Writers of the log wait while
-- it waits for a lock, so it rather gives up.
create function pawl.capture_keep() returns text[]
language plpgsql as $$
begin
  perform set_config('lock_timeout', '2s', true);
  perform pawl.capture_make_months(2);
  return pawl.capture_drop_kept(null, null);
end $$;
