import { loggedTables } from './declare/numbers.ts';
import { type Definition, showTable } from './declare/source.ts';
import type { ChangeRow } from './postgres/change.ts';

/** One change of one row. */
export interface CapturedChange {
  /** Ids rise: of two changes of one row, the later one has the higher id. */
  readonly id: string;
  /** When the statement ran, by the database's clock. */
  readonly at: Date;
  readonly table: string;
  readonly op: 'insert' | 'update' | 'delete' | 'truncate';
  /** The key of the entity. For a table that leads to entities by a link: the value of that link. Null for a truncate. */
  readonly key: string | null;
  /** The key before the update; null if the update did not change it. */
  readonly oldKey: string | null;
  /** The listed columns as text; null if the history of the table does not have them. */
  readonly before: Readonly<Record<string, string | null>> | null;
  readonly after: Readonly<Record<string, string | null>> | null;
  /** Who made the change, and why: the values that the writer put into `pawl.actor` and `pawl.reason`. They are not verified. */
  readonly actor: string | null;
  readonly reason: string | null;
  /** The role that the session logged in as. */
  readonly dbUser: string;
}

export function toChange(row: ChangeRow, definition: Definition): CapturedChange {
  const source = loggedTables(definition).find(({ number }) => number === row.source);
  const { source: _number, ...rest } = row;
  return { ...rest, at: new Date(row.at), table: source === undefined ? '?' : showTable(source) };
}
