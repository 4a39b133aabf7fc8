import { toJson } from '../../base/storable.ts';
import type { MessageRow } from '../store.ts';
import type { Effects } from './effects.ts';

/** What a turn was sent. */
export class Message<P = unknown> {
  readonly id: string;
  readonly name: string;
  readonly payload: P;
  /** When it was sent, by the database's clock. */
  readonly at: Date;
  /** Whether its sender waits for an answer: it was sent by `actors.ask()`. */
  readonly isAsked: boolean;
  readonly #effects: () => Pick<Effects, 'replies'>;

  /** @internal */
  constructor(
    { id, name, at, isAsked }: Omit<MessageRow, 'payload'>,
    payload: P,
    effects: () => Pick<Effects, 'replies'>,
  ) {
    this.id = id;
    this.name = name;
    this.payload = payload;
    this.at = at;
    this.isAsked = isAsked;
    this.#effects = effects;
  }

  /**
   * Answers `actors.ask()`, once this turn is committed, and never if it is not. Where no process waits it does nothing; of several answers
   * of a turn the last one counts.
   * @throws InvalidInput  JSON cannot hold the value @throws Conflict  the turn is over
   */
  reply(value?: unknown): void {
    const { replies } = this.#effects();
    const json = toJson(value, `the answer to "${this.name}"`);
    if (this.isAsked) replies.set(this.id, json);
  }
}
