-- Dead letters: if a job has a kind for them, by its own options or by its kind's on_error, and ends in error, the transaction that ends it enqueues a
-- job of that kind.

-- Jobs of a shard (null: of any) have just ended in error, in this transaction: enqueues a dead letter for each that has a kind for it. The letter's
-- payload is {job, queue, kind, key, attempts, error, payload, isPayloadOmitted}. A payload of more than 64 kB, as it is stored, is left out, and so
-- are payloads beyond 16 MB in all: the job that the letter names still has it. The letter has the key of that job.
create or replace function pawl.queue_dead_letters(p_shard smallint, p_ids bigint[]) returns void
language plpgsql /* planner: loop */ as $$
declare
  v_own smallint[];
begin
  v_own := array(select o.queue from pawl.queue_own_letter o union select d.id from pawl.queue_definition d where d.own_letters);
  if v_own = '{}' and not exists (select 1 from pawl.queue_kind k where k.on_error is not null) then
    return;
  end if;
  perform pawl.queue_add(l.queue, l.shard, l.n, l.kinds, '{0}', l.payloads, l.keys) from (
    select d.queue, d.shard, count(*)::int as n, array_agg(d.letter order by d.id) as kinds,
      case when count(d.key) > 0 then array_agg(d.key order by d.id) end as keys,
      json_agg(json_build_object('job', d.id::text, 'queue', d.queue_name, 'kind', d.kind_name, 'key', d.key, 'attempts', d.attempt,
        'error', d.error, 'payload', case when not d.omits then d.payload end, 'isPayloadOmitted', d.omits) order by d.id) as payloads
    from (
      select d.*, l.kind as letter, k.name as kind_name, q.name as queue_name, j.payload,
        s.size > 65536 or sum(least(s.size, 65536)) over (order by d.id) > 16777216 as omits
      from unnest(p_ids) i (id)
      cross join lateral generate_series(coalesce(p_shard, 0), coalesce(p_shard, (select max(x.shards) - 1 from pawl.queue_definition x))) n (shard)
      cross join lateral (select d.* from pawl.queue_dead d where d.shard = n.shard and d.id = i.id and d.status = 'error' offset 0) d
      join pawl.queue_kind k on k.id = d.kind and (k.on_error is not null or d.queue = any (v_own))
      join pawl.queue_definition q on q.id = d.queue
      cross join lateral (select j.payload, j.options from pawl.queue_job j where j.shard = d.shard and j.id = d.id offset 0) j
      cross join lateral (
        select coalesce((select o.id from pawl.queue_kind o where o.queue = d.queue and o.name = j.options ->> 'onError'), k.on_error) as kind offset 0) l
      cross join lateral (select pg_column_size(j.payload) as size) s
      where l.kind is not null
    ) d
    group by d.queue, d.shard) l;
end $$;

-- For jobs that name the kind of their dead letters themselves: refuses a kind that could not be one, by the rules of a kind's onError.
create or replace function pawl.queue_note_letters(p_shard smallint, p_ids bigint[]) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_bad record;
begin
  select j.options ->> 'onError' as kind, q.id as queue_id, q.name as queue, q.blocks, l.id is null as is_unknown,
    l.unique_key or l.unique_rule is not null as is_unique into v_bad
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue
  left join pawl.queue_kind l on l.queue = j.queue and l.name = j.options ->> 'onError'
  where j.shard = p_shard and j.id = any (p_ids) and (q.blocks or l.id is null or l.unique_key or l.unique_rule is not null
    or (j.key is null and (l.needs_key or l.coalesce <> 'none' or cardinality(l.after) > 0)))
  limit 1;
  if found then
    raise exception 'the dead letter of this job cannot be enqueued: %', case
      when v_bad.is_unknown then format('queue "%s" has no kind "%s"; it has %s', v_bad.queue, v_bad.kind,
        (select string_agg('"' || k.name || '"', ', ' order by k.name) from pawl.queue_kind k where k.queue = v_bad.queue_id))
      when v_bad.blocks then format('it has the key of the job, and would wait behind it, since queue "%s" has keyOnError: ''block''', v_bad.queue)
      when v_bad.is_unique then format('kind "%s" is unique, so a second dead letter of a key would not be enqueued', v_bad.kind)
      else format('kind "%s" needs a key, and the job has none', v_bad.kind) end using errcode = 'PW001', column = 'onError';
  end if;
  insert into pawl.queue_own_letter (queue)
  select distinct j.queue from pawl.queue_job j
  where j.shard = p_shard and j.id = any (p_ids) and not exists (select 1 from pawl.queue_own_letter o where o.queue = j.queue);
end $$;

-- Puts the job of a dead letter back to work, and ends the letter, in the same transaction: a letter that waits is cancelled. The request names the
-- letter, as pawl.retry() does its job: a job that was cancelled since is retried, too, and one that waits again is due now. Answers {"id", "status":
-- "new", "letter"}. PW001: it is no dead letter; PW003: the letter or its job is in progress, or its job is complete.
create or replace function pawl.redrive(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_id bigint := pawl.queue_named('pawl.redrive', request, '{}');
  v_begun timestamptz := clock_timestamp();
  v_letter record;
  v_status text;
begin
  select j.payload, k.name as kind_name, j.shard, exists (select 1 from pawl.queue_kind o where o.on_error = j.kind) as is_letter into v_letter
  from pawl.queue_job j join pawl.queue_kind k on k.id = j.kind
  where j.shard = pawl.queue_find(request ->> 'queue', v_id) and j.id = v_id;
  if json_typeof(v_letter.payload) <> 'object' or coalesce(v_letter.payload ->> 'job', '') !~ '^[1-9][0-9]{0,17}$'
    or not (v_letter.is_letter or pawl.queue_names_letter((v_letter.payload ->> 'job')::bigint, v_letter.kind_name)) then
    raise exception 'job % of kind "%" is no dead letter: its payload names no job whose dead letter it could be', v_id, v_letter.kind_name using errcode = 'PW001', column = 'id';
  end if;
  loop
    v_status := pawl.queue_status(v_letter.shard, v_id);
    if v_status = 'in-progress' then
      raise exception 'dead letter % is in progress: its handler decides about job %; retry that one by its id', v_id, v_letter.payload ->> 'job'
        using errcode = 'PW003';
    elsif v_status = 'new' then
      v_status := pawl.queue_cancel_job(null, v_id, 'redriven', p_is_open => true);
    end if;
    exit when v_status not in ('busy', 'in-progress');
    perform pawl.queue_await_others(v_id, v_begun);
  end loop;
  return pawl.retry(jsonb_build_object('id', v_letter.payload ->> 'job')) || jsonb_build_object('letter', v_id::text);
end $$;

-- Whether a job's own options name this kind for its dead letters.
create or replace function pawl.queue_names_letter(p_id bigint, p_kind text) returns boolean
language sql stable /* planner: probe */ as $$
  select exists (
    select 1 from (select pawl.queue_shard_of(p_id) as shard offset 0) s cross join lateral (
      select j.options from pawl.queue_job j where j.shard = s.shard and j.id = p_id offset 0) j
    where j.options ->> 'onError' = p_kind)
$$;
