import type { ClientLike, QueryConfig } from '../driver.ts';
import type { Statement } from '../sql.ts';
import { Messages } from './messages.ts';

/** One statement of a batch. */
export interface Step {
  readonly statement: Statement;
  readonly values: readonly (string | number | null)[];
}

/** The rows that one statement answered, each a list of fields as Postgres writes them. */
export type Rows = readonly (readonly (string | null)[])[];

/** The part of node-postgres's own connection that takes bytes. */
interface Connection {
  readonly stream: { readonly writable: boolean; write(bytes: Uint8Array): unknown };
}

const messages = new Messages();

/** What is prepared on each connection, and under which name. */
const prepared = new WeakMap<ClientLike, Map<Statement, string>>();
let names = 0;

/** Whether a connection lets others write to the server, and tells them what it answers: node-postgres's own, but in its pipeline mode. */
export function takesBatches(client: ClientLike): boolean {
  const connection: unknown = Reflect.get(client, 'connection');
  if (typeof connection !== 'object' || connection === null || Reflect.get(client, 'pipeline') === true) return false;
  const stream: unknown = Reflect.get(connection, 'stream');
  return typeof stream === 'object' && stream !== null && typeof Reflect.get(stream, 'write') === 'function';
}

/**
 * Statements that go to the server in one message, each prepared when it is first sent: parsed anew each time, a short one
 * costs half as much again. Pass it to the client's `query()`.
 */
export class Batch implements QueryConfig {
  /** Settles with what each statement answered, in their order. */
  readonly answers: Promise<Rows[]>;
  readonly text: string;
  /** The driver's own, where it has a time limit for each query: it waits for this to be called. */
  callback: ((error?: unknown) => void) | undefined;
  readonly #client: ClientLike;
  readonly #steps: readonly Step[];
  readonly #answers: Rows[] = [];
  #rows: (readonly (string | null)[])[] = [];
  #resolve: (answers: Rows[]) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(client: ClientLike, steps: readonly Step[]) {
    this.#client = client;
    this.#steps = steps;
    this.text = steps[0]?.statement.text ?? '';
    this.answers = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  /** The driver calls this when it is the batch's turn, and the others with what the server answers. */
  submit({ stream }: Connection): void {
    const known = prepared.get(this.#client) ?? new Map<Statement, string>();
    prepared.set(this.#client, known);
    for (const { statement, values } of this.#steps) {
      let name = known.get(statement);
      if (name === undefined) {
        names += 1;
        name = `pawl_batch_${names}`;
        messages.parse(name, statement.text);
        known.set(statement, name);
      }
      messages.bind(name, values);
      messages.execute();
    }
    messages.sync();
    const bytes = messages.take();
    // One that was closed tells the batch by itself.
    if (stream.writable) stream.write(bytes);
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    this.#rows.push(fields);
  }

  handleCommandComplete(): void {
    this.#answers.push(this.#rows);
    this.#rows = [];
  }

  handleReadyForQuery(): void {
    this.#resolve(this.#answers);
    this.callback?.();
  }

  /** Nobody knows what was prepared before it: it is done again, under other names. */
  handleError(error: unknown): void {
    prepared.delete(this.#client);
    this.#reject(error);
    this.callback?.(error);
  }

  handleRowDescription(): void {}

  handleEmptyQuery(): void {}

  handlePortalSuspended(): void {}
}
