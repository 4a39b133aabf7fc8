import { instant, SERVER, type Statement, statement } from '../../engine/postgres/index.ts';

// The statements of turns and workers. The functions that they call are in sql/actor/.

export const REGISTER: Statement = statement(
  'actor.register',
  `select pawl.actor_register($1::json) as ids, current_setting('transaction_isolation') as isolation, ${SERVER} as server`,
);
export const LET_GO: Statement = statement('actor.let_go', 'select pawl.actor_release_held($1::jsonb) as actors');
export const CREATE: Statement = statement('actor.create', 'select pawl.actor_create_json($1::json)::text as answer');
export const INCR: Statement = statement('actor.incr', 'select pawl.actor_incr($1::jsonb)::text as answer');
export const INCR_ALONE: Statement = statement('actor.incr_alone', 'select pawl.actor_incr_alone($1::jsonb) as answer');
export const SEND_ALONE: Statement = statement('actor.send_alone', 'select pawl.actor_send_alone($1::json) as answer');
export const SEND: Statement = statement('actor.send', 'select pawl.actor_send_json($1::json)::text as answer');
export const CLAIM: Statement = statement(
  'actor.claim',
  'select pawl.actor_claim($1::bigint, $2::smallint[], $3::int) as answer',
);
export const CLAIM_OR_OFFER: Statement = statement(
  'actor.claim_or_offer',
  'select pawl.actor_claim($1::bigint, $2::smallint[], $3::int, $4::bigint, $5::text) as answer',
);
export const OFFER: Statement = statement(
  'actor.offer',
  'select pawl.actor_offer_add($1::bigint, $2::bigint, $3::text)',
);
export const WITHDRAW: Statement = statement(
  'actor.withdraw',
  'select pawl.actor_withdraw($1::bigint)::text[] as numbers',
);
export const RECALL_CLAIMS: Statement = statement(
  'actor.recall_claims',
  'select pawl.actor_recall($1::bigint, $2::bigint[], $3::bigint[], $4) as answer',
);
export const LEAVE: Statement = statement(
  'actor.leave',
  'select pawl.actor_leave($1::bigint, $2::bigint[], $3::bigint[])',
);
export const WAKE: Statement = statement('actor.wake', 'select pawl.actor_wake($1::smallint[])');
export const CLAIM_ALONE: Statement = statement(
  'actor.claim_alone',
  'select pawl.actor_claim_alone($1::bigint, $2::smallint[], $3) as answer',
);
export const CLAIM_ONE: Statement = statement(
  'actor.claim_one',
  'select pawl.actor_claim_one($1::bigint, $2::bigint) as answer',
);
/** If array_nulls is off, a null in an array is read as a word. So another value represents a missing one, see `commitValues`. */
const COMMIT_CALL = `pawl.actor_commit($1::bigint, $2::bigint[], $3::bigint[], $4::text[], pg_catalog.array_replace($5::double precision[], 'NaN', null),
  $6::text[], pg_catalog.array_replace($7::text[], chr(1), null), pg_catalog.array_replace($8::text[], chr(1), null),
  pg_catalog.array_replace($9::text[], chr(1), null)::json[], pg_catalog.array_replace($10::smallint[], -1::smallint, null),
  pg_catalog.array_replace($11::jsonb[], 'null', null), pg_catalog.array_replace($12::double precision[], 'NaN', null),
  pg_catalog.array_replace($13::text[], chr(1), null), pg_catalog.array_replace($14::text[], chr(1), null)::json[], $15::int[], $16::boolean[],
  pg_catalog.array_replace($17::jsonb[], 'null', null), pg_catalog.array_replace($18::double precision[], 'NaN', null))`;
export const COMMIT: Statement = statement('actor.commit', `select ${COMMIT_CALL} as answer`);
/** With an offer: one round trip, and one commit for both. */
export const COMMIT_AND_OFFER: Statement = statement(
  'actor.commit_and_offer',
  `select ${COMMIT_CALL} as answer, pawl.actor_offer_add($1::bigint, $19::bigint, $20::text)`,
);
export const IDLE: Statement = statement(
  'actor.idle',
  "select set_config('idle_in_transaction_session_timeout', $1, true)",
);
export const UNKNOWN: Statement = statement('actor.unknown', 'select pawl.actor_report_unknown($1::json) as held');
export const LEND: Statement = statement('actor.lend', 'select pawl.actor_run_in_transaction($1::json)');
export const SAVEPOINT: Statement = statement('actor.savepoint', 'savepoint pawl_body', { prepare: false });
export const UNDO: Statement = statement('actor.undo', 'rollback to savepoint pawl_body', { prepare: false });
export const GUARD: Statement = statement('actor.guard', 'select pawl.actor_guard($1::json)');
export const REMEMBER: Statement = statement('actor.remember', 'select pawl.actor_remember($1::json)');
export const RECALL: Statement = statement(
  'actor.recall',
  'select e.result from pawl.actor_effect e where e.actor = $1 and e.visit = $2 and e.key = $3',
);
export const ALLOCATE: Statement = statement(
  'actor.allocate',
  "select pg_catalog.nextval('pawl.actor_id')::text as id from generate_series(1, $1::int)",
);
export const MESSAGES: Statement = statement(
  'actor.messages',
  `
select m.id::text, m.name, m.payload, ${instant('m.at')} as at, q.message is not null as "isAsked"
from pawl.actor_message m
left join pawl.actor_question q on q.message = m.id
where m.actor = $1 and ($2::text is null or m.name = $2) and m.id <> all ($3::bigint[]) and (q.message is null or q.expires_at > clock_timestamp())
order by m.id
limit $4`,
);
export const READ: Statement = statement(
  'actor.read',
  `
with dropped as (
  delete from pawl.actor_message m where m.actor = $1 and m.id = any ($2::bigint[]) returning 1)
select count(*)::int as dropped from dropped`,
);
/**
 * A turn has not taken all messages of these names, and the wake-up for them is gone: this wakes the actor again. An empty name
 * means any.
 */
export const READ_ON: Statement = statement(
  'actor.read_on',
  `
with more as (
  insert into pawl.actor_inbox (actor, type, name)
  select a.id, a.type, '$message'
  from pawl.actor_instance a
  where a.id = $1 and a.finished_at is null
    and exists (select 1 from pawl.actor_message m where m.actor = a.id and ('' = any ($2::text[]) or m.name = any ($2::text[])))
  returning type
)
select pawl.actor_wake(array[m.type]) from more m`,
);
export const CHILDREN: Statement = statement(
  'actor.children',
  `
select a.id::text, t.name as type, a.state, a.key, a.finished_at is not null as "isFinal", a.result, a.fields
from pawl.actor_instance a
join pawl.actor_type t on t.id = a.type
where a.parent = $1
order by a.id`,
);
export const ADD_WORKER: Statement = statement(
  'actor.add_worker',
  `
insert into pawl.actor_worker (host, pid, concurrency, lease, expires_at, types, knows, wants_notify)
values ($1, $2, $3, $4::double precision * interval '1 millisecond', clock_timestamp() + $4::double precision * interval '1 millisecond',
  $5::smallint[], $6::jsonb, $7)
returning id::text`,
);
export const BEAT: Statement = statement(
  'actor.beat',
  'select pawl.actor_beat($1::bigint[], $2::boolean[])::text[] as alive',
);
export const WANTS: Statement = statement(
  'actor.wants',
  'update pawl.actor_worker set wants_notify = $2 where id = $1 and wants_notify <> $2',
);
export const END_WORKER: Statement = statement('actor.end_worker', 'select pawl.actor_end_worker($1::bigint)');
export const RESCUE: Statement = statement(
  'actor.rescue',
  'select pawl.actor_rescue() as actors, pawl.actor_suspects()::int[] as suspects',
);
export const DEADLINES: Statement = statement(
  'actor.deadlines',
  'select pg_catalog.to_json(pawl.actor_deadlines()::numeric) as wait',
);
export const PRUNE: Statement = statement('actor.prune', 'select pawl.actor_prune($1::int) as rows');
export const OPEN_PAGE: Statement = statement('actor.open_page', 'select pawl.page_open($1::json)::text as answer');
export const RESOLVE_PAGE: Statement = statement(
  'actor.resolve_page',
  'select pawl.page_resolve($1::text)::text as answer',
);
export const ASK: Statement = statement('actor.ask', 'select pawl.actor_apply_effect($1, $2::json)::text as answer');
export const RAISED: Statement = statement('actor.raised', 'select pawl.actor_raised($1::bigint[]) as answer');
