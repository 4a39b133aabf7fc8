import { Conflict, ConnectionFailed, TimedOut } from '../../base/errors.ts';
import { checkOptions, duration, signal } from '../../base/options/options.ts';
import { type InferOutput, type StandardSchemaV1, schemaOption, validate } from '../../base/options/schema.ts';
import { moment, waitedFor } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { ActorBackend, EndsListening } from '../backend.ts';
import type { QuestionState } from '../postgres/operator.ts';

/** How long an answer is waited for, and what it has to be. */
export interface AskOptions<S extends StandardSchemaV1 | undefined = undefined> {
  /** From 10 ms to an hour. Default `'30s'`. */
  readonly wait?: Duration | undefined;
  /** Any Standard Schema: what it makes of the answer is what `ask` gives. Default: the answer as it is. */
  readonly schema?: S | undefined;
  /** Ends the wait with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** What an actor answers, as a schema makes it. */
export type AnswerOf<S> = [S] extends [StandardSchemaV1] ? InferOutput<S> : unknown;

const askShape = { wait: duration({ min: '10ms', max: '1h', default: '30s' }), schema: schemaOption(), signal };

/** How long the process goes on to listen after its last question. */
const LINGER_MS = 5000;

/** Asks actors, and waits for their answers. All questions of it share one channel. */
export class Asker {
  readonly #operator: ActorBackend['operator'];
  readonly #channel = `pawl_${crypto.randomUUID()}`;
  /** By message. */
  readonly #bells = new Map<string, Bell>();
  /** Messages of which a notification came before it was known that they are ours. */
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
      if (message === undefined) throw new Conflict(`actor ${actor} is final: nothing answers "${name}"`);
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
            throw new Conflict(`${what} was read by a turn that gave no answer; in its body: message.reply(value)`);
          case 'final':
            throw new Conflict(`the actor is final, and has not answered ${what}`);
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

  /** A connection that fails delays the answer, and does not lose it. */
  async #look(message: string, leftMs: () => number): Promise<QuestionState> {
    try {
      return await this.#operator.lookForAnswer(message);
    } catch (error) {
      if (error instanceof ConnectionFailed && leftMs() > 0) return { state: 'waiting' };
      throw error;
    }
  }

  /** @throws TimedOut  or why the signal aborted */
  async #giveUp(message: string, what: string, stop: AbortSignal | undefined): Promise<void> {
    const isUnread = await this.#operator.endQuestion(message);
    stop?.throwIfAborted();
    throw new TimedOut(
      `no answer came in time to ${what}; ${isUnread ? 'it was taken back, and no turn reads it; explain() of that actor says why none has' : 'a turn has read it, and may yet do what it asks'}`,
    );
  }

  /** Rings when the answer is there; it may have come before the answer of the call that asked. */
  #bell(message: string): Bell {
    const bell = new Bell(this.#early.delete(message));
    this.#bells.set(message, bell);
    return bell;
  }

  /** Listens, before the first question is sent. @returns what ends that */
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
    // It was there: what was answered before has been handed on.
    void ended?.then((subscription) => subscription.stop());
  }
}

/** Ends a rest, also one that begins after it rang. */
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

  /** Until it rings, the signal aborts, or so long. */
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
