import { type Definition, showTable } from './declare/source.ts';
import type { ChangeRow } from './postgres/change.ts';

/** One change of one row. */
export interface Change {
  /** Rises; of two changes of one row the later has the higher one. */
  readonly id: string;
  /** When the statement ran, by the database's clock. */
  readonly at: Date;
  readonly table: string;
  readonly op: 'insert' | 'update' | 'delete' | 'truncate';
  /** Of the entity; in a table that leads to entities by a link, the value of that link. Null for a truncate. */
  readonly key: string | null;
  /** What it was before, where an update changed it. */
  readonly oldKey: string | null;
  /** The listed columns as text; null where the history of the table does not have them. */
  readonly before: Readonly<Record<string, string | null>> | null;
  readonly after: Readonly<Record<string, string | null>> | null;
  /** Who and why, as the writer said in `pawl.actor` and `pawl.reason`: not verified. */
  readonly actor: string | null;
  readonly reason: string | null;
  /** The role that had logged in. */
  readonly dbUser: string;
}

export function toChange(row: ChangeRow, { sources }: Definition): Change {
  const source = sources.find(({ number }) => number === row.source);
  const { source: _number, ...rest } = row;
  return { ...rest, at: new Date(row.at), table: source === undefined ? '?' : showTable(source) };
}
