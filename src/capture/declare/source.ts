import type { OperatorSchema } from '../postgres/operators.ts';

/** A captured table, as its triggers and its consumers need to know it. Kept in the database as JSON. */
export interface Source {
  /** 0 is the root. */
  readonly number: number;
  readonly schema: string;
  readonly name: string;
  /** The column whose values the triggers note, and its type. */
  readonly column: string;
  readonly type: string;
  readonly operators: OperatorSchema;
  /** What turns values of `column` into keys; undefined when they are the keys. It reads the relation `changed`. */
  readonly query: string | undefined;
  /** One trigger call for each row: where statements on the table itself are not all there is. */
  readonly rowLevel: boolean;
  readonly history: History | undefined;
}

export interface History {
  readonly rows: 'keys' | 'after' | 'both';
  /** With whether the value has a length of its own, and so has to be cut. */
  readonly columns: readonly { readonly name: string; readonly long: boolean }[];
}

/** A capture, complete. */
export interface Definition {
  readonly entity: string;
  readonly sources: readonly Source[];
  /** How long changes are kept; undefined for ever. Read by SQL, too. */
  readonly keepMs?: number | undefined;
}

export function rootOf({ sources }: Definition): Source {
  const [root] = sources;
  if (root === undefined) throw new TypeError('a capture without a root');
  return root;
}

/** For people. */
export function showTable({ schema, name }: { readonly schema: string; readonly name: string }): string {
  return schema === 'public' ? name : `${schema}.${name}`;
}

/** What stands in `capture_dirty.source`: the number of the link that has to be followed, or 0 for a key. */
export function linkNumber(source: Source): number {
  return source.query === undefined ? 0 : source.number;
}
