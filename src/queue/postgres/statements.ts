import { SERVER, type Statement, statement } from '../../engine/postgres/index.ts';

// The statements of workers and producers. The functions they call are in sql/queue/.

export const REGISTER: Statement = statement(
  'queue.register',
  `select pawl.queue_register($1::json) as answer, current_setting('transaction_isolation') as isolation,
  'pawl'::regnamespace::oid::text as schema, ${SERVER} as server`,
);
/**
 * The queue of `$1`, whose higher digits are the oid of the schema in which it was registered. In a schema that was dropped
 * and made again, the same id belongs to another queue. This check costs nothing: the schema's oid is a constant of the
 * prepared statement.
 */
const HERE = `case when $1::bigint / 65536 = 'pawl'::regnamespace::oid::bigint then ($1::bigint % 65536::bigint)::smallint else pawl.queue_refuse_schema() end`;
/** As text, since the library of the caller's transaction might parse JSON in its own way. */
export const ENQUEUE: Statement = statement('queue.enqueue', 'select pawl.enqueue($1::jsonb)::text as answer');
/** If array_nulls is off, a null in an array literal is read as the word NULL: a value that no job has replaces it. */
const ADD_CALL = `pawl.queue_add(${HERE}, $2::smallint, $3::int, $4::smallint[], $5::smallint[], $6::json,
  pg_catalog.array_replace($7::text[], '', null), pg_catalog.array_replace($8::timestamptz[], 'infinity', null), $9::json,
  pg_catalog.array_replace($10::double precision[], '-1', null), $11::smallint)`;
export const ADD: Statement = statement('queue.add', `select ${ADD_CALL}::text as ids`);
export const ADD_ONE: Statement = statement(
  'queue.add_one',
  `select pawl.queue_add_one(${HERE}, $2::smallint, $3::smallint, $4::smallint, $5::json, $6::text, $7::timestamptz, $8::json, $9::double precision)::text as id`,
);
export const ADD_ALONE: Statement = statement(
  'queue.add_alone',
  `select pawl.queue_add_alone(${HERE}, $2::smallint, $3::smallint, $4::smallint, $5::json, $6::text, $7::timestamptz, $8::json, $9::double precision) as answer`,
);
export const ADD_AWAITED: Statement = statement(
  'queue.add_awaited',
  `select pawl.queue_add_awaited(${HERE}, $2::smallint, $3::smallint, $4::smallint, $5::json, $6::text, $7::timestamptz, $8::json, $9::double precision, $10::text) as answer`,
);
/**
 * The same with the trace of these jobs: one statement, so that no worker runs one of them before its trace is stored. In a
 * caller's transaction the trace is a second statement.
 */
export const ENQUEUE_TRACED: Statement = statement(
  'queue.enqueue_traced',
  `
with added as materialized (
  select pawl.enqueue($1::jsonb) as answer
), trace as (
  insert into pawl.queue_trace (id, parent) select (x.job ->> 'id'::text)::bigint, $2::text
  from added a cross join lateral pg_catalog.jsonb_array_elements(
    case pg_catalog.jsonb_typeof(a.answer) when 'array'::text then a.answer else pg_catalog.jsonb_build_array(a.answer) end) x (job)
  where not (x.job ->> 'duplicate'::text)::boolean
)
select a.answer from added a`,
);
export const ADD_TRACED: Statement = statement(
  'queue.add_traced',
  `
with added as materialized (
  select ${ADD_CALL} as ids
), trace as (
  insert into pawl.queue_trace (id, parent) select pg_catalog.unnest(a.ids), $12::text from added a
)
select a.ids::text as ids from added a`,
);
export const ADD_UNIQUE: Statement = statement(
  'queue.add_unique',
  'select pawl.queue_add_unique($1::json)::text as answer',
);
export const ADD_UNIQUE_TRACED: Statement = statement(
  'queue.add_unique_traced',
  `
with added as materialized (
  select pawl.queue_add_unique($1::json) as answer
), trace as (
  insert into pawl.queue_trace (id, parent)
  select i.id::bigint, $2::text from added a
  cross join lateral pg_catalog.json_array_elements_text(a.answer -> 'ids'::text) with ordinality i (id, nth)
  left join lateral pg_catalog.json_array_elements_text(a.answer -> 'duplicates'::text) d (nth) on d.nth::bigint = i.nth - 1
  where d.nth is null
)
select a.answer::text as answer from added a`,
);
export const TRACE = `
with trace as (
  insert into pawl.queue_trace (id, parent)
  select t.id::bigint, r.request ->> 0
  from (select $1::json as request) r cross join lateral pg_catalog.json_array_elements_text(r.request -> 1) t (id)
  returning id
)
select count(*)::int as traced from trace`;
export const TRACES: Statement = statement(
  'queue.traces',
  'select t.id::text as id, t.parent from pawl.queue_trace t where t.id = any ($1::bigint[])',
);
export const PRUNE_TRACES: Statement = statement('queue.prune_traces', 'select pawl.queue_trace_prune(10000)');
export const ADD_JSON = 'select pawl.queue_add_json($1::json)::text as ids';
export const BATCH_ADD: Statement = statement('queue.batch_add', 'select pawl.queue_batch_add($1::json)::text as ids');
export const CLAIM: Statement = statement(
  'queue.claim',
  `select pawl.queue_claim($1::smallint, $2::smallint, $3::bigint, $4::int, $5::int, $6::int, $7::int, $8::smallint, $9::bigint) as answer`,
);
/** For a worker that takes a part of the work, and makes no offers. */
export const CLAIM_PART: Statement = statement(
  'queue.claim_part',
  `select pawl.queue_claim($1::smallint, $2::smallint, $3::bigint, $4::int, $5::int, $6::int, $7::int, $8::smallint, $9::bigint, null, null, $10::smallint[], $11::smallint) as answer`,
);
export const CLAIM_OR_OFFER: Statement = statement(
  'queue.claim_or_offer',
  `select pawl.queue_claim($1::smallint, $2::smallint, $3::bigint, $4::int, $5::int, $6::int, $7::int, $8::smallint, $9::bigint, $10::bigint, $11::text) as answer`,
);
export const PEEK: Statement = statement(
  'queue.peek',
  'select pawl.queue_peek_ready($1::smallint, $2::smallint, $3::bigint, $4::int, $5::smallint, $6::bigint) as candidates',
);
const SETTLE_CALL =
  'pawl.queue_settle($1::smallint, $2::smallint, $3::bigint, $4::bigint[], $5::json, $6::json, $7::json, $8::text[], $9::bigint[], $10::text[], $11::json, $12::bigint[])';
export const SETTLE: Statement = statement('queue.settle', `select ${SETTLE_CALL} as answer`);
/** A settlement with an offer: one round trip, and one commit for both. */
export const SETTLE_AND_OFFER: Statement = statement(
  'queue.settle_and_offer',
  `select ${SETTLE_CALL} as answer, pawl.queue_offer_add($1::smallint, $3::bigint, $13::bigint, $14::text)`,
);
export const OFFER: Statement = statement(
  'queue.offer',
  'select pawl.queue_offer_add($1::smallint, $2::bigint, $3::bigint, $4::text)',
);
export const WITHDRAW: Statement = statement(
  'queue.withdraw',
  'select pawl.queue_withdraw($1::smallint, $2::bigint)::text as numbers',
);
export const WAKE: Statement = statement('queue.wake', 'select pawl.queue_wake($1::smallint)');
export const ADD_WORKER: Statement = statement(
  'queue.add_worker',
  `
with back as (
  update pawl.queue_definition d set removed_at = null where d.id = ${HERE} and d.removed_at is not null
)
insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold, takes)
values (${HERE}, $2, $3, $4, $5::double precision * interval '1 millisecond', clock_timestamp() + $5::double precision * interval '1 millisecond', $6, $7::json)
returning id::text`,
);
export const BEAT: Statement = statement('queue.beat', 'select pawl.queue_beat($1::json) as answer');
export const WANTS: Statement = statement('queue.wants', 'select pawl.queue_set_wants_notify($1::bigint, $2::boolean)');
export const RECALL: Statement = statement(
  'queue.recall',
  'select pawl.queue_recall($1::smallint, $2::bigint, $3::bigint[]) as answer',
);
export const PROGRESS: Statement = statement('queue.progress', 'select pawl.queue_progress($1::json)');
export const PARENTS: Statement = statement(
  'queue.parents',
  'select pawl.queue_parents($1::smallint, $2::bigint) as parents',
);
export const GUARD = 'select pawl.queue_guard($1::json)';
export const LEAVE: Statement = statement(
  'queue.leave',
  'select pawl.queue_leave($1::smallint, $2::bigint, $3::bigint[])',
);
export const REMOVE_WORKER: Statement = statement(
  'queue.remove_worker',
  'delete from pawl.queue_worker where id = $1::bigint',
);
export const RESCUE: Statement = statement(
  'queue.rescue',
  'select r.jobs, r.ended, pawl.queue_open_lanes($1::smallint) as unended from pawl.queue_rescue($1::smallint, $2::bigint[]) r',
);
export const CHARGE: Statement = statement('queue.charge', 'select pawl.queue_charge($1::json) as charged');
export const PRUNE: Statement = statement('queue.prune', 'select pawl.queue_prune($1::smallint, $2::int) as jobs');
