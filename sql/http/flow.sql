-- Flows, batches and topics over HTTP. Each call enqueues its jobs in one transaction, and once for each Idempotency-Key.

-- Adds a graph of jobs, all or none. p_raw is the body, a list of nodes; only their payloads are used, to the letter. p_nodes is a list of
-- {n: the place in p_raw, name, request, after: [names], jobs: [id], batches: [id]}. A node must follow the nodes that it names in `after`.
-- Answers {ids: {name: id}, duplicate}.
create or replace function pawl.http_flow(p_who text, p_key text, p_digest text, p_raw jsonb, p_nodes jsonb, p_trace text) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
  v_raw jsonb := case jsonb_typeof(p_raw) when 'array' then p_raw else jsonb_build_array(p_raw) end;
  v_ids jsonb := '{}';
  v_node jsonb;
  v_after jsonb;
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  for v_node in select n.value from jsonb_array_elements(p_nodes) with ordinality n (value, ord) order by n.ord loop
    select coalesce(jsonb_agg(v_ids -> a.name), '[]') || (v_node -> 'jobs') into v_after from jsonb_array_elements_text(v_node -> 'after') a (name);
    select v_after || coalesce(jsonb_agg(jsonb_build_object('batch', b.id)), '[]') into v_after from jsonb_array_elements_text(v_node -> 'batches') b (id);
    v_answer := pawl.http_enqueue(p_who, null, null, v_raw -> (v_node ->> 'n')::int,
      (v_node -> 'request') || case when v_after = '[]' then '{}' else jsonb_build_object('after', v_after) end, p_trace);
    v_ids := v_ids || jsonb_build_object(v_node ->> 'name', v_answer -> 'id');
  end loop;
  return pawl.http_once_end(p_who, p_key, jsonb_build_object('ids', v_ids, 'duplicate', false));
end $$;

-- Makes an open batch by queue_batch_make, once for each Idempotency-Key.
create or replace function pawl.http_new_batch(p_who text, p_key text, p_digest text, p_raw jsonb) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  return pawl.http_once_end(p_who, p_key, jsonb_build_object('id', pawl.queue_batch_make(p_raw)::text, 'duplicate', false));
end $$;

-- Adds a job, or a list of jobs, to an open batch, and answers as http_enqueue does. A unique job that existed before does not become a member.
create or replace function pawl.http_add_to_batch(
  p_who text, p_key text, p_digest text, p_batch bigint, p_raw jsonb, p_jobs jsonb, p_trace text
) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  perform pawl.queue_batch_join(p_batch);
  v_answer := pawl.http_enqueue(p_who, null, null, p_raw, p_jobs, p_trace);
  perform pawl.queue_batch_members(p_batch, v_answer);
  return pawl.http_once_end(p_who, p_key, v_answer);
end $$;

-- Publishes to a topic. Answers {items, duplicate}.
create or replace function pawl.http_publish(p_who text, p_key text, p_digest text, p_raw jsonb, p_request jsonb) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  return pawl.http_once_end(p_who, p_key, jsonb_build_object(
    'items', pawl.queue_publish(jsonb_build_object('payload', p_raw -> 'payload') || p_request), 'duplicate', false));
end $$;
