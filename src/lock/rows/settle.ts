import { InvalidInput } from '../../base/errors.ts';
import { contradiction } from '../../base/options/kinds.ts';
import { checkOptions, custom } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import type { SchemaName } from '../../engine/postgres/index.ts';
import type { CapturedRow, RowClaim } from './claim.ts';
import {
  type ColumnValue,
  callFunction,
  type EngineOrTransaction,
  parseTable,
  pawlSchema,
  placeOf,
  type TableName,
} from './table.ts';
import { type Column, type ColumnLookups, lookUpColumn, lookUpValue } from './where.ts';

/** Options of {@link settle}. */
export interface SettleOptions<Row extends object> {
  /**
   * Further columns to write, with their values; an object or array, for a column of type json or jsonb, is written as JSON.
   */
  readonly set?: { readonly [C in Column<Row>]?: ColumnValue | object };
}

/** The outcome: every row is in one of the two lists. */
export interface SettleResult<Row extends object> {
  readonly settled: CapturedRow<Row>[];
  /**
   * Rows that no longer belong to this capture: captured again, moved by another program, or deleted. They were not changed.
   */
  readonly stale: CapturedRow<Row>[];
}

/**
 * Gives captured rows their next status, each on condition that it still has the token and the status of its capture: a slow
 * worker changes nothing after another one took over its row. A row whose lease ran out, but which was not captured again,
 * can still be settled. To retry a row, settle it to a status that is captured again.
 *
 * Call it in the transaction that writes the results, and throw unless `stale` is empty: then both are committed or neither.
 * One round trip, none without rows. Waits for transactions that have locked the rows.
 * @param handle  an engine, or an open transaction of any known library
 * @throws InvalidInput  an unknown table, column or value, or rows that captureRows did not return; nothing is written
 */
export async function settle<Row extends object>(
  handle: EngineOrTransaction,
  table: TableName,
  rows: readonly CapturedRow<Row>[],
  status: Exclude<ColumnValue, null>,
  options: SettleOptions<NoInfer<Row>> = {},
): Promise<SettleResult<Row>> {
  const what = 'settle';
  const { set } = checkOptions(what, options, { set: custom('an object of columns', readSet, { default: {} }) });
  return writeRows(handle, table, rows, (claim) => {
    const lookups: ColumnLookups = { columns: [], values: [] };
    const to = lookUpValue(claim.statusColumn, status, { field: 'status', what }, lookups);
    if (to === null || to === claim.status) {
      throw refusal(
        { field: 'status', what },
        status,
        'another status than that of the capture; to keep the status, use extendRows()',
      );
    }
    const values = Object.entries(set).map(([column, value]) => {
      const place = { field: `set.${column}`, what };
      if (column === claim.statusColumn || column === claim.tokenColumn) {
        throw contradiction(
          place,
          'is the column of the status or the token, which settle() writes itself; leave it out',
        );
      }
      lookUpColumn(column, place, lookups);
      return { column, value: lookUpValue(column, value, place, lookups) };
    });
    return { what, ...lookups, to, set: values };
  });
}

/**
 * Gives captured rows a new lease from now on, each on condition that it still belongs to this capture. For work that takes
 * longer than the lease: call it after each third of the lease, and stop working on rows that are `stale`.
 * @param lease  from now on
 * @throws InvalidInput  rows that were captured without a lease
 */
export async function extendRows<Row extends object>(
  handle: EngineOrTransaction,
  table: TableName,
  rows: readonly CapturedRow<Row>[],
  lease: Duration,
): Promise<SettleResult<Row>> {
  const what = 'extendRows';
  const ms = parseDuration(lease, { field: 'lease', what, min: 100, max: 365 * 86_400_000 });
  return writeRows(handle, table, rows, (claim) => {
    if (claim.lease === undefined) {
      throw new InvalidInput(`rows for ${what} were captured without a lease; give captureRows() a lease`, {
        field: 'rows',
      });
    }
    return { what, columns: [], values: [], set: [], lease: { column: claim.lease.column, ms } };
  });
}

interface RowChange extends ColumnLookups {
  readonly what: string;
  readonly to?: string | undefined;
  readonly set: readonly { readonly column: string; readonly value: string | null }[];
  readonly lease?: { readonly column: string | undefined; readonly ms: number };
}

/**
 * Rows of one call of captureRows() differ only in their keys. Rows of several calls may be mixed: each kind is one
 * statement.
 */
async function writeRows<Row extends object>(
  handle: EngineOrTransaction,
  table: TableName,
  rows: readonly CapturedRow<Row>[],
  change: (claim: RowClaim) => RowChange,
): Promise<SettleResult<Row>> {
  const parts = parseTable('settle', table);
  const isList: boolean = Array.isArray(rows);
  if (!isList) throw refusal({ field: 'rows', what: 'settle' }, rows, 'an array of captured rows');
  const requests = groups(rows).map((group) => ({ ...group, change: change(group.claim) }));
  const settled = new Set<CapturedRow<Row>>();
  for (const {
    claim,
    members,
    change: { what, to, lease, ...rest },
  } of requests) {
    const payload = {
      ...rest,
      table: parts,
      rows: members.map(({ claim: { key }, token }) => ({ key, token })),
      status: { column: claim.statusColumn, is: claim.status, to },
      token: claim.tokenColumn,
      lease,
    };
    lookUpClaim(claim, payload);
    const place = placeOf(handle, schemaOf(claim, what));
    const answer = await callFunction<{ settled: number[] }>(place, what, 'lock_settle_rows', payload);
    const won = new Set(answer.settled.map((ord) => identity(members[ord - 1])));
    for (const member of members) if (won.has(identity(member))) settled.add(member);
  }
  return { settled: rows.filter((row) => settled.has(row)), stale: rows.filter((row) => !settled.has(row)) };
}

/** A claim may come from another process: its columns are looked up like any others. */
function lookUpClaim(
  { statusColumn, tokenColumn, lease }: RowClaim,
  { columns }: Pick<ColumnLookups, 'columns'>,
): void {
  columns.push({ field: 'rows', column: statusColumn });
  if (tokenColumn !== undefined) columns.push({ field: 'rows', column: tokenColumn, as: 'token' });
  if (lease?.column !== undefined) columns.push({ field: 'rows', column: lease.column, as: 'lease' });
}

function schemaOf({ pawlSchema: name }: RowClaim, what: string): SchemaName | undefined {
  return name === undefined ? undefined : pawlSchema.given(name, { field: 'rows', what });
}

function groups<Row extends object>(
  rows: readonly CapturedRow<Row>[],
): { claim: RowClaim; members: CapturedRow<Row>[] }[] {
  const found = new Map<string, { claim: RowClaim; members: CapturedRow<Row>[] }>();
  rows.forEach((row, index) => {
    requireCaptured(row, index);
    const { key: _, ...alike } = row.claim;
    const group = found.get(JSON.stringify(alike)) ?? { claim: row.claim, members: [] };
    group.members.push(row);
    found.set(JSON.stringify(alike), group);
  });
  return [...found.values()];
}

function identity(row: CapturedRow<object> | undefined): string {
  return `${row?.token} ${row?.claim.key}`;
}

function requireCaptured(
  row: { readonly token?: unknown; readonly claim?: unknown } | null | undefined,
  index: number,
): void {
  const claim = typeof row?.token === 'string' ? row.claim : undefined;
  if (!isObject(claim) || typeof claim['statusColumn'] !== 'string' || !isKey(claim['key'])) {
    throw refusal(
      { field: `rows.${index}`, what: 'settle' },
      row,
      'a row that captureRows() returned, with its row, token and claim',
    );
  }
}

function isKey(key: unknown): boolean {
  try {
    return typeof key === 'string' && Array.isArray(JSON.parse(key));
  } catch {
    return false;
  }
}

function readSet(given: unknown, place: { field: string }): Readonly<Record<string, unknown>> {
  if (!isObject(given)) throw refusal(place, given, 'an object of columns and their values');
  return given;
}
