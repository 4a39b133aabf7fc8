import type { Duration } from '../../base/time/duration.ts';
import type { SchemaName } from '../../engine/postgres/index.ts';
import { type CaptureRequest, readCapture } from './claim-request.ts';
import {
  type CallTarget,
  type ColumnValue,
  callFunction,
  callOn,
  type EngineOrTransaction,
  type PawlSchema,
  parseTable,
  placeOf,
  quoteTable,
  refusedError,
  type TableName,
  type TableParts,
} from './table.ts';
import type { Column, Where } from './where.ts';

/** Which rows are captured, and which columns are written. */
export interface CaptureOptions<Row extends object> extends PawlSchema {
  /** Rows with one of the statuses `from` get the status `to`. `column`: default `status`. */
  readonly status: {
    readonly column?: Column<Row> | undefined;
    readonly from: ColumnValue | readonly ColumnValue[];
    readonly to: Exclude<ColumnValue, null>;
  };
  /** The most rows to capture, 1 to 10,000; never exceeded, whatever the query plan. */
  readonly limit: number;
  /** Further conditions. */
  readonly where?: Where<Row> | undefined;
  /** Which rows come first. Default, and among equal rows: by primary key. */
  readonly orderBy?: OrderBy<Row> | readonly OrderBy<Row>[] | undefined;
  /**
   * The column with the number of captures that a row has left: each capture counts it down, and at 0 the row is not captured
   * any more.
   */
  readonly retries?: Column<Row> | undefined;
  /** Captures only rows with this value in this column. */
  readonly queueId?: { readonly column: Column<Row>; readonly value: ColumnValue };
  /**
   * The column for the token: bigint (each capture adds one) or uuid (each capture makes a new one). Default: the tokens are
   * in Pawl's schema, which costs one more write per row.
   */
  readonly token?: Column<Row> | undefined;
  /**
   * How long a capture is valid: rows with the status `to` whose lease ran out, by the database's clock, are captured again.
   * With `column` (timestamptz) the lease is in the row; a plain duration is in Pawl's schema with the token. Default: none;
   * a row whose process dies after the commit then stays in `to` until it is moved by hand.
   */
  readonly lease?: Duration | { readonly column: Column<Row> | undefined; readonly for: Duration };
}

/** A column, ascending, or one with its direction. */
export type OrderBy<Row> = Column<Row> | { readonly column: Column<Row>; readonly desc?: boolean };

/** A captured row. It may be sent to another process as JSON and settled there. */
export interface CapturedRow<Row extends object> {
  /** All columns after the capture, with the types of the driver. */
  readonly row: Row;
  /**
   * The fencing token: a bigint in decimal, higher at each capture of this row, or a uuid. Pass it with each write elsewhere.
   */
  readonly token: string;
  /** Data that `settle` needs. */
  readonly claim: RowClaim;
}

/** Identifies a captured row, and the columns of its token and status. */
export interface RowClaim {
  /** The primary key as a JSON array, exact to the last digit. */
  readonly key: string;
  readonly statusColumn: string;
  readonly status: string;
  readonly tokenColumn?: string | undefined;
  readonly lease?: { readonly column?: string };
  /** Pawl's schema, where it is not `pawl`. */
  readonly pawlSchema?: string | undefined;
}

/**
 * Moves up to `limit` rows of a table of your own from one status to another and returns them to this process alone, with a
 * token for each. Rows that another transaction has locked are skipped, never waited for.
 *
 * In a transaction of yours the capture is rolled back with it, also when its process dies. On the engine it is committed at
 * once; give a `lease` then, so that the rows of a dead process are captured again. `settle` gives the rows their next
 * status.
 *
 * One round trip, and another one when this engine or transaction first uses the table. It uses the index that your own query
 * with these conditions and this order would use. Rows are locked FOR NO KEY UPDATE: child rows can be inserted meanwhile.
 * @param handle  an engine, or an open transaction of any known library
 * @throws InvalidInput  an unknown table, column, option or value; nothing is written, and the transaction goes on
 * @throws SerializationFailed  another transaction changed a row, and yours has isolation repeatable read or above
 */
export async function captureRows<Row extends object = Record<string, unknown>>(
  handle: EngineOrTransaction,
  table: TableName,
  options: CaptureOptions<NoInfer<Row>>,
): Promise<CapturedRow<Row>[]> {
  const what = 'captureRows';
  const parts = parseTable(what, table);
  const { request, schema } = readCapture(what, options);
  const place = placeOf(handle, schema);
  await requireTable(place, what, parts);
  const rows = await callOn(place, 'lock.capture', captureText(parts), request);
  return rows.map((row) => readCaptured<Row>(what, row, request, place.schema));
}

/** The column names are lower case without underscores, so that no library that renames columns changes them. */
function captureText(parts: TableParts): string {
  return `select refused as pawlrefused, key as pawlkey, token as pawltoken, (captured).*
from pawl.lock_claim_rows(null::${quoteTable(parts)}, $1::jsonb)`;
}

function readCaptured<Row extends object>(
  what: string,
  found: Record<string, unknown>,
  request: CaptureRequest,
  schema: SchemaName,
): CapturedRow<Row> {
  const { pawlrefused, pawlkey, pawltoken, ...row } = found;
  if (typeof pawlrefused === 'string') throw refusedError(what, JSON.parse(pawlrefused));
  const { status, token, lease } = request;
  return {
    // The caller declares the type of the table's rows.
    row: row as Row,
    token: String(pawltoken),
    claim: {
      key: String(pawlkey),
      statusColumn: status.column,
      status: status.to,
      ...(token === undefined ? {} : { tokenColumn: token }),
      ...(lease === undefined ? {} : { lease: lease.column === undefined ? {} : { column: lease.column } }),
      ...(schema.isDefault ? {} : { pawlSchema: schema.name }),
    },
  };
}

const seenTables = new WeakMap<object, Set<string>>();

/**
 * Checks that the table exists, before the text of the capture is first sent: the text names the table, for the sake of its
 * row type, and a missing table would abort the caller's transaction. Only this result is remembered.
 */
async function requireTable(place: CallTarget, what: string, parts: TableParts): Promise<void> {
  const { handle } = place;
  const seen = handle instanceof Object ? (seenTables.get(handle) ?? new Set()) : new Set<string>();
  if (seen.has(quoteTable(parts))) return;
  await callFunction(place, what, 'lock_require_table', { table: parts });
  if (handle instanceof Object) seenTables.set(handle, seen.add(quoteTable(parts)));
}
