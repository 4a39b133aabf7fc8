import type { Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { Cooldown } from '../../base/time/cooldown.ts';
import { STOP_MS } from '../../base/work/deadlines.ts';
import {
  type AnswerOptions,
  callInTransaction,
  type PostgresEngine,
  type Session,
  type Subscription,
  statement,
  type Transaction,
} from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { JobStatus } from '../job.ts';
import type {
  Batch,
  Blocker,
  Candidate,
  Charge,
  Charged,
  ClaimAnswer,
  ClaimOneRequest,
  ClaimRequest,
  Cursor,
  Heartbeat,
  HeartbeatAnswer,
  HeldJob,
  JobHandoff,
  PeekRequest,
  QueueIds,
  QueueStore,
  RescueAnswer,
  SettleAnswer,
  Settlement,
  WorkerRow,
} from '../store.ts';
import { type FailureRun, toRuns } from '../work/failure-runs.ts';

/** Who runs a statement: the pool, or one session inside its own transaction. */
export interface Runner {
  query<Row>(sql: ReturnType<typeof statement>, values?: unknown[], options?: AnswerOptions): Promise<Row[]>;
}

const REGISTER = statement(
  'queue.register',
  `select pawl.queue_register($1::json) as answer, current_setting('transaction_isolation') as isolation,
  'pawl'::regnamespace::oid::text as schema`,
);
/**
 * The queue of `$1`, whose higher digits say in which schema it has that id. In one that was dropped and made again the ids are
 * those of other queues. Costs nothing: the schema's own id is a constant of the prepared statement.
 */
const HERE = `case when $1::bigint / 65536 = 'pawl'::regnamespace::oid::bigint then ($1::bigint % 65536::bigint)::smallint else pawl.queue_refuse_schema() end`;
/** As text, which no library that a caller's transaction comes from reads in a way of its own. */
const ENQUEUE = statement('queue.enqueue', 'select pawl.enqueue($1::jsonb)::text as answer');
/** Where array_nulls is off, a null in an array is the word: so what no job has stands for it. */
const ADD_CALL = `pawl.queue_add(${HERE}, $2::smallint, $3::int, $4::smallint[], $5::smallint[], $6::json,
  pg_catalog.array_replace($7::text[], '', null), pg_catalog.array_replace($8::timestamptz[], 'infinity', null))`;
const ADD = statement('queue.add', `select ${ADD_CALL}::text as ids`);
const ADD_ONE = statement(
  'queue.add_one',
  `select pawl.queue_add_one(${HERE}, $2::smallint, $3::smallint, $4::smallint, $5::json, $6::text, $7::timestamptz)::text as id`,
);
const ADD_ALONE = statement(
  'queue.add_alone',
  `select pawl.queue_add_alone(${HERE}, $2::smallint, $3::smallint, $4::smallint, $5::json, $6::text, $7::timestamptz) as answer`,
);
/**
 * The same with the trace that these jobs are enqueued in: one statement, so that nobody runs one of them before its trace is
 * there. In a caller's transaction it is a second statement.
 */
const ENQUEUE_TRACED = statement(
  'queue.enqueue_traced',
  `
with added as materialized (
  select pawl.enqueue($1::jsonb) as answer
), trace as (
  insert into pawl.queue_trace (id, parent) select (a.answer ->> 'id'::text)::bigint, $2::text from added a where not (a.answer ->> 'duplicate'::text)::boolean
)
select a.answer from added a`,
);
const ADD_TRACED = statement(
  'queue.add_traced',
  `
with added as materialized (
  select ${ADD_CALL} as ids
), trace as (
  insert into pawl.queue_trace (id, parent) select pg_catalog.unnest(a.ids), $9::text from added a
)
select a.ids::text as ids from added a`,
);
const TRACE = `
with trace as (
  insert into pawl.queue_trace (id, parent)
  select t.id::bigint, r.request ->> 0
  from (select $1::json as request) r cross join lateral pg_catalog.json_array_elements_text(r.request -> 1) t (id)
  returning id
)
select count(*)::int as traced from trace`;
const TRACES = statement(
  'queue.traces',
  'select t.id::text as id, t.parent from pawl.queue_trace t where t.id = any ($1::bigint[])',
);
const PRUNE_TRACES = statement('queue.prune_traces', 'select pawl.queue_trace_prune(10000)');
const ADD_JSON = 'select pawl.queue_add_json($1::json)::text as ids';
const CLAIM = statement(
  'queue.claim',
  `select pawl.queue_claim($1::smallint, $2::smallint, $3::bigint, $4::int, $5::int, $6::int, $7::int, $8::smallint, $9::bigint) as answer`,
);
const CLAIM_OR_OFFER = statement(
  'queue.claim_or_offer',
  `select pawl.queue_claim($1::smallint, $2::smallint, $3::bigint, $4::int, $5::int, $6::int, $7::int, $8::smallint, $9::bigint, $10::bigint, $11::text) as answer`,
);
const PEEK = statement(
  'queue.peek',
  'select pawl.queue_peek_ready($1::smallint, $2::smallint, $3::bigint, $4::int, $5::smallint, $6::bigint) as candidates',
);
const SETTLE_CALL =
  'pawl.queue_settle($1::smallint, $2::smallint, $3::bigint, $4::bigint[], $5::json, $6::json, $7::json, $8::text[], $9::bigint[], $10::text[], $11::json, $12::bigint[])';
const SETTLE = statement('queue.settle', `select ${SETTLE_CALL} as answer`);
/** With an offer: one round trip, and one commit for both. */
const SETTLE_AND_OFFER = statement(
  'queue.settle_and_offer',
  `select ${SETTLE_CALL} as answer, pawl.queue_offer_add($1::smallint, $3::bigint, $13::bigint, $14::text)`,
);
const OFFER = statement('queue.offer', 'select pawl.queue_offer_add($1::smallint, $2::bigint, $3::bigint, $4::text)');
const WITHDRAW = statement('queue.withdraw', 'select pawl.queue_withdraw($1::smallint, $2::bigint)::text as numbers');
const WAKE = statement('queue.wake', 'select pawl.queue_wake($1::smallint)');
const ADD_WORKER = statement(
  'queue.add_worker',
  `
insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold)
values (${HERE}, $2, $3, $4, $5::double precision * interval '1 millisecond', clock_timestamp() + $5::double precision * interval '1 millisecond', $6)
returning id::text`,
);
const BEAT = statement('queue.beat', 'select pawl.queue_beat($1::json) as answer');
const WANTS = statement('queue.wants', 'select pawl.queue_set_wants_notify($1::bigint, $2::boolean)');
const RECALL = statement('queue.recall', 'select pawl.queue_recall($1::smallint, $2::bigint, $3::bigint[]) as answer');
const PROGRESS = statement('queue.progress', 'select pawl.queue_progress($1::json)');
const GUARD = 'select pawl.queue_guard($1::json)';
const LEAVE = statement('queue.leave', 'select pawl.queue_leave($1::smallint, $2::bigint, $3::bigint[])');
const REMOVE_WORKER = statement('queue.remove_worker', 'delete from pawl.queue_worker where id = $1::bigint');
const RESCUE = statement(
  'queue.rescue',
  'select r.jobs, r.ended, pawl.queue_open_lanes($1::smallint) as unended from pawl.queue_rescue($1::smallint) r',
);
const CHARGE = statement('queue.charge', 'select pawl.queue_charge($1::json) as charged');
const PRUNE = statement('queue.prune', 'select pawl.queue_prune($1::smallint, $2::int) as jobs');

/** How many jobs one pruning takes away at most: a few milliseconds, so that it never stands in anybody's way. */
const PRUNE_AT_ONCE = 5000;
const PRUNE_TRACES_MS = 3_600_000;

/** Every statement of the workers and producers. The functions they call are in sql/queue/. */
export class PostgresQueueStore implements QueueStore {
  readonly engine: PostgresEngine;
  /** How long each statement may take; a worker's have a limit, a caller's have none. */
  readonly #answer: AnswerOptions;
  readonly #runner: Runner;
  /**
   * Runs the statements that move the jobs of keys. They see what others committed while they waited for a lock, which only
   * read committed gives them: where the database's default is another, each gets a transaction of its own.
   */
  #keys: Runner;
  #prunesTracesAt = -Infinity;
  /** Where the queue was registered; see HERE. */
  #schema = 0;
  readonly #cooldown = new Cooldown();

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    this.engine = engine;
    this.#answer = answer;
    this.#runner = limited(engine, answer);
    this.#keys = this.#runner;
  }

  /** The same, with a limit to how long each statement may take: see {@link AnswerOptions}. */
  within(deadlineMs: number): PostgresQueueStore {
    const store = new PostgresQueueStore(this.engine, { deadlineMs });
    store.#schema = this.#schema;
    if (this.#keys !== this.#runner) store.#keys = alone(this.engine, { deadlineMs });
    return store;
  }

  /** A connection for whoever runs several statements on it. */
  connect(): Promise<Session> {
    return this.engine.connect(this.#answer);
  }

  async register(definition: Definition): Promise<QueueIds> {
    const declared = {
      name: definition.name,
      shards: definition.shards,
      keyed: definition.keyed,
      attempts: definition.attempts,
      history: Number.isFinite(definition.historyMs) ? definition.historyMs / 1000 : null,
      kinds: [...definition.kinds.values()].map((kind) => ({
        name: kind.name,
        unique: kind.unique,
        coalesce: kind.coalesce,
        after: kind.after,
        afterError: kind.afterError,
        attempts: kind.attempts === definition.attempts ? null : kind.attempts,
      })),
    };
    const [row] = await this.#runner.query<{
      answer: { queue: number; kinds: Record<string, number> };
      isolation: string;
      schema: string;
    }>(REGISTER, [JSON.stringify(declared)]);
    const { answer, isolation, schema } = only(row);
    this.#schema = Number(schema);
    if (isolation !== 'read committed') this.#keys = alone(this.engine, this.#answer);
    const { queue, kinds } = answer;
    const entries = Object.entries(kinds);
    return { queue, kindId: new Map(entries), kindName: new Map(entries.map(([name, id]) => [id, name])) };
  }

  async enqueue(
    request: object,
    tx: unknown,
    trace?: string,
  ): Promise<{ id: string; status: JobStatus; duplicate: boolean }> {
    const value = JSON.stringify(request);
    const [row] =
      tx !== undefined
        ? await callInTransaction(tx, ENQUEUE.text, value)
        : trace === undefined
          ? await this.#runner.query<{ answer: unknown }>(ENQUEUE, [value])
          : await this.#runner.query<{ answer: unknown }>(ENQUEUE_TRACED, [value, trace]);
    const answer = fromJson(only(row).answer) as { id: string; status: JobStatus; duplicate: boolean };
    if (tx !== undefined && trace !== undefined && !answer.duplicate) await traceIn(tx, [answer.id], trace);
    return answer;
  }

  async add(queue: number, batch: Batch, tx: unknown, trace?: string): Promise<number[]> {
    if (trace !== undefined) return this.#addTraced(queue, batch, tx, trace);
    const { shard, n, kinds, priorities, payloads, keys, runAt } = batch;
    if (n === 1 && tx === undefined) {
      const values = [
        this.#here(queue),
        shard,
        kinds[0],
        priorities[0],
        payloads.slice(1, -1),
        keys?.[0] ?? null,
        runAt?.[0] ?? null,
      ];
      return [await this.#addOne(values)];
    }
    const [row] =
      tx === undefined
        ? await this.#runner.query<{ ids: string }>(ADD, addValues(this.#here(queue), batch))
        : await callInTransaction(
            tx,
            ADD_JSON,
            `[${JSON.stringify({ queue: this.#here(queue), shard, n, kinds, priorities, keys, runAt })},${payloads}]`,
          );
    return numbers(String(only(row).ids));
  }

  async #addTraced(queue: number, batch: Batch, tx: unknown, trace: string): Promise<number[]> {
    if (tx !== undefined) {
      const ids = await this.add(queue, batch, tx);
      await traceIn(tx, ids, trace);
      return ids;
    }
    const [row] = await this.#runner.query<{ ids: string }>(ADD_TRACED, [
      ...addValues(this.#here(queue), batch),
      trace,
    ]);
    this.#pruneTraces();
    return numbers(only(row).ids);
  }

  #here(queue: number): number {
    return this.#schema * 65_536 + queue;
  }

  async traces(ids: readonly string[], tx?: Transaction): Promise<ReadonlyMap<string, string>> {
    const rows = await (tx ?? this.#runner).query<{ id: string; parent: string }>(TRACES, [ids]);
    return new Map(rows.map(({ id, parent }) => [id, parent]));
  }

  /** Whoever writes traces sees to it, now and then, that they do not pile up. */
  #pruneTraces(): void {
    if (performance.now() < this.#prunesTracesAt) return;
    this.#prunesTracesAt = performance.now() + PRUNE_TRACES_MS;
    this.engine.query(PRUNE_TRACES).catch((error: unknown) => {
      this.engine.options.logger.warn({ err: error }, 'old traces of jobs could not be removed');
    });
  }

  /** Handed to a sleeping worker, where there is one. */
  async #addOne(values: unknown[]): Promise<number> {
    if (!this.#cooldown.isOver) {
      const [added] = await this.#runner.query<{ id: string }>(ADD_ONE, values);
      return Number(only(added).id);
    }
    const [row] = await this.#runner.query<{ answer: string }>(ADD_ALONE, values);
    const { id, isSlow = false } = JSON.parse(only(row).answer) as { id: number; isSlow?: boolean };
    this.#cooldown.record(isSlow);
    return id;
  }

  async claim(request: ClaimRequest, offer?: Offer): Promise<ClaimAnswer> {
    const { queue, shard, worker, limit, slots, rows, chain, cursor } = request;
    const values = [queue, shard, worker, limit, slots, rows, chain, cursor.priority, cursor.id];
    const [row] =
      offer === undefined
        ? await this.#keys.query<{ answer: string }>(CLAIM, values)
        : await this.#keys.query<{ answer: string }>(CLAIM_OR_OFFER, [...values, offer.number, offer.channel]);
    return JSON.parse(only(row).answer) as ClaimAnswer;
  }

  async peek({ queue, shard, worker, rows, front }: PeekRequest): Promise<Candidate[]> {
    const values = [queue, shard, worker, rows, front.priority, front.id];
    const [row] = await this.#keys.query<{ candidates: string | null }>(PEEK, values);
    return JSON.parse(only(row).candidates ?? '[]') as Candidate[];
  }

  async settle(settlement: Settlement, offer?: Offer): Promise<SettleAnswer> {
    const values = settleValues(settlement);
    const [row] =
      offer === undefined
        ? await this.#keys.query<{ answer: string }>(SETTLE, values)
        : await this.#keys.query<{ answer: string }>(SETTLE_AND_OFFER, [...values, offer.number, offer.channel]);
    return JSON.parse(only(row).answer) as SettleAnswer;
  }

  async offer(queue: number, { worker, number, channel }: Offer): Promise<void> {
    await this.#runner.query(OFFER, [queue, worker, number, channel]);
  }

  async withdraw(queue: number, worker: number): Promise<number[]> {
    const [row] = await this.#runner.query<{ numbers: string }>(WITHDRAW, [queue, worker]);
    return numbers(only(row).numbers);
  }

  async wake(queue: number): Promise<void> {
    await this.#runner.query(WAKE, [queue]);
  }

  /**
   * Calls back when something was enqueued, when such notifications may have been missed, and when a running job of this process
   * is to be cancelled.
   */
  listen(
    queue: number,
    handlers: { wake: () => void; missed?: () => void; cancel: () => void },
  ): Promise<Subscription> {
    const own = String(queue);
    const heard = (payload: string): void => {
      if (payload === own) handlers.wake();
      else if (payload === `cancel ${own}`) handlers.cancel();
    };
    return this.engine.listen('pawl_queue', heard, { onReconnect: handlers.missed ?? handlers.wake });
  }

  /** Calls back with each job that is handed over by way of this channel; says that somebody listens there. */
  listenForHandoffs(
    channel: string,
    { onHandoff, onReconnect }: { onHandoff: (job: JobHandoff) => void; onReconnect: () => void },
  ): Promise<Subscription> {
    const read = (payload: string): void => onHandoff(JSON.parse(payload) as JobHandoff);
    return this.engine.listen(channel, read, { onReconnect, isSeen: true });
  }

  async addWorker(row: WorkerRow): Promise<number> {
    const values = [this.#here(row.queue), row.host, row.pid, row.concurrency, row.leaseMs, row.hold];
    const [added] = await this.#runner.query<{ id: string }>(ADD_WORKER, values);
    return Number(only(added).id);
  }

  async beat(beats: readonly Heartbeat[], runner: Runner = this.engine): Promise<HeartbeatAnswer> {
    const [row] = await runner.query<{ answer: HeartbeatAnswer }>(BEAT, [JSON.stringify(beats)], this.#answer);
    return only(row).answer;
  }

  async recall(queue: number, worker: number, known: readonly number[]): Promise<RecallResult> {
    const [row] = await this.#keys.query<{ answer: { jobs: number; offers: number[] } }>(RECALL, [
      queue,
      worker,
      known,
    ]);
    const { jobs, offers } = only(row).answer;
    return { lost: jobs, offers };
  }

  async leave(queue: number, worker: number, known: readonly number[]): Promise<void> {
    await this.#keys.query(LEAVE, [queue, worker, known]);
  }

  async progress(shard: number, claim: number | undefined, job: number, json: string): Promise<void> {
    await this.#runner.query(PROGRESS, [`[${JSON.stringify({ shard, claim, id: job })},${json}]`]);
  }

  async guard(held: readonly HeldJob[], tx: unknown): Promise<void> {
    await callInTransaction(tx, GUARD, JSON.stringify(held));
  }

  async setWants(worker: number, wants: boolean): Promise<void> {
    await this.#runner.query(WANTS, [worker, wants]);
  }

  /** A courtesy, for which no stop should wait long: the row goes when its lease is over. */
  async removeWorker(worker: number): Promise<void> {
    await this.engine.query(REMOVE_WORKER, [worker], { deadlineMs: STOP_MS });
  }

  async rescue(queue: number): Promise<RescueAnswer> {
    const [row] = await this.#keys.query<RescueAnswer>(RESCUE, [queue]);
    return only(row);
  }

  async charge(charge: Charge): Promise<Charged[]> {
    const [row] = await this.#keys.query<{ charged: Charged[] }>(CHARGE, [JSON.stringify(charge)]);
    return only(row).charged;
  }

  async prune(queue: number): Promise<number> {
    const [row] = await this.#runner.query<{ jobs: number }>(PRUNE, [queue, PRUNE_AT_ONCE]);
    return only(row).jobs;
  }
}

/** The claim of one unit as text for the simple protocol, where several statements go in one message. Numbers only. */
export function claimOneText({ queue, shard, worker, rows, cursor, blocker }: ClaimOneRequest): string {
  const [q, sh, w] = [queue, shard, worker].map(Number);
  const unblocked = blocker === undefined ? '' : ', true';
  return `select pawl.queue_claim_one(${q}::smallint, ${sh}::smallint, ${w}, ${from(rows, cursor)}${unblocked})`;
}

/** Puts out of the way what blocked a claim, likewise. */
export function unblockText({ queue, shard }: ClaimOneRequest, { what, rows, cursor }: Blocker): string {
  return `select pawl.queue_unblock_claim(${Number(queue)}::smallint, ${Number(shard)}::smallint, ${quoted(what)}, ${from(rows, cursor)})`;
}

function from(rows: number, { priority, id }: Cursor): string {
  // In brackets: -32768::smallint is the negation of a number that does not fit.
  return `${Number(rows)}, (${Number(priority)})::smallint, ${Number(id)}`;
}

/** One job without a key that was claimed inside the open transaction. */
export interface OpenClaim {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly claim: number;
  readonly claimedAt: string;
  readonly processId: string;
  readonly attempt: number;
  readonly id: number;
}

/** The row that a claim under a lease has, for what only `settleText` can write. */
export function runningText(open: OpenClaim): string {
  const job = Number(open.id);
  return (
    'insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids) values (' +
    `${Number(open.claim)}, ${Number(open.worker)}, ${quoted(open.claimedAt)}, ${quoted(open.processId)}, ` +
    `${Number(open.shard)}, ${Number(open.queue)}, ${Number(open.attempt)}, false, '{[${job},${job + 1})}')`
  );
}

/** The settlement likewise; every text in it is quoted. */
export function settleText(settlement: Settlement): string {
  const { queue, shard, worker, whole, part, failed, results, shared, keys } = settlement;
  const { items, errors } = withErrorsOnce(toRuns(failed));
  const json = (list: readonly unknown[], write: () => string): string =>
    list.length > 0 ? `${quoted(write())}::json` : 'null';
  const texts = (list: readonly string[]): string =>
    list.length > 0 ? `array[${list.map(quoted).join()}]::text[]` : 'null';
  const epochs = keys.length > 0 ? `array[${keys.map(([, epoch]) => Number(epoch)).join()}]::bigint[]` : 'null';
  return (
    `select pawl.queue_settle(${Number(queue)}::smallint, ${Number(shard)}::smallint, ${Number(worker)}, ` +
    `array[${whole.map(Number).join()}]::bigint[], ${json(part, () => JSON.stringify(part))}, ` +
    `${json(items, () => JSON.stringify(items))}, ${json(results, () => resultsText(results))}, ` +
    `${texts(keys.map(([key]) => key))}, ${epochs}, ${texts(errors)}, ${json(shared, () => sharedText(shared))})`
  );
}

/** A literal that means the same whatever standard_conforming_strings and backslash_quote are. */
export function quoted(text: string): string {
  return `e'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}

function addValues(queue: number, { shard, n, kinds, priorities, payloads, keys, runAt }: Batch): unknown[] {
  const everyKey = keys?.map((key) => key ?? '') ?? null;
  const everyTime = runAt?.map((time) => time ?? 'infinity') ?? null;
  return [queue, shard, n, kinds, priorities, payloads, everyKey, everyTime];
}

function settleValues(settlement: Settlement): unknown[] {
  const { queue, shard, worker, whole, part, failed, results, shared, keys, guarded = [] } = settlement;
  const { items, errors } = withErrorsOnce(toRuns(failed));
  return [
    queue,
    shard,
    worker,
    whole,
    part.length > 0 ? JSON.stringify(part) : null,
    items.length > 0 ? JSON.stringify(items) : null,
    results.length > 0 ? resultsText(results) : null,
    keys.length > 0 ? keys.map(([key]) => key) : null,
    keys.length > 0 ? keys.map(([, epoch]) => epoch) : null,
    errors.length > 0 ? errors : null,
    shared.length > 0 ? sharedText(shared) : null,
    guarded.length > 0 ? guarded : null,
  ];
}

/** The jobs of a unit fail with one text: it is sent once, and each of them names it by `like`, from 1. */
function withErrorsOnce(failed: readonly FailureRun[]): { items: readonly object[]; errors: string[] } {
  const errors: string[] = [];
  const items = failed.map((item, index) => {
    const { error, ...rest } = item;
    if (error === undefined) return item;
    if (error !== failed[index - 1]?.error) {
      if (error !== failed[index + 1]?.error) return item;
      errors.push(error);
    }
    return { ...rest, like: errors.length };
  });
  return { items, errors };
}

/** Arrays and not objects: Postgres takes the fields of an object apart only when no text in it holds U+0000. */
function resultsText(results: Settlement['results']): string {
  return `[${results.map(({ id, claim, result }) => `[${id},${claim},${result}]`).join()}]`;
}

function sharedText(shared: Settlement['shared']): string {
  return `[${shared.map(({ result, jobs }) => `[${result},${JSON.stringify(jobs)}]`).join()}]`;
}

/** Each statement with a limit to how long it may take. */
export function limited(engine: PostgresEngine, answer: AnswerOptions): Runner {
  return { query: (sql, values) => engine.query(sql, values, answer) };
}

/** Between a statement and its COMMIT others may wait for its locks: not longer than for a statement that is not answered. */
const IDLE_MS = 10_000;

/**
 * Each statement in a transaction of its own at read committed, whatever the database's default is. A process that stands still
 * before its COMMIT has it undone.
 */
export function alone(engine: PostgresEngine, answer: AnswerOptions = {}): Runner {
  const options = { isolation: 'read committed', idleMs: answer.deadlineMs ?? IDLE_MS, ...answer } as const;
  return { query: (sql, values) => engine.transaction((tx) => tx.query(sql, values), options) };
}

function only<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('the database answered no row where one always comes');
  return row;
}

/** A json column that some drivers parse and some do not. */
function fromJson(value: unknown): unknown {
  return typeof value === 'string' ? JSON.parse(value) : value;
}

/** Writes down the trace of jobs in the caller's transaction. */
async function traceIn(tx: unknown, ids: readonly (string | number)[], trace: string): Promise<void> {
  await callInTransaction(tx, TRACE, JSON.stringify([trace, ids]));
}

/** `{1,2,3}`: the text of an integer array, which is cheaper to read than the driver's own array of strings. */
function numbers(text: string): number[] {
  return text === '{}' ? [] : text.slice(1, -1).split(',').map(Number);
}
