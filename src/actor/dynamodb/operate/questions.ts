import { NotFound } from '../../../base/errors.ts';
import { fieldsOf, written } from '../../../engine/dynamodb/index.ts';
import type { EndsListening } from '../../backend.ts';
import type { QuestionHead, QuestionState } from '../../postgres/operator.ts';
import type { ActorRows } from '../database.ts';
import { questionIn, questionTakenBack } from '../heads/question.ts';
import type { Producing } from '../producing.ts';
import { messageOf, questionOf } from '../rows.ts';

/** The calls of senders of questions; see `heads/question.ts`. If a process dies while it waits, time to live removes its rows. */
export class Questions {
  readonly #rows: ActorRows;
  readonly #producing: Producing;
  readonly #listeners = new Set<(message: string) => void>();

  constructor(rows: ActorRows, producing: Producing) {
    this.#rows = rows;
    this.#producing = producing;
  }

  /** @param payload  JSON @returns undefined if the actor is final @throws NotFound */
  async ask({ actor, name, waitMs }: QuestionHead, payload: string): Promise<string | undefined> {
    const message = await this.#producing.ask(actor, name, payload, waitMs);
    return message === undefined ? undefined : idOf(actor, message);
  }

  async look(id: string): Promise<QuestionState> {
    const { actor, message } = readId(id);
    const found = await this.#read(actor, message);
    if (found.state !== 'waiting') return found;
    const head = await this.#rows.head(actor);
    if (head !== undefined && !head.isFinal) return found;
    // The turn that made it final may have given the answer.
    const last = await this.#read(actor, message);
    return last.state === 'waiting' ? { state: 'final' } : last;
  }

  async #read(actor: number, message: number): Promise<QuestionState> {
    const seen = questionIn(fieldsOf(await this.#rows.get(questionOf(actor, message))));
    return seen.state === 'answered' ? { state: 'answered', answer: JSON.parse(seen.answer) } : { state: seen.state };
  }

  /** Takes a question back, since its sender does not wait any more. @returns whether no turn has read it; then no turn will */
  async end(id: string): Promise<boolean> {
    const { actor, message } = readId(id);
    return this.#rows.together([
      { key: questionOf(actor, message), removed: written(questionTakenBack()) },
      { key: messageOf(actor, message), removed: {} },
    ]);
  }

  /** Calls the handler for answers by turns of this process. */
  listen(handler: (message: string) => void): EndsListening {
    this.#listeners.add(handler);
    return { stop: () => Promise.resolve(void this.#listeners.delete(handler)) };
  }

  answered(actor: number, message: number): void {
    for (const ring of this.#listeners) ring(idOf(actor, message));
  }
}

function idOf(actor: number, message: number): string {
  return `${actor}.${message}`;
}

function readId(id: string): { readonly actor: number; readonly message: number } {
  const [actor = Number.NaN, message = Number.NaN] = id.split('.').map(Number);
  if (!Number.isInteger(actor) || !Number.isInteger(message)) throw new NotFound(`there is no question ${id}`);
  return { actor, message };
}
