import type { Duration } from '../../base/time/duration.ts';
import { type CaptureRequest, readCapture } from './claim-request.ts';
import {
  type ColumnValue,
  callFunction,
  callOn,
  type Handle,
  parseTable,
  quoteTable,
  refusedError,
  type TableName,
  type TableParts,
} from './table.ts';
import type { Column, Where } from './where.ts';

/** Which rows are captured, and what is written on them. */
export interface CaptureOptions<Row extends object> {
  /** Rows with one of the statuses `from` get the status `to`. The column is `status` unless another is named. */
  readonly status: {
    readonly column?: Column<Row>;
    readonly from: ColumnValue | readonly ColumnValue[];
    readonly to: Exclude<ColumnValue, null>;
  };
  /** The most rows to capture, 1 to 10,000; never more are, whatever the plan. */
  readonly limit: number;
  /** What else must hold. */
  readonly where?: Where<Row>;
  /** Which rows come first. Default, and after what is given: by primary key. */
  readonly orderBy?: OrderBy<Row> | readonly OrderBy<Row>[];
  /** The column that says how many captures a row has left: it is counted down, and at 0 the row is not captured any more. */
  readonly retries?: Column<Row>;
  /** Only rows of this queue: a column and its value. */
  readonly queueId?: { readonly column: Column<Row>; readonly value: ColumnValue };
  /**
   * The column for the token, bigint (counted up) or uuid (made anew). Without it, tokens are kept in Pawl's schema, which
   * costs one more write per row.
   */
  readonly token?: Column<Row>;
  /**
   * How long a capture holds: rows with the status `to` whose lease ran out, by the database's clock, are captured again.
   * With `column` (timestamptz) it stands in the row; as a mere duration, in Pawl's schema beside the token. Without a lease
   * a row whose process dies after the commit stays in `to` until somebody moves it.
   */
  readonly lease?: Duration | { readonly column: Column<Row>; readonly for: Duration };
}

/** A column, ascending, or one with its direction. */
export type OrderBy<Row> = Column<Row> | { readonly column: Column<Row>; readonly desc?: boolean };

/** A row that was captured. It may be sent to another process as JSON and settled there. */
export interface CapturedRow<Row extends object> {
  /** All columns after the capture, of the types that the driver gives them. */
  readonly row: Row;
  /** Whose it is: a bigint in decimal, higher at each capture of this row, or a uuid. Pass it to whatever you write elsewhere. */
  readonly token: string;
  /** What `settle` needs to know about the capture. */
  readonly claim: RowClaim;
}

/** Which row was captured, and where its token and status stand. */
export interface RowClaim {
  /** The primary key as a JSON array, exact to the last digit. */
  readonly key: string;
  readonly statusColumn: string;
  readonly status: string;
  readonly tokenColumn?: string;
  readonly lease?: { readonly column?: string };
}

/**
 * Moves up to `limit` rows of a table of your own from one status to another and gives them to this process alone, with a
 * token for each. Rows that somebody else has locked are passed over, never waited for.
 *
 * In a transaction of yours the capture is undone when that ends badly or its process dies. On the engine it is
 * committed at once; then give a `lease`, so that the rows of a dead process come back. `settle` says what became of them.
 *
 * One round trip, and another when a table is first seen by this engine or transaction. It uses the index that your own query
 * with these conditions and this order would use. Rows are locked FOR NO KEY UPDATE: inserts of child rows go on.
 * @param handle  an engine, or an open transaction of any known library
 * @throws InvalidInput  an unknown table, column, option or value; nothing is written, and the transaction goes on
 * @throws SerializationFailed  in a transaction of isolation repeatable read or above, when another one changed a row
 */
export async function captureRows<Row extends object = Record<string, unknown>>(
  handle: Handle,
  table: TableName,
  options: CaptureOptions<NoInfer<Row>>,
): Promise<CapturedRow<Row>[]> {
  const what = 'captureRows';
  const parts = parseTable(what, table);
  const request = readCapture(what, options);
  await requireTable(handle, what, parts);
  const rows = await callOn(handle, 'lock.capture', captureText(parts), request);
  return rows.map((row) => readCaptured<Row>(what, row, request));
}

/** The names are such as no library that renames columns would change: lower case, without underscores. */
function captureText(parts: TableParts): string {
  return `select refused as pawlrefused, key as pawlkey, token as pawltoken, (captured).*
from pawl.lock_claim_rows(null::${quoteTable(parts)}, $1::jsonb)`;
}

function readCaptured<Row extends object>(
  what: string,
  found: Record<string, unknown>,
  request: CaptureRequest,
): CapturedRow<Row> {
  const { pawlrefused, pawlkey, pawltoken, ...row } = found;
  if (typeof pawlrefused === 'string') throw refusedError(what, JSON.parse(pawlrefused));
  const { status, token, lease } = request;
  return {
    // The type is what the caller says that the table's rows are.
    row: row as Row,
    token: String(pawltoken),
    claim: {
      key: String(pawlkey),
      statusColumn: status.column,
      status: status.to,
      ...(token === undefined ? {} : { tokenColumn: token }),
      ...(lease === undefined ? {} : { lease: lease.column === undefined ? {} : { column: lease.column } }),
    },
  };
}

const seenTables = new WeakMap<object, Set<string>>();

/**
 * The capture names the table in its text, for the sake of its row type, and a table that is not there would end the
 * caller's transaction; so it is looked for before the text is first sent. What is remembered is only that.
 */
async function requireTable(handle: Handle, what: string, parts: TableParts): Promise<void> {
  const seen = handle instanceof Object ? (seenTables.get(handle) ?? new Set()) : new Set<string>();
  if (seen.has(quoteTable(parts))) return;
  await callFunction(handle, what, 'lock_require_table', { table: parts });
  if (handle instanceof Object) seenTables.set(handle, seen.add(quoteTable(parts)));
}
