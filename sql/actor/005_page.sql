-- Pages: what a person has to look at. One is open per tag, however many ask for it at once; its severity only rises. Every
-- notification is a row of the outbox, written in the transaction that opened, raised or resolved the page.

-- {tag, severity 1..4, summary, details, actor, root}. Answers {id, news}: opened, escalated, or none. While a page whose tag
-- is the root of this one is open, this one is kept but not delivered.
create function pawl.page_open(p_page json) returns json
language plpgsql as $$
declare
  v_tag text := p_page ->> 'tag';
  v_severity smallint := coalesce((p_page ->> 'severity')::smallint, 3);
  v_root text := p_page ->> 'root';
  v_suppressed boolean;
  v_id bigint;
  v_old record;
begin
  if v_tag is null or (p_page ->> 'summary') is null then
    raise exception 'a page needs a tag and a summary' using errcode = 'PW001';
  end if;
  v_suppressed := v_root is not null and v_root <> v_tag
    and exists (select 1 from pawl.actor_page r where r.tag = v_root and r.resolved_at is null);
  loop
    insert into pawl.actor_page (tag, severity, summary, details, actor, root, suppressed)
    values (v_tag, v_severity, p_page ->> 'summary', p_page -> 'details', (p_page ->> 'actor')::bigint, v_root, v_suppressed)
    on conflict (tag) where resolved_at is null do nothing
    returning id into v_id;
    if v_id is not null then
      if not v_suppressed then
        insert into pawl.actor_notice (page, severity, kind) values (v_id, v_severity, 'opened');
        perform pg_notify('pawl_actor', 'page');
      end if;
      return json_build_object('id', v_id::text, 'news', 'opened');
    end if;
    select p.id, p.severity, p.suppressed into v_old from pawl.actor_page p where p.tag = v_tag and p.resolved_at is null for update;
    exit when found;  -- else it was resolved meanwhile, and a new one can be opened
  end loop;
  update pawl.actor_page p set
    count = p.count + 1, seen_at = clock_timestamp(), severity = greatest(p.severity, v_severity), summary = p_page ->> 'summary',
    details = coalesce(p_page -> 'details', p.details), acked_at = case when v_severity > p.severity then null else p.acked_at end
  where p.id = v_old.id;
  if v_severity <= v_old.severity then
    return json_build_object('id', v_old.id::text, 'news', 'none');
  end if;
  if not v_old.suppressed then
    insert into pawl.actor_notice (page, severity, kind) values (v_old.id, v_severity, 'escalated');
    perform pg_notify('pawl_actor', 'page');
  end if;
  return json_build_object('id', v_old.id::text, 'news', 'escalated');
end $$;

-- Answers whether a page was open. Doing it again does nothing. Pages that it suppressed and that are still open are told of now.
create function pawl.page_resolve(p_tag text) returns boolean
language plpgsql as $$
declare
  v_page record;
begin
  update pawl.actor_page p set resolved_at = clock_timestamp() where p.tag = p_tag and p.resolved_at is null
  returning p.id, p.severity, p.suppressed into v_page;
  if v_page.id is null then
    return false;
  end if;
  if not v_page.suppressed then
    insert into pawl.actor_notice (page, severity, kind) values (v_page.id, v_page.severity, 'resolved');
  end if;
  with shown as (
    update pawl.actor_page p set suppressed = false where p.root = p_tag and p.suppressed and p.resolved_at is null returning p.id, p.severity
  )
  insert into pawl.actor_notice (page, severity, kind) select s.id, s.severity, 'opened' from shown s order by s.id;
  perform pg_notify('pawl_actor', 'page');
  return true;
end $$;

-- Notices to deliver now: each is this process's for 30 s, then anybody's.
create function pawl.page_take_notices(p_limit int) returns json
language sql
set enable_seqscan = off as $$
  with mine as (
    update pawl.actor_notice n set next_at = clock_timestamp() + interval '30 seconds', attempt = n.attempt + 1
    where n.ctid = any (array(
      select d.ctid from pawl.actor_notice d where d.done_at is null and d.next_at <= clock_timestamp() order by d.next_at limit p_limit for update skip locked))
    returning n.id, n.page, n.kind, n.severity, n.attempt, n.delivered, n.created_at
  )
  select coalesce(json_agg(json_build_object('id', m.id::text, 'kind', m.kind, 'severity', m.severity, 'attempt', m.attempt,
    'delivered', to_json(m.delivered), 'at', m.created_at, 'page', m.page::text, 'tag', p.tag, 'summary', p.summary, 'details', p.details,
    'actor', p.actor::text, 'openedAt', p.opened_at, 'count', p.count) order by m.id), '[]')
  from mine m join pawl.actor_page p on p.id = m.page
$$;

-- {id, delivered, wait: ms or null when all channels took it, error}
create function pawl.page_note_delivery(p_note json) returns void
language sql as $$
  update pawl.actor_notice n set
    delivered = array(select json_array_elements_text(p_note -> 'delivered')), error = p_note ->> 'error',
    done_at = case when p_note ->> 'wait' is null then clock_timestamp() end,
    next_at = case when p_note ->> 'wait' is null then n.next_at else clock_timestamp() + (p_note ->> 'wait')::double precision * interval '1 millisecond' end
  where n.id = (p_note ->> 'id')::bigint
$$;
