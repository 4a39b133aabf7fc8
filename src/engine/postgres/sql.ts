import { InvalidInput } from '../../base/errors.ts';

/**
 * One SQL statement with a name. The name stands first in the text as a comment, so that logs and pg_stat_activity show
 * it, and names the prepared statement.
 */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /** `false` for text that differs from call to call: a prepared statement's name must always mean the same text. */
  readonly prepare: boolean;
  /** True: Pawl's own parsers read the answer, and not the parsers that the program has set: see `types.ts`. */
  readonly isOwn?: boolean | undefined;
  /**
   * True: the text contains SQL or names of the program's, and no name of Pawl's schema. It is sent unchanged, whatever the
   * schema is called.
   */
  readonly isVerbatim?: boolean | undefined;
}

export interface StatementOptions {
  readonly prepare?: boolean | undefined;
  /** `false` for a statement that answers with rows of the program's own. */
  readonly isOwn?: boolean | undefined;
  readonly isVerbatim?: boolean | undefined;
}

/** For a statement with names or SQL of the program's: its text differs from call to call, and contains no name of Pawl's. */
export const VERBATIM: StatementOptions = { prepare: false, isVerbatim: true };

/** `statement('queue.claim', 'select …')`: lower case, one clause a line, values as $1, $2… */
export function statement(
  name: string,
  text: string,
  { prepare = true, isOwn = true, isVerbatim = false }: StatementOptions = {},
): Statement {
  if (typeof name !== 'string' || typeof text !== 'string' || name === '') {
    throw new InvalidInput(
      "statement() takes a name and a text of SQL: statement('invoice.pay', 'update …'); logs and pg_stat_activity show the name",
      { field: typeof name !== 'string' || name === '' ? 'name' : 'text' },
    );
  }
  return { name, text: `-- ${name}\n${text.trim()}`, prepare, isOwn, isVerbatim };
}

/** Quotes an identifier: the only way a name that is not a literal in our source may enter a statement. */
export function id(...parts: string[]): string {
  return parts.map((part) => `"${part.replaceAll('"', '""')}"`).join('.');
}

/** The row of a statement that always answers with one row. */
export function only<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new Error('the database returned no row where there is always one');
  return row;
}
