-- Pages: problems for a person. A tag has at most one open page, however many callers ask for it at once; its severity only rises. Every notification is
-- a row of the outbox, written in the transaction that opened, raised or resolved the page.

-- Opens a page, or counts it once more: {tag, severity 1..4, summary, details, actor, root}. Answers {id, news}: opened, escalated, or none. A page whose
-- cause is known is kept but not delivered.
create or replace function pawl.page_open(p_page json) returns json
language plpgsql as $$
declare
  v_tag text := p_page ->> 'tag';
  v_severity smallint := coalesce((p_page ->> 'severity')::smallint, 3);
  v_page pawl.actor_page;
  v_old smallint;
begin
  if v_tag is null or (p_page ->> 'summary') is null then
    raise exception 'a page needs a tag and a summary' using errcode = 'PW001';
  end if;
  loop
    insert into pawl.actor_page (tag, severity, summary, details, actor, root)
    values (v_tag, v_severity, p_page ->> 'summary', p_page -> 'details', (p_page ->> 'actor')::bigint, p_page ->> 'root')
    on conflict (tag) where resolved_at is null do nothing
    returning * into v_page;
    if found then
      perform pawl.page_notify_unless_known(v_page);
      return json_build_object('id', v_page.id::text, 'news', 'opened');
    end if;
    select p.severity into v_old from pawl.actor_page p where p.tag = v_tag and p.resolved_at is null for update;
    exit when found;  -- otherwise it was resolved meanwhile, and a new one can be opened
  end loop;
  update pawl.actor_page p set
    count = p.count + 1, seen_at = clock_timestamp(), severity = greatest(p.severity, v_severity), summary = p_page ->> 'summary',
    details = case when json_typeof(p_page -> 'details') <> 'null' then p_page -> 'details' else p.details end, acked_at = case when v_severity > p.severity then null else p.acked_at end
  where p.tag = v_tag and p.resolved_at is null
  returning p.* into v_page;
  if v_severity <= v_old then
    return json_build_object('id', v_page.id::text, 'news', 'none');
  end if;
  if v_page.notified_at is not null then
    perform pawl.page_notify(v_page.id, 'escalated');
  else
    perform pawl.page_notify_unless_known(v_page);
  end if;
  return json_build_object('id', v_page.id::text, 'news', 'escalated');
end $$;

-- Whether people know the cause of a page already: the page whose tag is its root is open; or another page with the same root is open, and its
-- notification was written within 15 minutes. Neither counts if it is less severe. Of two that are equal the first counts, so that of pages that are
-- opened at the same moment one is notified.
create or replace function pawl.page_is_known(p_page pawl.actor_page) returns boolean
language sql stable as $$
  select p_page.root is not null and p_page.root <> p_page.tag and (
    exists (
      select 1 from pawl.actor_page r
      where r.tag = p_page.root and r.resolved_at is null and r.severity >= p_page.severity)
    or exists (
      select 1 from pawl.actor_page s
      where s.root = p_page.root and s.resolved_at is null and (s.severity, -s.id) > (p_page.severity, -p_page.id)
        and s.notified_at > clock_timestamp() - interval '15 minutes'))
$$;

create or replace function pawl.page_notify(p_id bigint, p_kind text) returns void
language sql as $$
  insert into pawl.actor_notice (page, severity, kind) select p.id, p.severity, p_kind from pawl.actor_page p where p.id = p_id;
  select pg_notify('pawl_actor', 'page');
$$;

-- For a page without a notification so far: writes one, unless the cause is known.
create or replace function pawl.page_notify_unless_known(p_page pawl.actor_page) returns void
language plpgsql as $$
begin
  if not pawl.page_is_known(p_page) then
    update pawl.actor_page p set notified_at = clock_timestamp() where p.id = p_page.id;
    perform pawl.page_notify(p_page.id, 'opened');
  end if;
end $$;

-- Resolves a page. Answers whether it was open; a second call does nothing. Open pages that it suppressed are notified now: the worst first, which then
-- stands for the others of its root. A suppressed page that is locked is left to a sweep.
create or replace function pawl.page_resolve(p_tag text) returns boolean
language plpgsql as $$
declare
  v_page pawl.actor_page;
  v_hidden pawl.actor_page;
begin
  update pawl.actor_page p set resolved_at = clock_timestamp() where p.tag = p_tag and p.resolved_at is null
  returning p.* into v_page;
  if not found then
    return false;
  end if;
  if v_page.notified_at is not null then
    perform pawl.page_notify(v_page.id, 'resolved');
  end if;
  for v_hidden in
    select p.* from pawl.actor_page p
    where p.root in (p_tag, v_page.root) and p.resolved_at is null and p.notified_at is null
    order by p.severity desc, p.id for update skip locked
  loop
    perform pawl.page_notify_unless_known(v_hidden);
  end loop;
  return true;
end $$;

-- As page_resolve, for callers whose own work does not depend on it: if another transaction has locked the page, and may stay open, the page is left to a
-- sweep.
create or replace function pawl.page_resolve_free(p_tag text) returns boolean
language plpgsql as $$
begin
  perform 1 from pawl.actor_page p where p.tag = p_tag and p.resolved_at is null for update skip locked;
  return found and pawl.page_resolve(p_tag);
end $$;

-- Resolves pages that were locked when they were to be resolved: of actors that are final, of states that were left, of losses that are over.
-- Notifies suppressed pages whose root is resolved.
create or replace function pawl.page_sweep() returns void
language plpgsql
set enable_seqscan = off as $$
declare
  v_page pawl.actor_page;
begin
  perform pawl.page_resolve_free(d.tag)
  from (
    select p.tag from pawl.actor_page p join pawl.actor_instance a on a.id = p.actor
    where p.resolved_at is null and (
      a.finished_at > p.seen_at
      or p.tag = 'actor-deadline:' || a.id and a.entered_at > p.seen_at
      or p.tag = 'actor-lost:' || a.id and a.lost < 3)
    limit 100) d;
  for v_page in
    select p.* from pawl.actor_page p
    where p.resolved_at is null and p.notified_at is null and p.root is not null
      and not exists (
        select 1 from pawl.actor_page r
        where r.resolved_at is null and r.notified_at is not null and p.root in (r.tag, r.root) and r.severity >= p.severity)
    order by p.severity desc, p.id limit 100 for update of p skip locked
  loop
    perform pawl.page_notify_unless_known(v_page);
  end loop;
end $$;

-- Takes notices to deliver now: each belongs to this process for 30 s, and then to any process. If the cause of a notice has become known since it was
-- written, by a page that was opened at the same moment, the notice is dropped, and its page is suppressed.
create or replace function pawl.page_take_notices(p_limit int) returns json
language plpgsql
set enable_seqscan = off as $$
declare
  v_ids bigint[];
  v_notices json;
begin
  v_ids := array(
    select d.id from pawl.actor_notice d where d.done_at is null and d.next_at <= clock_timestamp() order by d.next_at limit p_limit for update skip locked);
  with page as materialized (
    -- A locked page is notified: that makes no transaction wait.
    select p.* from pawl.actor_notice n join pawl.actor_page p on p.id = n.page
    where n.id = any (v_ids) and n.kind = 'opened' and n.attempt = 0 and p.resolved_at is null for update of p skip locked
  ), known as (
    update pawl.actor_notice n set done_at = clock_timestamp() from page p
    where n.id = any (v_ids) and n.kind = 'opened' and n.attempt = 0 and p.id = n.page and pawl.page_is_known(p)
    returning n.page
  )
  update pawl.actor_page p set notified_at = null from known k where p.id = k.page;
  with mine as (
    update pawl.actor_notice n set next_at = clock_timestamp() + interval '30 seconds', attempt = n.attempt + 1
    where n.id = any (v_ids) and n.done_at is null
    returning n.id, n.page, n.kind, n.severity, n.attempt, n.delivered, n.created_at
  )
  select coalesce(json_agg(json_build_object('id', m.id::text, 'kind', m.kind, 'severity', (array['info', 'warning', 'error', 'critical'])[m.severity], 'attempt', m.attempt,
    'delivered', to_json(m.delivered), 'at', m.created_at, 'page', m.page::text, 'tag', p.tag, 'root', p.root, 'summary', p.summary,
    'details', p.details, 'actor', p.actor::text, 'openedAt', p.opened_at, 'count', p.count,
    'suppresses', (
      select count(*) from pawl.actor_page s
      where s.root in (p.tag, p.root) and s.resolved_at is null and s.notified_at is null and p.resolved_at is null)) order by m.id), '[]')
  into v_notices
  from mine m join pawl.actor_page p on p.id = m.page;
  return v_notices;
end $$;

-- Notes a delivery: {id, delivered, wait: ms or null when all channels took it, error}.
create or replace function pawl.page_note_delivery(p_note json) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.actor_notice n set
    delivered = array(select json_array_elements_text(p_note -> 'delivered')), error = p_note ->> 'error',
    done_at = case when p_note ->> 'wait' is null then clock_timestamp() end,
    next_at = case when p_note ->> 'wait' is null then n.next_at else clock_timestamp() + (p_note ->> 'wait')::double precision * interval '1 millisecond' end
  where n.id = (p_note ->> 'id')::bigint
$$;
