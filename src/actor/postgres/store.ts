import type { Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { Cooldown } from '../../base/time/cooldown.ts';
import {
  type AnswerOptions,
  BOTH,
  only,
  type PostgresEngine,
  type Session,
  type Statement,
  type Subscription,
  type Transaction,
} from '../../engine/postgres/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type {
  ActorClaim,
  ChildRecord,
  ClaimAnswer,
  CommitAnswer,
  MessageFilter,
  MessageRow,
  TurnCommit,
  TurnToken,
  WorkerRow,
} from '../store.ts';
import { readClaimAnswer } from './claim-reader.ts';
import { commitValues } from './commit-values.ts';
import { declarationOf } from './declaration.ts';
import { type HandoffHandlers, listenForHandoffs, listenForNews, type NewsHandlers } from './listening.ts';
import * as sql from './statements.ts';

/** Runs statements: the pool, a session, or an open transaction. */
export interface Runner {
  query<Row>(text: Statement, values?: unknown[]): Promise<Row[]>;
}

const PRUNE_AT_ONCE = 1000;
/** The longest time of a statement of `atCommit`: the network may fail silently, and other commits need its place. */
const COMMIT_MS = 60_000;

/** Every statement of turns and workers. The functions that they call are in sql/actor/. */
export class PostgresActorStore {
  readonly engine: PostgresEngine;
  /** Claims and commits must see the commits of others after a wait for a row. Only read committed gives them that. */
  #rows: Runner;
  /** For all other statements. */
  readonly #runner: Runner;
  readonly #answer: AnswerOptions;
  #ids: number[] = [];
  readonly #cooldown = new Cooldown();

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    this.engine = engine;
    this.#answer = answer;
    this.#runner = { query: (text, values) => engine.query(text, values, answer) };
    this.#rows = this.#runner;
  }

  /** The same store with a deadline for its own statements: a silent connection is then treated as dead. */
  within(deadlineMs: number): PostgresActorStore {
    const store = new PostgresActorStore(this.engine, { deadlineMs });
    if (this.#rows !== this.#runner) store.#rows = alone(this.engine, { deadlineMs });
    return store;
  }

  /** @returns the definitions by the ids of their types */
  async register(definitions: readonly ActorDefinition[]): Promise<ReadonlyMap<number, ActorDefinition>> {
    const rows = await this.#runner.query<{ ids: Record<string, number>; isolation: string; server: string }>(
      sql.REGISTER,
      [JSON.stringify(definitions.map(declarationOf))],
    );
    const { ids, isolation, server } = only(rows);
    await this.engine.meet(server);
    if (isolation !== 'read committed') this.#rows = alone(this.engine, this.#answer);
    return new Map(definitions.map((definition) => [Number(ids[definition.name]), definition]));
  }

  /** @param fields  JSON */
  async create(head: object, fields: string, tx: unknown): Promise<{ id: string; created: boolean; state: string }> {
    const value = `[${JSON.stringify(head)},${fields}]`;
    return answerOf(await this.#in(sql.CREATE, value, tx)) as { id: string; created: boolean; state: string };
  }

  async incr(request: object, tx: unknown): Promise<boolean> {
    const value = JSON.stringify(request);
    if (tx === undefined && this.#cooldown.isOver) return this.#alone(sql.INCR_ALONE, value);
    return answerOf(await this.#in(sql.INCR, value, tx)) === true;
  }

  /** @param payload  JSON */
  async send(head: object, payload: string, tx: unknown): Promise<boolean> {
    const value = `[${JSON.stringify(head)},${payload}]`;
    if (tx === undefined && this.#cooldown.isOver) return this.#alone(sql.SEND_ALONE, value);
    return answerOf(await this.#in(sql.SEND, value, tx)) === true;
  }

  /** In a transaction of its own: the actor is handed to a sleeping worker, if there is one. */
  async #alone(call: Statement, value: string): Promise<boolean> {
    const rows = await this.#runner.query<{ answer: string }>(call, [value]);
    const { counts, isSlow } = JSON.parse(only(rows).answer) as { counts: boolean; isSlow: boolean };
    this.#cooldown.record(isSlow);
    return counts;
  }

  async claim(worker: number, types: readonly number[], limit: number, offer?: Offer): Promise<ClaimAnswer> {
    const values = [worker, types, limit];
    const rows = await (offer === undefined
      ? this.#rows.query<{ answer: string }>(sql.CLAIM, values)
      : this.#rows.query<{ answer: string }>(sql.CLAIM_OR_OFFER, [...values, offer.number, offer.channel]));
    return readClaimAnswer(only(rows).answer);
  }

  async offer({ worker, number, channel }: Offer): Promise<void> {
    await this.#runner.query(sql.OFFER, [worker, number, channel]);
  }

  /** Withdraws the offers that no producer is using at that moment. @returns their numbers */
  async withdraw(worker: number): Promise<number[]> {
    const rows = await this.#runner.query<{ numbers: string[] }>(sql.WITHDRAW, [worker]);
    return only(rows).numbers.map(Number);
  }

  /** Wakes sleeping workers, so that they search for actors of these types. */
  async wake(types: readonly number[]): Promise<void> {
    await this.#runner.query(sql.WAKE, [types]);
  }

  /** Claims an actor that has to run alone. @param isIdle  the worker runs no other actor */
  async claimAlone(worker: number, types: readonly number[], isIdle: boolean): Promise<ActorClaim | undefined> {
    const rows = await this.#rows.query<{ answer: string }>(sql.CLAIM_ALONE, [worker, types, isIdle]);
    return readClaimAnswer(only(rows).answer).claims[0];
  }

  async claimOne(worker: number, actor: number): Promise<ActorClaim | undefined> {
    const rows = await this.#rows.query<{ answer: string }>(sql.CLAIM_ONE, [worker, actor]);
    return readClaimAnswer(only(rows).answer).claims[0];
  }

  async commit(worker: number, turns: readonly TurnCommit[], runner: Runner = this.#rows): Promise<CommitAnswer> {
    const rows = await runner.query<{ answer: string }>(sql.COMMIT, commitValues(worker, turns));
    return JSON.parse(only(rows).answer) as CommitAnswer;
  }

  /** Sends the offer, if there is one, together with the commit, which saves a statement. */
  async commitAndOffer(worker: number, turns: readonly TurnCommit[], offer: Offer | undefined): Promise<CommitAnswer> {
    if (offer === undefined) return this.commit(worker, turns);
    const values = [...commitValues(worker, turns), offer.number, offer.channel];
    const rows = await this.#rows.query<{ answer: string }>(sql.COMMIT_AND_OFFER, values);
    return JSON.parse(only(rows).answer) as CommitAnswer;
  }

  /**
   * One transaction for a turn with effects.
   * @param idleMs  after this time a process that hangs loses the transaction, because the transaction holds the row
   * @param hasOthers  whether it contains statements that are not ours, and may take long
   */
  transaction<T>(fn: (tx: Transaction) => Promise<T>, idleMs: number, hasOthers: boolean): Promise<T> {
    const run = async (tx: Transaction): Promise<T> => {
      await tx.query(sql.IDLE, [String(Math.ceil(idleMs))]);
      if (this.engine.spansNodes) await tx.query(BOTH);
      return fn(tx);
    };
    const deadlineMs = hasOthers ? Math.max(idleMs, COMMIT_MS) : this.#answer.deadlineMs;
    return this.engine.transaction(run, { isolation: 'read committed', retries: 0, deadlineMs });
  }

  /**
   * One transaction that holds the actor's row from its begin to its end; the turn belongs to this process that long.
   * @throws LeaseLost  another worker has the turn by now @throws LockNotAvailable
   */
  inTransaction<T>(token: TurnToken, fn: (tx: Transaction) => Promise<T>, idleMs: number): Promise<T> {
    const lend = (session: Session): Promise<unknown> => session.query(sql.LEND, [JSON.stringify(token)]);
    const run = async (tx: Transaction): Promise<T> => {
      await tx.query(sql.IDLE, [String(Math.ceil(idleMs))]);
      if (this.engine.spansNodes) await tx.query(BOTH);
      await this.guard(token, tx, true);
      await tx.query(sql.SAVEPOINT);
      return fn(tx);
    };
    return this.engine.transaction(run, { isolation: 'read committed', retries: 0, before: lend, deadlineMs: idleMs });
  }

  /** Undoes everything since the row was locked. */
  async undo(tx: Transaction): Promise<void> {
    await tx.query(sql.UNDO);
  }

  /** @returns whether the actor is held now: no live worker can run it */
  async reportUnknown(
    token: TurnToken,
    type: number,
    state: string,
    version: number,
    reason: string,
  ): Promise<boolean> {
    const value = JSON.stringify({ ...token, type, state, version, reason });
    const rows = await this.#rows.query<{ held: boolean }>(sql.UNKNOWN, [value]);
    return only(rows).held;
  }

  /** @throws LeaseLost  another worker has the turn by now @throws LockNotAvailable  with `nowait` */
  async guard(token: TurnToken, tx: unknown, nowait = false): Promise<void> {
    await this.#in(sql.GUARD, JSON.stringify({ ...token, nowait }), tx);
  }

  async recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined> {
    const [row] = await this.#runner.query<{ result: unknown }>(sql.RECALL, [actor, visit, key]);
    return row;
  }

  /** @param result  JSON @throws LeaseLost  another worker has the turn by now */
  async remember(token: TurnToken, visit: number, key: string, result: string): Promise<void> {
    await this.#runner.query(sql.REMEMBER, [`[${JSON.stringify({ ...token, visit, key })},${result}]`]);
  }

  /** An id for an actor that the commit of a turn will create. Ids are taken fifty at a time; gaps have no meaning. */
  async allocate(): Promise<number> {
    if (this.#ids.length === 0) {
      const rows = await this.#runner.query<{ id: string }>(sql.ALLOCATE, [50]);
      this.#ids.push(...rows.map(({ id }) => Number(id)));
    }
    return Number(this.#ids.shift());
  }

  messages(actor: number, { name, except, limit }: MessageFilter): Promise<MessageRow[]> {
    return this.#runner.query<MessageRow & Record<string, unknown>>(sql.MESSAGES, [actor, name ?? null, except, limit]);
  }

  async dropMessages(actor: number, ids: readonly string[], cut: readonly string[], tx: Runner): Promise<number> {
    const rows = await tx.query<{ dropped: number }>(sql.READ, [actor, ids]);
    if (cut.length > 0) await tx.query(sql.READ_ON, [actor, cut]);
    return only(rows).dropped;
  }

  children(actor: number): Promise<ChildRecord[]> {
    return this.#runner.query<ChildRecord & Record<string, unknown>>(sql.CHILDREN, [actor]);
  }

  /**
   * Writes an effect of a turn, in the transaction that commits the turn.
   * @param request  JSON @throws LockNotAvailable  another open transaction has the key, or the tag
   */
  async ask(what: 'create' | 'page' | 'resolve' | 'enqueue' | 'reply', request: string, tx: Runner): Promise<unknown> {
    return answerOf(only(await tx.query<{ answer?: unknown }>(sql.ASK, [what, request])));
  }

  async openPage(page: object, tx: unknown): Promise<{ id: string; news: 'opened' | 'escalated' | 'none' }> {
    return answerOf(await this.#in(sql.OPEN_PAGE, JSON.stringify(page), tx)) as {
      id: string;
      news: 'opened' | 'escalated' | 'none';
    };
  }

  async resolvePage(tag: string, tx: unknown): Promise<boolean> {
    return answerOf(await this.#in(sql.RESOLVE_PAGE, tag, tx)) === true;
  }

  /** Registers a process, and lets go actors that were held because no program knew their state, if this one knows it. */
  async addWorker(row: WorkerRow): Promise<number> {
    const knows = JSON.stringify(row.knows);
    const values = [row.host, row.pid, row.concurrency, row.leaseMs, row.types, knows, row.wantsNotify];
    const added = await this.#runner.query<{ id: string }>(sql.ADD_WORKER, values);
    // After the registration, and after each new one: before, others may have held actors that this process knows.
    if (row.types.length > 0) await this.#rows.query(sql.LET_GO, [knows]);
    return Number(only(added).id);
  }

  /** Renews all workers of a process in one statement. @returns the workers that are still alive */
  async beat(workers: readonly { id: number; wants: boolean }[], session: Session): Promise<number[]> {
    const values = [workers.map(({ id }) => id), workers.map(({ wants }) => wants)];
    const rows = await session.query<{ alive: string[] }>(sql.BEAT, values);
    return only(rows).alive.map(Number);
  }

  async setWants(worker: number, wants: boolean): Promise<void> {
    await this.#runner.query(sql.WANTS, [worker, wants]);
  }

  /** Its row stays while an actor names it, so that the rescue finds it. */
  async endWorker(worker: number): Promise<void> {
    await this.#runner.query(sql.END_WORKER, [worker]);
  }

  /** @returns how many actors it freed, and the types with a due actor that has to run alone */
  async rescue(): Promise<{ readonly actors: number; readonly suspects: readonly number[] }> {
    return only(await this.#rows.query<{ actors: number; suspects: number[] }>(sql.RESCUE));
  }

  /**
   * Gives back the actors that the worker holds and does not know.
   * @param known  epochs by actor @param isAll  paused actors, too, which may be many
   */
  async recallClaims(worker: number, known: ReadonlyMap<number, number>, isAll: boolean): Promise<RecallResult> {
    const values = [worker, [...known.keys()], [...known.values()], isAll];
    const rows = await this.#rows.query<{ answer: { actors: number; offers: number[] } }>(sql.RECALL_CLAIMS, values);
    const { actors, offers } = only(rows).answer;
    return { lost: actors, offers };
  }

  /** The same before the worker stops, when its offers are removed; it also covers used offers. */
  async leave(worker: number, known: ReadonlyMap<number, number>): Promise<void> {
    await this.#rows.query(sql.LEAVE, [worker, [...known.keys()], [...known.values()]]);
  }

  /** @returns milliseconds until the next deadline; Infinity if there is none */
  async deadlines(): Promise<number> {
    const rows = await this.#rows.query<{ wait: number | null }>(sql.DEADLINES);
    return only(rows).wait ?? Infinity;
  }

  async prune(): Promise<number> {
    const rows = await this.#rows.query<{ rows: number }>(sql.PRUNE, [PRUNE_AT_ONCE]);
    return only(rows).rows;
  }

  /** How often the semaphores of these actors are raised, by actor. */
  async raised(actors: readonly number[]): Promise<Readonly<Record<string, Readonly<Record<string, number>>>>> {
    const rows = await this.#runner.query<{ answer: Record<string, Record<string, number>> }>(sql.RAISED, [actors]);
    return only(rows).answer;
  }

  /** Calls back when something came for actors of these types, or when a page has to be delivered. */
  listen(types: readonly number[], handlers: NewsHandlers): Promise<Subscription> {
    return listenForNews(this.engine, types, handlers);
  }

  /** Calls back with each actor that is handed over on this channel, and shows producers that the channel has a listener. */
  listenForHandoffs(channel: string, handlers: HandoffHandlers): Promise<Subscription> {
    return listenForHandoffs(this.engine, channel, handlers);
  }

  async #in(call: Statement, value: string, tx: unknown): Promise<{ answer?: unknown }> {
    const rows =
      tx === undefined
        ? await this.engine.decide<{ answer?: unknown }>(call, [value], this.#answer)
        : await this.engine.callIn(tx, call.text, value);
    return only(rows);
  }
}

/** Runs each statement in a transaction of its own at read committed, whatever the database's default is. */
function alone(engine: PostgresEngine, answer: AnswerOptions): Runner {
  const options = { isolation: 'read committed', ...answer } as const;
  return { query: (text, values) => engine.transaction((tx) => tx.query(text, values), options) };
}

/** A json column, which some drivers parse and others do not. */
function answerOf(row: { answer?: unknown }): unknown {
  const { answer } = row;
  return typeof answer === 'string' ? JSON.parse(answer) : answer;
}
