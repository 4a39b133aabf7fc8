import type { Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { Cooldown } from '../../base/time/cooldown.ts';
import {
  type AnswerOptions,
  BOTH,
  instant,
  only,
  type PostgresEngine,
  SERVER,
  type Session,
  type Statement,
  type Subscription,
  statement,
  type Transaction,
} from '../../engine/postgres/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type {
  ActorClaim,
  ActorHandoff,
  ChildRecord,
  ClaimAnswer,
  CommitAnswer,
  MessageFilter,
  MessageRow,
  TurnCommit,
  TurnToken,
  WorkerRow,
} from '../store.ts';
import { readClaimAnswer, readHandoff } from './claim-reader.ts';

/** Who runs a statement: the pool, a session, or an open transaction. */
export interface Runner {
  query<Row>(sql: Statement, values?: unknown[]): Promise<Row[]>;
}

const REGISTER = statement(
  'actor.register',
  `select pawl.actor_register($1::json) as ids, current_setting('transaction_isolation') as isolation, ${SERVER} as server`,
);
const LET_GO = statement('actor.let_go', 'select pawl.actor_release_held($1::jsonb) as actors');
const CREATE = statement('actor.create', 'select pawl.actor_create_json($1::json)::text as answer');
const INCR = statement('actor.incr', 'select pawl.actor_incr($1::jsonb)::text as answer');
const INCR_ALONE = statement('actor.incr_alone', 'select pawl.actor_incr_alone($1::jsonb) as answer');
const SEND_ALONE = statement('actor.send_alone', 'select pawl.actor_send_alone($1::json) as answer');
const SEND = statement('actor.send', 'select pawl.actor_send_json($1::json)::text as answer');
const CLAIM = statement('actor.claim', 'select pawl.actor_claim($1::bigint, $2::smallint[], $3::int) as answer');
const CLAIM_OR_OFFER = statement(
  'actor.claim_or_offer',
  'select pawl.actor_claim($1::bigint, $2::smallint[], $3::int, $4::bigint, $5::text) as answer',
);
const OFFER = statement('actor.offer', 'select pawl.actor_offer_add($1::bigint, $2::bigint, $3::text)');
const WITHDRAW = statement('actor.withdraw', 'select pawl.actor_withdraw($1::bigint)::text[] as numbers');
const RECALL_CLAIMS = statement(
  'actor.recall_claims',
  'select pawl.actor_recall($1::bigint, $2::bigint[], $3::bigint[], $4) as answer',
);
const LEAVE = statement('actor.leave', 'select pawl.actor_leave($1::bigint, $2::bigint[], $3::bigint[])');
const WAKE = statement('actor.wake', 'select pawl.actor_wake($1::smallint[])');
const CLAIM_ALONE = statement(
  'actor.claim_alone',
  'select pawl.actor_claim_alone($1::bigint, $2::smallint[], $3) as answer',
);
const CLAIM_ONE = statement('actor.claim_one', 'select pawl.actor_claim_one($1::bigint, $2::bigint) as answer');
/** Where array_nulls is off, a null in an array is the word: so what no turn has stands for it, see `commitValues`. */
const COMMIT_CALL = `pawl.actor_commit($1::bigint, $2::bigint[], $3::bigint[], $4::text[], pg_catalog.array_replace($5::double precision[], 'NaN', null),
  $6::text[], pg_catalog.array_replace($7::text[], chr(1), null), pg_catalog.array_replace($8::text[], chr(1), null),
  pg_catalog.array_replace($9::text[], chr(1), null)::json[], pg_catalog.array_replace($10::smallint[], -1::smallint, null),
  pg_catalog.array_replace($11::jsonb[], 'null', null), pg_catalog.array_replace($12::double precision[], 'NaN', null),
  pg_catalog.array_replace($13::text[], chr(1), null), pg_catalog.array_replace($14::text[], chr(1), null)::json[], $15::int[], $16::boolean[],
  pg_catalog.array_replace($17::jsonb[], 'null', null), pg_catalog.array_replace($18::double precision[], 'NaN', null))`;
const COMMIT = statement('actor.commit', `select ${COMMIT_CALL} as answer`);
/** With an offer: one round trip, and one commit for both. */
const COMMIT_AND_OFFER = statement(
  'actor.commit_and_offer',
  `select ${COMMIT_CALL} as answer, pawl.actor_offer_add($1::bigint, $19::bigint, $20::text)`,
);
const IDLE = statement('actor.idle', "select set_config('idle_in_transaction_session_timeout', $1, true)");
const UNKNOWN = statement('actor.unknown', 'select pawl.actor_report_unknown($1::json) as held');
const LEND = statement('actor.lend', 'select pawl.actor_run_in_transaction($1::json)');
const SAVEPOINT = statement('actor.savepoint', 'savepoint pawl_body', { prepare: false });
const UNDO = statement('actor.undo', 'rollback to savepoint pawl_body', { prepare: false });
const GUARD = statement('actor.guard', 'select pawl.actor_guard($1::json)');
const REMEMBER = statement('actor.remember', 'select pawl.actor_remember($1::json)');
const RECALL = statement(
  'actor.recall',
  'select e.result from pawl.actor_effect e where e.actor = $1 and e.visit = $2 and e.key = $3',
);
const ALLOCATE = statement(
  'actor.allocate',
  "select pg_catalog.nextval('pawl.actor_id')::text as id from generate_series(1, $1::int)",
);
const MESSAGES = statement(
  'actor.messages',
  `
select m.id::text, m.name, m.payload, ${instant('m.at')} as at, q.message is not null as "isAsked"
from pawl.actor_message m
left join pawl.actor_question q on q.message = m.id
where m.actor = $1 and ($2::text is null or m.name = $2) and m.id <> all ($3::bigint[]) and (q.message is null or q.expires_at > clock_timestamp())
order by m.id
limit $4`,
);
const READ = statement(
  'actor.read',
  'delete from pawl.actor_message m where m.actor = $1 and m.id = any ($2::bigint[])',
);
/** What woke the actor for the messages of these names that a turn was not given is gone: they wake it again. An empty name is any. */
const READ_ON = statement(
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
const CHILDREN = statement(
  'actor.children',
  `
select a.id::text, t.name as type, a.state, a.key, a.finished_at is not null as "isFinal", a.result, a.fields
from pawl.actor_instance a
join pawl.actor_type t on t.id = a.type
where a.parent = $1
order by a.id`,
);
const ADD_WORKER = statement(
  'actor.add_worker',
  `
insert into pawl.actor_worker (host, pid, concurrency, lease, expires_at, types, knows, wants_notify)
values ($1, $2, $3, $4::double precision * interval '1 millisecond', clock_timestamp() + $4::double precision * interval '1 millisecond',
  $5::smallint[], $6::jsonb, $7)
returning id::text`,
);
const BEAT = statement('actor.beat', 'select pawl.actor_beat($1::bigint[], $2::boolean[])::text[] as alive');
const WANTS = statement(
  'actor.wants',
  'update pawl.actor_worker set wants_notify = $2 where id = $1 and wants_notify <> $2',
);
const END_WORKER = statement('actor.end_worker', 'select pawl.actor_end_worker($1::bigint)');
const RESCUE = statement(
  'actor.rescue',
  'select pawl.actor_rescue() as actors, pawl.actor_suspects()::int[] as suspects',
);
const DEADLINES = statement('actor.deadlines', 'select pg_catalog.to_json(pawl.actor_deadlines()::numeric) as wait');
const PRUNE = statement('actor.prune', 'select pawl.actor_prune($1::int) as rows');
const OPEN_PAGE = statement('actor.open_page', 'select pawl.page_open($1::json)::text as answer');
const RESOLVE_PAGE = statement('actor.resolve_page', 'select pawl.page_resolve($1::text)::text as answer');
const ASK = statement('actor.ask', 'select pawl.actor_apply_effect($1, $2::json)::text as answer');

const RAISED = statement('actor.raised', 'select pawl.actor_raised($1::bigint[]) as answer');

/** Before the id of an actor: a semaphore was raised that interrupts its turn. */
const INTERRUPT = 'interrupt:';
const PRUNE_AT_ONCE = 1000;
/** A statement of `atCommit` takes no longer: the network may say nothing, and its place is wanted by others. */
const COMMIT_MS = 60_000;

/** Every statement of turns and workers. The functions they call are in sql/actor/. */
export class PostgresActorStore {
  readonly engine: PostgresEngine;
  /** Claims and commits see what others committed while they waited for a row, which only read committed gives them. */
  #rows: Runner;
  /** Everything else. */
  readonly #runner: Runner;
  readonly #answer: AnswerOptions;
  #ids: number[] = [];
  readonly #cooldown = new Cooldown();

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    this.engine = engine;
    this.#answer = answer;
    this.#runner = { query: (sql, values) => engine.query(sql, values, answer) };
    this.#rows = this.#runner;
  }

  /** The same, whose own statements take no longer: a connection that says nothing is then taken for dead. */
  within(deadlineMs: number): PostgresActorStore {
    const store = new PostgresActorStore(this.engine, { deadlineMs });
    if (this.#rows !== this.#runner) store.#rows = alone(this.engine, { deadlineMs });
    return store;
  }

  /** @returns the definitions by the ids of their types */
  async register(definitions: readonly ActorDefinition[]): Promise<ReadonlyMap<number, ActorDefinition>> {
    const declared = definitions.map((definition) => ({
      name: definition.name,
      semaphores: definition.semaphores,
      always: [...definition.always.keys()],
      interrupts: interruptsOf(definition),
      indexes: definition.indexes,
      machine: definition.machine,
      version: definition.version,
      history: Number.isFinite(definition.historyMs) ? definition.historyMs / 1000 : null,
      fieldHistory: definition.fieldHistoryMs === undefined ? null : definition.fieldHistoryMs / 1000,
      backoff: backoffNumbers(definition),
    }));
    const rows = await this.#runner.query<{ ids: Record<string, number>; isolation: string; server: string }>(
      REGISTER,
      [JSON.stringify(declared)],
    );
    const { ids, isolation, server } = only(rows);
    await this.engine.meet(server);
    if (isolation !== 'read committed') this.#rows = alone(this.engine, this.#answer);
    return new Map(definitions.map((definition) => [Number(ids[definition.name]), definition]));
  }

  /** @param fields  JSON */
  async create(head: object, fields: string, tx: unknown): Promise<{ id: string; created: boolean; state: string }> {
    const value = `[${JSON.stringify(head)},${fields}]`;
    return answerOf(await this.#in(CREATE, value, tx)) as { id: string; created: boolean; state: string };
  }

  async incr(request: object, tx: unknown): Promise<boolean> {
    const value = JSON.stringify(request);
    if (tx === undefined && this.#cooldown.isOver) return this.#alone(INCR_ALONE, value);
    return answerOf(await this.#in(INCR, value, tx)) === true;
  }

  /** @param payload  JSON */
  async send(head: object, payload: string, tx: unknown): Promise<boolean> {
    const value = `[${JSON.stringify(head)},${payload}]`;
    if (tx === undefined && this.#cooldown.isOver) return this.#alone(SEND_ALONE, value);
    return answerOf(await this.#in(SEND, value, tx)) === true;
  }

  /** In a transaction of its own: the actor is handed to a sleeping worker, where there is one. */
  async #alone(sql: Statement, value: string): Promise<boolean> {
    const rows = await this.#runner.query<{ answer: string }>(sql, [value]);
    const { counts, isSlow } = JSON.parse(only(rows).answer) as { counts: boolean; isSlow: boolean };
    this.#cooldown.record(isSlow);
    return counts;
  }

  async claim(worker: number, types: readonly number[], limit: number, offer?: Offer): Promise<ClaimAnswer> {
    const values = [worker, types, limit];
    const rows = await (offer === undefined
      ? this.#rows.query<{ answer: string }>(CLAIM, values)
      : this.#rows.query<{ answer: string }>(CLAIM_OR_OFFER, [...values, offer.number, offer.channel]));
    return readClaimAnswer(only(rows).answer);
  }

  async offer({ worker, number, channel }: Offer): Promise<void> {
    await this.#runner.query(OFFER, [worker, number, channel]);
  }

  /** Takes back the offers that no producer is just using. @returns their numbers */
  async withdraw(worker: number): Promise<number[]> {
    const rows = await this.#runner.query<{ numbers: string[] }>(WITHDRAW, [worker]);
    return only(rows).numbers.map(Number);
  }

  /** Has sleeping workers look for actors of these types. */
  async wake(types: readonly number[]): Promise<void> {
    await this.#runner.query(WAKE, [types]);
  }

  /** An actor that is to be run alone. @param isIdle  the worker runs nothing else */
  async claimAlone(worker: number, types: readonly number[], isIdle: boolean): Promise<ActorClaim | undefined> {
    const rows = await this.#rows.query<{ answer: string }>(CLAIM_ALONE, [worker, types, isIdle]);
    return readClaimAnswer(only(rows).answer).claims[0];
  }

  async claimOne(worker: number, actor: number): Promise<ActorClaim | undefined> {
    const rows = await this.#rows.query<{ answer: string }>(CLAIM_ONE, [worker, actor]);
    return readClaimAnswer(only(rows).answer).claims[0];
  }

  async commit(worker: number, turns: readonly TurnCommit[], runner: Runner = this.#rows): Promise<CommitAnswer> {
    const rows = await runner.query<{ answer: string }>(COMMIT, commitValues(worker, turns));
    return JSON.parse(only(rows).answer) as CommitAnswer;
  }

  /** With the offer, if there is one: nothing else would have woken the server for it. */
  async commitAndOffer(worker: number, turns: readonly TurnCommit[], offer: Offer | undefined): Promise<CommitAnswer> {
    if (offer === undefined) return this.commit(worker, turns);
    const values = [...commitValues(worker, turns), offer.number, offer.channel];
    const rows = await this.#rows.query<{ answer: string }>(COMMIT_AND_OFFER, values);
    return JSON.parse(only(rows).answer) as CommitAnswer;
  }

  /**
   * One transaction for a turn that does more than move its own row.
   * @param idleMs  a process that stands still in the middle of it loses it after so long: it holds the row
   * @param hasOthers  whether statements are among it that are not ours, and may take their time
   */
  transaction<T>(fn: (tx: Transaction) => Promise<T>, idleMs: number, hasOthers: boolean): Promise<T> {
    const run = async (tx: Transaction): Promise<T> => {
      await tx.query(IDLE, [String(Math.ceil(idleMs))]);
      if (this.engine.spansNodes) await tx.query(BOTH);
      return fn(tx);
    };
    const deadlineMs = hasOthers ? Math.max(idleMs, COMMIT_MS) : this.#answer.deadlineMs;
    return this.engine.transaction(run, { isolation: 'read committed', retries: 0, deadlineMs });
  }

  /**
   * One transaction that holds the actor's row from its begin to its end; the turn is this process's as long as that lasts.
   * @throws LeaseLost  the turn is somebody else's by now @throws LockNotAvailable
   */
  inTransaction<T>(token: TurnToken, fn: (tx: Transaction) => Promise<T>, idleMs: number): Promise<T> {
    const lend = (session: Session): Promise<unknown> => session.query(LEND, [JSON.stringify(token)]);
    const run = async (tx: Transaction): Promise<T> => {
      await tx.query(IDLE, [String(Math.ceil(idleMs))]);
      if (this.engine.spansNodes) await tx.query(BOTH);
      await this.guard(token, tx, true);
      await tx.query(SAVEPOINT);
      return fn(tx);
    };
    return this.engine.transaction(run, { isolation: 'read committed', retries: 0, before: lend, deadlineMs: idleMs });
  }

  /** Undoes all that was done since the row was held. */
  async undo(tx: Transaction): Promise<void> {
    await tx.query(UNDO);
  }

  /** @returns whether the actor is held now: no living worker can run it */
  async reportUnknown(
    token: TurnToken,
    type: number,
    state: string,
    version: number,
    reason: string,
  ): Promise<boolean> {
    const value = JSON.stringify({ ...token, type, state, version, reason });
    const rows = await this.#rows.query<{ held: boolean }>(UNKNOWN, [value]);
    return only(rows).held;
  }

  /** @throws LeaseLost  the turn is somebody else's by now @throws LockNotAvailable  with `nowait` */
  async guard(token: TurnToken, tx: unknown, nowait = false): Promise<void> {
    await this.#in(GUARD, JSON.stringify({ ...token, nowait }), tx);
  }

  async recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined> {
    const [row] = await this.#runner.query<{ result: unknown }>(RECALL, [actor, visit, key]);
    return row;
  }

  /** @param result  JSON @throws LeaseLost  the turn is somebody else's by now */
  async remember(token: TurnToken, visit: number, key: string, result: string): Promise<void> {
    await this.#runner.query(REMEMBER, [`[${JSON.stringify({ ...token, visit, key })},${result}]`]);
  }

  /** An id for an actor that is created with the commit of a turn. Taken fifty at a time; gaps mean nothing. */
  async allocate(): Promise<number> {
    if (this.#ids.length === 0) {
      const rows = await this.#runner.query<{ id: string }>(ALLOCATE, [50]);
      this.#ids.push(...rows.map(({ id }) => Number(id)));
    }
    return Number(this.#ids.shift());
  }

  messages(actor: number, { name, except, limit }: MessageFilter): Promise<MessageRow[]> {
    return this.#runner.query<MessageRow & Record<string, unknown>>(MESSAGES, [actor, name ?? null, except, limit]);
  }

  /** @param cut  names of messages of which not all were taken */
  async dropMessages(actor: number, ids: readonly string[], cut: readonly string[], tx: Runner): Promise<void> {
    await tx.query(READ, [actor, ids]);
    if (cut.length > 0) await tx.query(READ_ON, [actor, cut]);
  }

  children(actor: number): Promise<ChildRecord[]> {
    return this.#runner.query<ChildRecord & Record<string, unknown>>(CHILDREN, [actor]);
  }

  /**
   * What a turn asks for in addition to its own row, in the transaction that commits it.
   * @param request  JSON @throws LockNotAvailable  an open transaction of somebody else has the key, or the tag
   */
  async ask(what: 'create' | 'page' | 'resolve' | 'enqueue' | 'reply', request: string, tx: Runner): Promise<unknown> {
    return answerOf(only(await tx.query<{ answer?: unknown }>(ASK, [what, request])));
  }

  async openPage(page: object, tx: unknown): Promise<{ id: string; news: 'opened' | 'escalated' | 'none' }> {
    return answerOf(await this.#in(OPEN_PAGE, JSON.stringify(page), tx)) as {
      id: string;
      news: 'opened' | 'escalated' | 'none';
    };
  }

  async resolvePage(tag: string, tx: unknown): Promise<boolean> {
    return answerOf(await this.#in(RESOLVE_PAGE, tag, tx)) === true;
  }

  /** Lists a process, and lets go actors that were held because no program knew what this one knows. */
  async addWorker(row: WorkerRow): Promise<number> {
    const knows = JSON.stringify(row.knows);
    const values = [row.host, row.pid, row.concurrency, row.leaseMs, row.types, knows, row.wantsNotify];
    const added = await this.#runner.query<{ id: string }>(ADD_WORKER, values);
    // Not before it is listed, and not only at the start: in between, and while it was taken for dead, others held what it knows.
    if (row.types.length > 0) await this.#rows.query(LET_GO, [knows]);
    return Number(only(added).id);
  }

  /** All workers of a process in one statement. @returns those that are still alive */
  async beat(workers: readonly { id: number; wants: boolean }[], session: Session): Promise<number[]> {
    const values = [workers.map(({ id }) => id), workers.map(({ wants }) => wants)];
    const rows = await session.query<{ alive: string[] }>(BEAT, values);
    return only(rows).alive.map(Number);
  }

  async setWants(worker: number, wants: boolean): Promise<void> {
    await this.#runner.query(WANTS, [worker, wants]);
  }

  /** Its row stays while an actor names it, for the rescue to find. */
  async endWorker(worker: number): Promise<void> {
    await this.#runner.query(END_WORKER, [worker]);
  }

  /** @returns how many actors it freed, and the types of which one is due that is to be run alone */
  async rescue(): Promise<{ readonly actors: number; readonly suspects: readonly number[] }> {
    return only(await this.#rows.query<{ actors: number; suspects: number[] }>(RESCUE));
  }

  /**
   * Gives back the actors that the worker holds and does not know.
   * @param known  epochs by actor @param isAll  paused actors, too, which may be many
   */
  async recallClaims(worker: number, known: ReadonlyMap<number, number>, isAll: boolean): Promise<RecallResult> {
    const values = [worker, [...known.keys()], [...known.values()], isAll];
    const rows = await this.#rows.query<{ answer: { actors: number; offers: number[] } }>(RECALL_CLAIMS, values);
    const { actors, offers } = only(rows).answer;
    return { lost: actors, offers };
  }

  /** The same before the worker stops, once its offers are gone, used ones included. */
  async leave(worker: number, known: ReadonlyMap<number, number>): Promise<void> {
    await this.#rows.query(LEAVE, [worker, [...known.keys()], [...known.values()]]);
  }

  /** @returns milliseconds until the next one; Infinity when there is none */
  async deadlines(): Promise<number> {
    const rows = await this.#rows.query<{ wait: number | null }>(DEADLINES);
    return only(rows).wait ?? Infinity;
  }

  async prune(): Promise<number> {
    const rows = await this.#rows.query<{ rows: number }>(PRUNE, [PRUNE_AT_ONCE]);
    return only(rows).rows;
  }

  /** How often the semaphores of these actors are raised, by actor. */
  async raised(actors: readonly number[]): Promise<Readonly<Record<string, Readonly<Record<string, number>>>>> {
    const rows = await this.#runner.query<{ answer: Record<string, Record<string, number>> }>(RAISED, [actors]);
    return only(rows).answer;
  }

  /** Calls back when something came for actors of these types, or there is a page to deliver. */
  listen(
    types: readonly number[],
    handlers: { wake: () => void; page: () => void; interrupt: (actor: number) => void },
  ): Promise<Subscription> {
    const heard = (payload: string): void => {
      if (payload === 'page') handlers.page();
      else if (payload.startsWith(INTERRUPT)) handlers.interrupt(Number(payload.slice(INTERRUPT.length)));
      else if (payload.split(',').some((type) => types.includes(Number(type)))) handlers.wake();
    };
    const onReconnect = (): void => {
      handlers.wake();
      handlers.page();
    };
    return this.engine.listen(this.engine.schema.channel('actor'), heard, { onReconnect });
  }

  /** Calls back with each actor that is handed over by way of this channel; says that somebody listens there. */
  listenForHandoffs(
    channel: string,
    { onHandoff, onReconnect }: { onHandoff: (handed: ActorHandoff) => void; onReconnect: () => void },
  ): Promise<Subscription> {
    const read = (payload: string): void => onHandoff(readHandoff(payload));
    return this.engine.listen(channel, read, { onReconnect, isSeen: true });
  }

  async #in(sql: Statement, value: string, tx: unknown): Promise<{ answer?: unknown }> {
    const rows =
      tx === undefined
        ? await this.#runner.query<{ answer?: unknown }>(sql, [value])
        : await this.engine.callIn(tx, sql.text, value);
    return only(rows);
  }
}

/** No text that a turn has: a control character, alone. */
const NONE = '\u0001';

function commitValues(worker: number, turns: readonly TurnCommit[]): unknown[] {
  const all = <T>(of: (turn: TurnCommit) => T | undefined, nothing: T): T[] | null => {
    let some = false;
    const list = turns.map((turn) => {
      const value = of(turn);
      some ||= value !== undefined;
      return value ?? nothing;
    });
    return some ? list : null;
  };
  return [
    worker,
    turns.map(({ id }) => id),
    turns.map(({ epoch }) => epoch),
    turns.map(({ kind }) => kind),
    all(({ waitMs }) => waitMs, Number.NaN),
    turns.map(({ from }) => from),
    all(({ to }) => to, NONE),
    all(({ reason }) => reason, NONE),
    all(({ fields }) => fields, NONE),
    all(({ version }) => version, -1),
    all(({ delta }) => (delta === undefined ? undefined : JSON.stringify(delta)), 'null'),
    all(({ deadlineMs }) => deadlineMs, Number.NaN),
    all(({ error }) => error, NONE),
    all(({ result }) => result, NONE),
    all(({ children }) => children, 0),
    turns.some(({ keepsFields }) => keepsFields) ? turns.map(({ keepsFields = false }) => keepsFields) : null,
    all(({ timers }) => timers, 'null'),
    all(({ timerAtMs }) => timerAtMs, Number.NaN),
  ];
}

/** Semaphores that interrupt a turn which runs. */
function interruptsOf({ states }: ActorDefinition): string[] {
  return [...new Set([...states.values()].flatMap(({ interrupts }) => interrupts))].sort();
}

function backoffNumbers({ backoff: { kind, min, max, factor, jitter } }: ActorDefinition): number[] {
  return [min, max, kind === 'exponential' ? factor : kind === 'linear' ? 0 : 1, jitter];
}

/** Each statement in a transaction of its own at read committed, whatever the database's default is. */
function alone(engine: PostgresEngine, answer: AnswerOptions): Runner {
  const options = { isolation: 'read committed', ...answer } as const;
  return { query: (sql, values) => engine.transaction((tx) => tx.query(sql, values), options) };
}

/** A json column that some drivers parse and some do not. */
function answerOf(row: { answer?: unknown }): unknown {
  const { answer } = row;
  return typeof answer === 'string' ? JSON.parse(answer) : answer;
}
