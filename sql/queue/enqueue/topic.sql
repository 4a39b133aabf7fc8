-- Topics: a published message becomes a job in each subscribed queue.
--
-- A publish holds the topic's lock, shared, until its transaction ends; a subscription takes the lock exclusively. So the queues that are
-- subscribed when a publish is committed are those that it has read. Publishers do not wait for each other.

-- Publishes {topic, payload, and the options of pawl.enqueue()}, in the caller's transaction. Answers [{queue, kind, id, status, duplicate}, …]:
-- an empty list if no queue is subscribed.
create or replace function pawl.queue_publish(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_topic text := request ->> 'topic';
begin
  if v_topic is null then
    raise exception 'pawl.queue_publish needs a topic, got %', left(request::text, 100) using errcode = 'PW001', column = 'topic';
  end if;
  perform pg_advisory_xact_lock_shared(pawl.queue_topic_lock(v_topic));
  if current_setting('transaction_isolation') <> 'read committed' then
    -- The snapshot may be older than the lock: if a subscription has changed since, this is an error, and not a lost message.
    perform from pawl.queue_topic t where t.name = v_topic for share;
    if not found and octet_length(v_topic) between 1 and 100 then
      -- A topic whose first subscription is newer than the snapshot is not visible, but this insert meets its row, which is the same error.
      insert into pawl.queue_topic (name) values (v_topic) on conflict (name) do nothing;
      delete from pawl.queue_topic t where t.name = v_topic;
    end if;
  end if;
  -- A new statement, which sees what was committed before the lock was granted.
  return coalesce((
    select jsonb_agg(jsonb_build_object('queue', s.queue, 'kind', s.kind)
      || pawl.enqueue((request - 'topic') || jsonb_build_object('queue', s.queue, 'kind', s.kind)) order by s.queue, s.kind)
    from (
      select d.name as queue, k.name as kind from pawl.queue_subscription s
      join pawl.queue_definition d on d.id = s.queue join pawl.queue_kind k on k.id = s.kind
      where s.topic = v_topic order by 1, 2 offset 0) s), '[]');
end $$;

-- Subscribes a queue to a topic, by one of its kinds, or ends the subscription. Answers whether something has changed; null if publishes to this
-- topic stayed open for 500 ms: call again.
create or replace function pawl.queue_subscribe(p_topic text, p_queue text, p_kind text, p_is_on boolean) returns boolean
language plpgsql set lock_timeout = '500ms' as $$
declare
  v_queue smallint := pawl.queue_id(p_queue);
  v_kind smallint;
  v_changed boolean;
begin
  select k.id into v_kind from pawl.queue_kind k where k.queue = v_queue and k.name = p_kind;
  if not found then
    raise exception 'queue "%" has no kind "%"', p_queue, p_kind using errcode = 'PW002';
  end if;
  perform pg_advisory_xact_lock(pawl.queue_topic_lock(p_topic));
  if p_is_on then
    insert into pawl.queue_topic (name) values (p_topic) on conflict (name) do nothing;
    insert into pawl.queue_subscription (topic, queue, kind) values (p_topic, v_queue, v_kind) on conflict do nothing;
  else
    delete from pawl.queue_subscription s where s.topic = p_topic and s.queue = v_queue and s.kind = v_kind;
  end if;
  v_changed := found;
  if v_changed then
    update pawl.queue_topic t set changed_at = clock_timestamp() where t.name = p_topic;
  end if;
  return v_changed;
exception when lock_not_available then
  return null;
end $$;

create or replace function pawl.queue_topic_lock(p_topic text) returns bigint
language sql immutable as $$
  select hashtextextended('topic ' || p_topic, 0)
$$;
