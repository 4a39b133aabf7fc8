import { Conflict, ConnectionFailed, TimedOut } from '../../base/errors.ts';
import { checkOptions, duration, signal } from '../../base/options/options.ts';
import { type InferOutput, type StandardSchemaV1, schemaOption, validate } from '../../base/options/schema.ts';
import { moment, waitedFor } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { ActorBackend, EndsListening } from '../backend.ts';
import type { QuestionState } from '../postgres/operator.ts';

/** How long to wait for an answer, and what the answer must be. */
export interface AskOptions<S extends StandardSchemaV1 | undefined = undefined> {
  /** From 10 ms to an hour. Default `'30s'`. */
  readonly wait?: Duration | undefined;
  /** Any Standard Schema: `ask` returns its output for the answer. Default: the answer as it is. */
  readonly schema?: S | undefined;
  /** Ends the wait with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** The answer of an actor: the output of a schema. */
export type AnswerOf<S> = [S] extends [StandardSchemaV1] ? InferOutput<S> : unknown;

const askShape = { wait: duration({ min: '10ms', max: '1h', default: '30s' }), schema: schemaOption(), signal };

/** How long the process goes on to listen after its last question. */
const LINGER_MS = 5000;

/** Asks actors, and waits for their answers. All questions share one channel. */
export class Asker {
  readonly #operator: ActorBackend['operator'];
  readonly #channel = `pawl_${crypto.randomUUID()}`;
  /** By message. */
  readonly #bells = new Map<string, Bell>();
  /** Messages whose notification came before this process knew that they are its own. */
  readonly #early = new Set<string>();
  #asked = 0;
  #subscription: Promise<EndsListening> | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(operator: ActorBackend['operator']) {
    this.#operator = operator;
  }

  /** @param payload  JSON @throws as `ActorAdmin.ask` */
  async ask<S extends StandardSchemaV1 | undefined>(
    actor: number,
    name: string,
    payload: string,
    options: AskOptions<S>,
  ): Promise<unknown> {
    const { wait, schema, signal: stop } = checkOptions('ask', options, askShape);
    stop?.throwIfAborted();
    const begun = moment();
    const leave = await this.#enter();
    try {
      const head = { actor, name, channel: this.#channel, waitMs: wait };
      const message = await this.#operator.ask(head, payload);
      if (message === undefined) throw new Conflict(`actor ${actor} is final, so no turn can answer "${name}"`);
      const answer = await this.#await(message, `"${name}" of actor ${actor}`, () => wait - waitedFor(begun), stop);
      return await validate(schema, answer, `the answer to "${name}"`);
    } finally {
      leave();
    }
  }

  async #await(message: string, what: string, leftMs: () => number, stop: AbortSignal | undefined): Promise<unknown> {
    const bell = this.#bell(message);
    const begun = moment();
    try {
      for (;;) {
        await bell.rest(Math.min(this.#operator.lookAfterMs(waitedFor(begun)), Math.max(leftMs(), 0)), stop);
        const question = await this.#look(message, leftMs);
        switch (question.state) {
          case 'answered':
            return question.answer;
          case 'unanswered':
            throw new Conflict(`a turn read ${what} and gave no answer; call message.reply(value) in its body`);
          case 'final':
            throw new Conflict(`the actor is final, and has not answered ${what}`);
          case 'late':
            throw new TimedOut(`no answer came in time to ${what}; a turn has read it, and may have done what it asks`);
          case 'over':
            throw new TimedOut(`no answer came in time to ${what}`);
          case 'waiting':
        }
        if (stop?.aborted === true || leftMs() <= 0) await this.#giveUp(message, what, stop);
      }
    } finally {
      this.#bells.delete(message);
    }
  }

  /** A failed connection delays the answer, but does not lose it. */
  async #look(message: string, leftMs: () => number): Promise<QuestionState> {
    try {
      return await this.#operator.lookForAnswer(message);
    } catch (error) {
      if (error instanceof ConnectionFailed && leftMs() > 0) return { state: 'waiting' };
      throw error;
    }
  }

  /** @throws TimedOut  or the reason of the signal */
  async #giveUp(message: string, what: string, stop: AbortSignal | undefined): Promise<void> {
    const isUnread = await this.#operator.endQuestion(message);
    stop?.throwIfAborted();
    throw new TimedOut(
      `no answer to ${what} came in time; ${isUnread ? 'it was withdrawn, so no turn will read it; explain() of that actor says why none has read it' : 'a turn has read it, and may still do what it asks'}`,
    );
  }

  /** Rings when the answer is there. The answer may come before the call that asked has its own answer. */
  #bell(message: string): Bell {
    const bell = new Bell(this.#early.delete(message));
    this.#bells.set(message, bell);
    return bell;
  }

  /** Listens before the first question is sent. @returns a function that stops listening */
  async #enter(): Promise<() => void> {
    clearTimeout(this.#linger);
    this.#asked += 1;
    const leave = (): void => {
      this.#asked -= 1;
      if (this.#asked > 0) return;
      this.#early.clear();
      this.#linger = setTimeout(() => this.#stop(), LINGER_MS).unref();
    };
    const ring = (message: string): void => {
      const bell = this.#bells.get(message);
      if (bell === undefined) this.#early.add(message);
      else bell.ring();
    };
    const ringAll = (): void => {
      for (const bell of this.#bells.values()) bell.ring();
    };
    try {
      this.#subscription ??= this.#operator.listen(this.#channel, ring, ringAll);
      await this.#subscription;
    } catch (error) {
      this.#subscription = undefined;
      leave();
      throw error;
    }
    return leave;
  }

  #stop(): void {
    const ended = this.#subscription;
    this.#subscription = undefined;
    // It existed, so its notifications so far were handed on.
    void ended?.then((subscription) => subscription.stop());
  }
}

/** Ends a rest; if it rings before a rest begins, that rest ends at once. */
class Bell {
  #hasRung: boolean;
  #end: (() => void) | undefined;

  constructor(hasRung: boolean) {
    this.#hasRung = hasRung;
  }

  ring(): void {
    this.#hasRung = true;
    this.#end?.();
  }

  /** Rests until it rings, the signal aborts, or `ms` have passed. */
  async rest(ms: number, stop: AbortSignal | undefined): Promise<void> {
    if (!this.#hasRung && stop?.aborted !== true) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#end = () => {
          clearTimeout(timer);
          resolve();
        };
        stop?.addEventListener('abort', this.#end, { once: true });
      });
      if (this.#end !== undefined) stop?.removeEventListener('abort', this.#end);
    }
    this.#end = undefined;
    this.#hasRung = false;
  }
}
