import type { OperatorSchema } from '../postgres/operators.ts';

/** What triggers and consumers need to know about a captured table. It is stored in the database as JSON. */
export interface Source {
  /** 0 is the root. */
  readonly number: number;
  readonly schema: string;
  readonly name: string;
  /** The column whose values the triggers write to the log, and its type. */
  readonly column: string;
  readonly type: string;
  readonly operators: OperatorSchema;
  /**
   * A query that turns values of `column` into keys; it reads the relation `changed`. Undefined when the values are the keys.
   */
  readonly query: string | undefined;
  /** True: there is a query although the column holds keys, because the key of an entity may be written in another way there. */
  readonly holdsKeys?: true;
  /** True: the triggers run once for each row, since some statements on the rows do not name this table. */
  readonly rowLevel: boolean;
  readonly history: History | undefined;
}

export interface History {
  readonly rows: 'keys' | 'after' | 'both';
  /** `long` is true for a type of variable length, whose values have to be cut. */
  readonly columns: readonly { readonly name: string; readonly long: boolean }[];
}

/** A capture with everything that was found in the database. */
export interface Definition {
  readonly entity: string;
  readonly sources: readonly Source[];
  /** Tables that were captured earlier, since the log still names them. Without a number 0. */
  readonly former?: readonly Pick<Source, 'number' | 'schema' | 'name'>[];
  /** How long changes are kept; undefined means for ever. SQL functions read it, too. */
  readonly keepMs?: number | undefined;
}

export function rootOf({ sources }: Definition): Source {
  const [root] = sources;
  if (root === undefined) throw new TypeError('a capture without a root');
  return root;
}

/** The name of the table for messages. */
export function showTable({ schema, name }: { readonly schema: string; readonly name: string }): string {
  return schema === 'public' ? name : `${schema}.${name}`;
}

/** The value of `capture_dirty.source`: the number of the link that has to be followed, or 0 for a key. */
export function linkNumber(source: Source): number {
  return source.query === undefined ? 0 : source.number;
}
