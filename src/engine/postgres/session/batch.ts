import type { ClientLike, QueryConfig } from '../driver.ts';
import type { Statement } from '../sql.ts';

/** One statement of a batch. */
export interface Step {
  readonly statement: Statement;
  readonly values: readonly (string | number | null)[];
}

/** The rows that one statement answered, each a list of fields as Postgres writes them. */
export type Rows = readonly (readonly (string | null)[])[];

/** The part of node-postgres's own connection that sends messages, as its own queries and cursors use it. */
interface Connection {
  readonly stream: { cork(): void; uncork(): void };
  parse(message: { name: string; text: string; types: readonly number[] }): void;
  bind(message: { statement: string; values: readonly (string | null)[] }): void;
  execute(message: object): void;
  sync(): void;
}

/** The statements that are prepared on each connection, and their names there. */
const prepared = new WeakMap<ClientLike, Map<Statement, string>>();
let names = 0;

/**
 * True if a client has such a connection, and passes the server's answers to a batch: node-postgres does, except in its
 * pipeline mode.
 */
export function takesBatches(client: ClientLike): boolean {
  const connection: unknown = Reflect.get(client, 'connection');
  if (typeof connection !== 'object' || connection === null || Reflect.get(client, 'pipeline') === true) return false;
  return ['parse', 'bind', 'execute', 'sync'].every((name) => typeof Reflect.get(connection, name) === 'function');
}

/**
 * Statements that go to the server in one message. Each is prepared when it is first sent: if it were parsed each time, a short
 * statement would cost half as much again. Pass the batch to the client's `query()`.
 */
export class StepBatch implements QueryConfig {
  /** Settles with the rows of each statement, in the order of the statements. */
  readonly answers: Promise<Rows[]>;
  readonly text: string;
  /** The callback of the driver, if it has a time limit for each query: the driver waits until this is called. */
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

  /** The driver calls this when it is the batch's turn, and the other methods with the server's answers. */
  submit(connection: Connection): void {
    const known = prepared.get(this.#client) ?? new Map<Statement, string>();
    prepared.set(this.#client, known);
    // In one write: a write for each message costs twice as much.
    connection.stream.cork();
    for (const { statement, values } of this.#steps) {
      let name = known.get(statement);
      if (name === undefined) {
        names += 1;
        name = `pawl_batch_${names}`;
        connection.parse({ name, text: statement.text, types: [] });
        known.set(statement, name);
      }
      connection.bind({ statement: name, values: values.map((value) => (value === null ? null : String(value))) });
      connection.execute({});
    }
    connection.sync();
    connection.stream.uncork();
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

  /** After an error it is unknown which statements were prepared. They are prepared again, under other names. */
  handleError(error: unknown): void {
    prepared.delete(this.#client);
    this.#reject(error);
    this.callback?.(error);
  }

  handleRowDescription(): void {}

  handleEmptyQuery(): void {}

  handlePortalSuspended(): void {}
}
