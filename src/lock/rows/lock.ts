import { InvalidInput, LockNotAvailable, TimedOut } from '../../base/errors.ts';
import { contradiction } from '../../base/options/kinds.ts';
import { checkOptions, duration, oneOf, optional } from '../../base/options/options.ts';
import { refusal, show } from '../../base/options/refusal.ts';
import { type Check, isObject } from '../../base/options/shape.ts';
import type { Duration } from '../../base/time/duration.ts';
import { formatDuration } from '../../base/time/duration.ts';
import {
  type ColumnValue,
  callFunction,
  type EngineOrTransaction,
  type PawlSchema,
  parseTable,
  pawlSchema,
  placeOf,
  requireTransaction,
  showTable,
  type TableName,
  toText,
} from './table.ts';

/** A value of a primary key's column. */
export type KeyValue = Exclude<ColumnValue, null>;

/** The primary key of one row: a value, or for a key of several columns an array in their order, or an object by name. */
export type RowId = KeyValue | readonly KeyValue[] | Readonly<Record<string, KeyValue>>;

/** Options of {@link lockRows}. */
export interface LockRowsOptions extends IfLocked, PawlSchema {
  /**
   * `'update'` (FOR NO KEY UPDATE): no other transaction can lock, change or delete the rows; child rows can be inserted.
   * `'share'` (FOR SHARE): others can lock them for share, too, and none can change them. Default `'update'`.
   *
   * A steady stream of shared locks makes an update wait for ever: the database lets a later shared lock pass it.
   */
  readonly mode?: 'update' | 'share' | undefined;
}

/** What to do when another transaction holds the lock. */
export interface IfLocked {
  /**
   * `'wait'`: waits until it is free. `'skip'`: continues without it. `'fail'`: throws at once and locks nothing. Default
   * `'wait'`.
   */
  readonly ifLocked?: 'wait' | 'skip' | 'fail' | undefined;
  /**
   * The longest wait for all locks of the call together. Only with `'wait'`. Default: the session's `lock_timeout`, which is
   * usually unlimited, and which starts anew for each row.
   */
  readonly timeout?: Duration | undefined;
}

/** The outcome for each requested id, in the form in which it was passed. */
export interface LockedRows<Id> {
  readonly locked: Id[];
  /** Rows that another transaction holds; only with `ifLocked: 'skip'`. */
  readonly skipped: Id[];
  /** Ids without a row. */
  readonly missing: Id[];
}

/** The longest `timeout` that Postgres knows. */
export const LONGEST_TIMEOUT = '24d';

/**
 * Locks rows of a table of your own until the transaction ends. The table needs a primary key, and nothing else.
 *
 * Rows are locked in the order of their primary key, so that calls with the same ids in any order cannot deadlock; two
 * calls in one transaction can. A row may have changed during the wait: read it after the call. The transaction can continue
 * after a failure to lock. One round trip.
 * @param tx  an open transaction of any known library
 * @throws InvalidInput  an unknown table, option or key; no ids; no transaction
 * @throws LockNotAvailable  with `ifLocked: 'fail'`, the error has the ids that are held; no row was locked
 * @throws TimedOut  after `timeout`, the error has the ids that are held; no row was locked
 */
export async function lockRows<const Id extends RowId>(
  tx: EngineOrTransaction,
  table: TableName,
  ids: readonly Id[],
  options: LockRowsOptions = {},
): Promise<LockedRows<Id>> {
  const what = 'lockRows';
  const parts = parseTable(what, table);
  const keys = parseIds(what, ids);
  const {
    mode,
    pawlSchema: schema,
    ...wait
  } = checkOptions(what, options, {
    mode: oneOf(['update', 'share'], { default: 'update' }),
    pawlSchema,
    ...ifLockedShape,
  });
  const timeout = checkTimeout(what, wait);
  requireTransaction(what, tx);
  const payload = { table: parts, keys, mode, ifLocked: wait.ifLocked, timeout };
  const answer = await callFunction<LockRowsAnswer>(placeOf(tx, schema), what, 'lock_rows', payload);
  const [locked, existing] = [new Set(answer.locked), new Set(answer.existing)];
  const among = (holds: (ord: number) => boolean): Id[] => ids.filter((_, index) => holds(index + 1));
  const skipped = among((ord) => existing.has(ord) && !locked.has(ord));
  if (answer.outcome !== 'done') {
    throw heldError(`${showTable(parts)} ${skipped.map(showId).slice(0, SHOWN_IDS).join(', ')}`, answer, wait);
  }
  return {
    locked: among((ord) => locked.has(ord)),
    skipped,
    missing: among((ord) => !locked.has(ord) && !existing.has(ord)),
  };
}

interface LockRowsAnswer extends LockCallOutcome {
  readonly locked: readonly number[];
  readonly existing: readonly number[];
}

/** The outcome of a call for a lock. */
export interface LockCallOutcome {
  readonly outcome: 'done' | 'held' | 'timeout';
  /** After a timeout: the session's own `lock_timeout`. */
  readonly sessionTimeout?: string | undefined;
}

const SHOWN_IDS = 10;

/** Checks of the options of {@link IfLocked}. */
export const ifLockedShape: {
  readonly ifLocked: Check<CheckedWait['ifLocked']>;
  readonly timeout: Check<CheckedWait['timeout']>;
} = {
  ifLocked: oneOf(['wait', 'skip', 'fail'], { default: 'wait' }),
  timeout: optional(duration({ min: 1, max: LONGEST_TIMEOUT, infinite: true })),
};

/** The timeout for the database's functions. @throws InvalidInput  when the call never waits */
export function checkTimeout(what: string, { ifLocked, timeout }: CheckedWait): number | 'Infinity' | undefined {
  if (timeout === undefined) return undefined;
  if (ifLocked !== 'wait') {
    throw contradiction(
      { field: 'timeout', what },
      `has no meaning with ifLocked: '${ifLocked}', which never waits; leave one out`,
    );
  }
  return timeout === Infinity ? 'Infinity' : timeout;
}

/** {@link IfLocked} after the check. */
export interface CheckedWait {
  readonly ifLocked: 'wait' | 'skip' | 'fail';
  readonly timeout: number | undefined;
}

/** The error of a call that could not lock. */
export function heldError(
  what: string,
  outcome: LockCallOutcome,
  { timeout }: CheckedWait,
): LockNotAvailable | TimedOut {
  const rest = 'nothing was locked by this call, and the transaction can go on';
  if (outcome.outcome === 'held') {
    return new LockNotAvailable(
      `${what} is locked by another transaction; ${rest}: try later, or wait with ifLocked: 'wait'`,
    );
  }
  if (timeout === undefined) {
    return new LockNotAvailable(
      `${what} was locked by another transaction for longer than the session's lock_timeout of ${outcome.sessionTimeout}; ` +
        `${rest}: raise it, or give timeout`,
    );
  }
  return new TimedOut(
    `${what} was locked by another transaction for longer than ${formatDuration(timeout)}; ${rest}: raise timeout, or look ` +
      'for the transaction that holds it with pg_blocking_pids()',
  );
}

type KeyText = string[] | Record<string, string>;

function parseIds(what: string, ids: unknown): KeyText[] {
  if (!Array.isArray(ids)) throw refusal({ field: 'ids', what }, ids, 'an array of primary keys');
  if (ids.length === 0) {
    throw new InvalidInput(`option "ids" for ${what} is an empty array; give at least one primary key`, {
      field: 'ids',
    });
  }
  return ids.map((given: unknown, index) => parseId({ field: `ids.${index}`, what }, given));
}

function parseId(place: { field: string; what: string }, given: unknown): KeyText {
  const read = (value: unknown): string => {
    const text = isNamed(value) ? undefined : toText(value);
    if (text === null || text === undefined || Array.isArray(value)) {
      throw refusal(
        place,
        value,
        'a primary key: a string, number, bigint, boolean or Date, or an array or object of them',
      );
    }
    return text;
  };
  if (Array.isArray(given)) return given.map(read);
  if (!isNamed(given)) return [read(given)];
  return Object.fromEntries(Object.entries(given).map(([column, value]) => [column, read(value)]));
}

/** Whether this is a key by column names, and not a value that is an object, too. */
function isNamed(value: unknown): value is Readonly<Record<string, unknown>> {
  return isObject(value) && !(value instanceof Date) && !(value instanceof Uint8Array);
}

function showId(given: unknown): string {
  if (Array.isArray(given)) return `(${given.map(showId).join(', ')})`;
  if (isNamed(given)) return showId(Object.values(given));
  return show(given);
}
