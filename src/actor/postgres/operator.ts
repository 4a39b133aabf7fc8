import { LockNotAvailable } from '../../base/errors.ts';
import { probe } from '../../base/probe.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import { Cooldown } from '../../base/time/cooldown.ts';
import { only, type PostgresEngine, type Subscription, statement } from '../../engine/postgres/index.ts';

const RETRY = statement('actor.retry', 'select pawl.actor_retry($1::bigint) as answer');
const MOVE = statement('actor.move', 'select pawl.actor_move($1::json) as answer');
const ASK = statement('actor.question', 'select pawl.actor_ask($1::json) as answer');
const LOOK = statement('actor.look_for_answer', 'select pawl.actor_look_for_answer($1::bigint)::text as answer');
const END = statement('actor.end_question', 'select pawl.actor_end_question($1::bigint) as answer');
const FORGET = statement(
  'actor.forget_questions',
  'select pawl.actor_end_question(u.message) from pg_catalog.unnest($1::bigint[]) u (message)',
);
const INDEXES = statement('actor.indexes', 'select t.indexes, t.indexed from pawl.actor_type t where t.name = $1');
const FILL = statement(
  'actor.index_fill',
  'select pawl.actor_index_fill($1::text, $2::bigint, $3::int, $4::bigint[])::text as answer',
);
const FILLED = statement('actor.index_filled', 'select pawl.actor_index_filled($1::text, $2::text[])');

/** The most actors whose index rows are written in one transaction. */
const FILLED_AT_ONCE = 500;
/** How long to wait for actors whose rows are locked, for example by a guard() in an open transaction. */
const PATIENCE_MS = 2000;
const LOOK_AGAIN_MS = 50;
/** One statement in this time removes all finished questions, however many a process asks. */
const FORGET_MS = 100;

/** The state of a question. `unanswered`: a turn has read it, and given no answer. `over`: its time is over. */
export type QuestionState =
  | { readonly state: 'waiting' | 'unanswered' | 'final' | 'late' | 'over' }
  | { readonly state: 'answered'; readonly answer: unknown };

/** A question without its payload. */
export interface QuestionHead {
  readonly actor: number;
  readonly name: string;
  /** The channel on which its sender is notified. */
  readonly channel: string;
  /** How long its sender waits. */
  readonly waitMs: number;
}

/** The new state of an actor, and the reason. */
export interface MoveRequest {
  readonly actor: number;
  /** The epoch at which the actor was read. */
  readonly epoch: number;
  /** Whether a turn of the actor ran then. */
  readonly runs: boolean;
  readonly state: string;
  readonly reason: string;
  /** The version of the fields, if they change. */
  readonly version: number | undefined;
}

/** The part of an index that was written. */
interface FilledPart {
  /** Null: there are no more actors after it. */
  readonly last: number | null;
  /** Actors whose rows are locked. */
  readonly left: readonly number[];
}

/**
 * Operations on single actors, and questions to them. The functions that it calls are in sql/actor/ask.sql, move.sql and
 * index.sql.
 */
export class PostgresActorOperator {
  readonly #engine: PostgresEngine;
  readonly #cooldown = new Cooldown();
  /** Finished questions whose sender knows that: they are removed together. */
  #over: string[] = [];

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** @returns false if a turn of the actor runs, or the actor is final @throws NotFound, Conflict */
  async retry(actor: number): Promise<boolean> {
    return only(await this.#engine.decide<{ answer: boolean }>(RETRY, [actor])).answer;
  }

  /**
   * @param fields  JSON
   * @returns false if the actor has another epoch by now, or its turn was committed
   * @throws NotFound, Conflict, InvalidInput
   */
  async move(request: MoveRequest, fields: string | undefined): Promise<boolean> {
    const value = `[${JSON.stringify(request)},${fields ?? 'null'}]`;
    return only(await this.#engine.decide<{ answer: boolean }>(MOVE, [value])).answer;
  }

  /** @param payload  JSON @returns the id of the message; undefined if the actor is final @throws NotFound */
  async ask({ waitMs: wait, ...rest }: QuestionHead, payload: string): Promise<string | undefined> {
    const head = JSON.stringify({ ...rest, wait, direct: this.#cooldown.isOver });
    const rows = await this.#engine.decide<{ answer: string }>(ASK, [`[${head},${payload}]`]);
    const { message, isSlow } = JSON.parse(only(rows).answer) as { message: string | null; isSlow: boolean };
    this.#cooldown.record(isSlow);
    return message ?? undefined;
  }

  /** The longest delay of the answer if its notification is lost. */
  lookAfterMs(_waitedMs: number): number {
    return 500;
  }

  async lookForAnswer(message: string): Promise<QuestionState> {
    const rows = await this.#engine.decide<{ answer: string }>(LOOK, [message]);
    const question = JSON.parse(only(rows).answer) as QuestionState;
    if (question.state !== 'waiting' && question.state !== 'over') this.#forget(message);
    return question;
  }

  /** A question that is not removed here is removed with the history. */
  #forget(message: string): void {
    this.#over.push(message);
    if (this.#over.length > 1) return;
    setTimeout(() => {
      const messages = this.#over;
      this.#over = [];
      this.#engine.decide(FORGET, [messages]).catch(() => {});
    }, FORGET_MS).unref();
  }

  /** @returns true if no turn has read the question, so that none will */
  async endQuestion(message: string): Promise<boolean> {
    return only(await this.#engine.decide<{ answer: boolean }>(END, [message])).answer;
  }

  listen(channel: string, handler: (message: string) => void, onReconnect: () => void): Promise<Subscription> {
    return this.#engine.listen(channel, handler, { onReconnect });
  }

  /** The fields by which actors of a type can be listed; undefined if there is no such type. */
  async indexes(type: string): Promise<readonly string[] | undefined> {
    const [row] = await this.#engine.query<{ indexes: string[] }>(INDEXES, [type]);
    return row?.indexes;
  }

  /**
   * Writes the missing index rows of a type, for actors that existed before the type declared the index.
   * @throws LockNotAvailable  an open transaction has one of the actors locked; the written rows are kept
   */
  async fillIndex(type: string): Promise<void> {
    const [row] = await this.#engine.query<{ indexes: string[]; indexed: string[] }>(INDEXES, [type]);
    if (row === undefined || row.indexes.every((name) => row.indexed.includes(name))) return;
    let left: readonly number[] = [];
    for (let last: number | null = 0; last !== null; ) {
      const part = await this.#fill(type, last, null);
      left = [...left, ...part.left];
      ({ last } = part);
    }
    const begun = moment();
    while (left.length > 0) {
      if (waitedFor(begun) > PATIENCE_MS) {
        throw new LockNotAvailable(
          `the index of "${type}" is not complete: an open transaction has actor ${left[0]} locked; try again when it has ended`,
        );
      }
      probe.hit('actor.index_left');
      await sleep(LOOK_AGAIN_MS);
      ({ left } = await this.#fill(type, 0, left));
    }
    await this.#engine.decide(FILLED, [type, row.indexes]);
  }

  /** @param ids  null: the next actors after `after` */
  async #fill(type: string, after: number, ids: readonly number[] | null): Promise<FilledPart> {
    const rows = await this.#engine.decide<{ answer: string }>(FILL, [type, after, FILLED_AT_ONCE, ids]);
    return JSON.parse(only(rows).answer) as FilledPart;
  }
}
