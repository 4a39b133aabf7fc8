-- Questions: a message whose sender waits for an answer. The answer is committed with the turn that gives it, and the process that asked is notified. A
-- question counts while its sender waits: after that no turn reads it, and actor_prune() removes it, so a process that dies while it waits leaves
-- nothing.

-- Asks, in a transaction of its own: [{actor, name, channel, wait: ms, direct}, payload]; direct: the actor may be handed over, as by any message. Answers
-- {"message": id, or null if the actor is final; "isSlow": as actor_hand_over() says}, as JSON.
create or replace function pawl.actor_ask(p_message json) returns text
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_message);
  v_actor bigint := (v_part[1] ->> 'actor')::bigint;
  v_handed record;
  v_is_handed boolean := false;
  v_is_slow boolean := false;
  v_type smallint;
  v_finished timestamptz;
  v_message bigint;
begin
  if (v_part[1] ->> 'direct')::boolean then
    v_handed := pawl.actor_hand_over(v_actor, null, 1);
    v_is_handed := v_handed.is_handed_over;
    v_is_slow := v_handed.is_slow;
  end if;
  if not v_is_handed then
    select a.type, a.finished_at into v_type, v_finished from pawl.actor_instance a where a.id = v_actor;
    if v_type is null then
      raise exception 'there is no actor %', coalesce(v_actor::text, '(none given)') using errcode = 'PW002';
    elsif v_finished is not null then
      return '{"message":null,"isSlow":' || v_is_slow || '}';
    end if;
    insert into pawl.actor_inbox (actor, type, name) values (v_actor, v_type, '$message');
    perform pawl.actor_wake(array[v_type]);
  end if;
  insert into pawl.actor_message (actor, name, payload) values (v_actor, v_part[1] ->> 'name', v_part[2]) returning id into v_message;
  insert into pawl.actor_question (message, actor, channel, expires_at)
  values (v_message, v_actor, v_part[1] ->> 'channel', clock_timestamp() + (v_part[1] ->> 'wait')::double precision * interval '1 millisecond');
  return '{"message":"' || v_message || '","isSlow":' || v_is_slow || '}';
end $$;

-- Answers a question, with the commit of the turn: [{message}, answer]. False if its sender does not wait any more: then the sender learns nothing.
create or replace function pawl.actor_reply(p_reply json) returns boolean
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_reply);
  v_message bigint := (v_part[1] ->> 'message')::bigint;
  v_channel text;
begin
  update pawl.actor_question q set answer = v_part[2], answered_at = clock_timestamp()
  where q.message = v_message and q.expires_at > clock_timestamp() returning q.channel into v_channel;
  if not found then
    return false;
  end if;
  perform pg_notify(v_channel, v_message::text);
  return true;
end $$;

-- The state of a question: {"state": "waiting", "answered" with "answer", "unanswered": a turn has read it and given no answer, "late": the same, and its
-- time is over, "final": the actor is final, or "over": its time is over}. It only reads: if it removed a question that no longer waits, the answer would
-- be lost with the connection that was to bring it. The sender removes the question once it has the answer.
create or replace function pawl.actor_look_for_answer(p_message bigint) returns json
language plpgsql stable as $$
declare
  v_question record;
begin
  -- In one snapshot, since a turn removes the message and gives the answer in one transaction.
  select q.actor, q.answered_at, q.answer, q.expires_at, m.id as message, a.finished_at into v_question
  from pawl.actor_question q
  left join pawl.actor_message m on m.actor = q.actor and m.id = q.message
  left join pawl.actor_instance a on a.id = q.actor
  where q.message = p_message;
  if not found then
    return '{"state":"over"}';
  elsif v_question.answered_at is null and v_question.message is not null and v_question.finished_at is null then
    return '{"state":"waiting"}';
  end if;
  return json_build_object('answer', v_question.answer, 'state', case
    when v_question.answered_at is not null then 'answered'
    when v_question.message is null and v_question.expires_at <= clock_timestamp() then 'late'
    when v_question.message is null then 'unanswered'
    else 'final' end);
end $$;

-- Ends a question: its sender does not wait any more, or has the answer. Answers whether no turn has read it: then none will.
create or replace function pawl.actor_end_question(p_message bigint) returns boolean
language plpgsql as $$
declare
  v_actor bigint;
  v_is_unread boolean;
begin
  select q.actor into v_actor from pawl.actor_question q where q.message = p_message;
  -- A turn that has read the message takes its lock before that of the question, too: in another order each would wait for the other.
  delete from pawl.actor_message m where m.actor = v_actor and m.id = p_message;
  v_is_unread := found;
  delete from pawl.actor_question q where q.message = p_message;
  return v_is_unread;
end $$;

-- Removes questions that their senders should have ended over a minute ago: those processes are gone.
create or replace function pawl.actor_prune_questions(p_limit int) returns void
language plpgsql
set enable_seqscan = off as $$
declare
  v_gone bigint[];
begin
  v_gone := array(
    select q.message from pawl.actor_question q where q.expires_at < clock_timestamp() - interval '1 minute'
    order by q.expires_at limit p_limit for update skip locked);
  delete from pawl.actor_message m using pawl.actor_question q
  where q.message = any (v_gone) and m.actor = q.actor and m.id = q.message;
  delete from pawl.actor_question q where q.message = any (v_gone);
end $$;
