import type pg from 'pg';

/** A connection that calls Pawl's functions as its code does, with transactions as the test wants them. */
export interface Caller {
  readonly client: pg.ClientBase;
  /** The first column of the first row. */
  readonly one: (text: string, values?: readonly unknown[]) => Promise<unknown>;
}

/** How long the transaction of a move may be open in real use. */
export type Openness =
  /** For as long as the user, or a handler, likes: the move is made inside a transaction that the client ends. */
  | 'transaction'
  /** For one statement: the move is always made in a transaction of its own. */
  | 'statement';

/**
 * One call of a function that writes.
 * @template Side  what belongs to one of two clients: jobs, keys, locks, actors
 */
export interface Move<Side> {
  readonly name: string;
  /** The functions of the schema that this move calls by itself. */
  readonly functions: readonly string[];
  readonly open: Openness;
  /** What it takes is committed with an outcome alone, which is another move: by itself it is only undone. */
  readonly isHalf?: boolean;
  run(caller: Caller, side: Side): Promise<unknown>;
}

export async function one(client: pg.ClientBase, text: string, values: readonly unknown[] = []): Promise<unknown> {
  const { rows } = await client.query<unknown[]>({ text, values: [...values], rowMode: 'array' });
  return rows[0]?.[0];
}
