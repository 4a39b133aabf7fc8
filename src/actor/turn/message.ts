import { toJson } from '../../base/storable.ts';
import type { MessageRow } from '../store.ts';
import type { Effects } from './effects.ts';

/** A message that a turn has received. */
export class Message<P = unknown> {
  readonly id: string;
  readonly name: string;
  readonly payload: P;
  /** When it was sent, by the database's clock. */
  readonly at: Date;
  /** True: it was sent by `actors.ask()`, and its sender waits for an answer. */
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
   * Answers `actors.ask()`. The answer is sent when this turn is committed, and never without that commit. If no process waits,
   * it does nothing. Of several answers in a turn, the last one counts.
   * @throws InvalidInput  JSON cannot hold the value @throws Conflict  the turn is over
   */
  reply(value?: unknown): void {
    const { replies } = this.#effects();
    const json = toJson(value, `the answer to "${this.name}"`);
    if (this.isAsked) replies.set(this.id, json);
  }
}
