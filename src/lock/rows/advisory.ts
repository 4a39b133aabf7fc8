import { createHash } from 'node:crypto';
import { checkOptions, oneOf, optional, text } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { checkTimeout, heldError, type IfLocked, ifLockedShape, type LockCallOutcome } from './lock.ts';
import {
  callFunction,
  type EngineOrTransaction,
  type PawlSchema,
  pawlSchema,
  placeOf,
  requireTransaction,
  toText,
} from './table.ts';

/** Options of {@link lockKey}. */
export interface LockKeyOptions extends IfLocked, PawlSchema {
  /** `'shared'` holders exclude only exclusive ones. Default `'exclusive'`. */
  readonly mode?: 'exclusive' | 'shared' | undefined;
  /** Equal names of different namespaces are different locks. Default: the name of Pawl's schema. */
  readonly namespace?: string | undefined;
}

const LONGEST_NAME = 255;

/**
 * Locks a name until the transaction ends, by an advisory lock: no table, one round trip. In a transaction that you have
 * anyway, no other lock is cheaper, or freed faster after a crash. It has no token, no lease and no signal: it is held
 * exactly as long as the transaction.
 *
 * Waiters are served in order, shared and exclusive ones in one queue: later shared ones do not starve an exclusive one. A
 * transaction may lock the same name again, and can continue after a failure to lock.
 *
 * Names are hashed to 64 bits (among five billion names, the chance that two have the same hash is one in two). Names with
 * the same hash exclude each other needlessly, and two transactions that take such names in different orders can deadlock,
 * which Postgres ends with SerializationFailed. Take several names in the same order everywhere.
 * @param tx  an open transaction of any known library
 * @param name  1 to 255 bytes
 * @returns true when the name is locked; false only with `ifLocked: 'skip'`
 * @throws InvalidInput  a bad name or option; no transaction
 * @throws LockNotAvailable  with `ifLocked: 'fail'`
 * @throws TimedOut  after `timeout`
 */
export async function lockKey(tx: EngineOrTransaction, name: string, options: LockKeyOptions = {}): Promise<boolean> {
  const what = 'lockKey';
  const {
    mode,
    namespace,
    pawlSchema: given,
    ...wait
  } = checkOptions(what, options, {
    mode: oneOf(['exclusive', 'shared'], { default: 'exclusive' }),
    namespace: optional(text({ min: 1, max: LONGEST_NAME })),
    pawlSchema,
    ...ifLockedShape,
  });
  const timeout = checkTimeout(what, wait);
  requireName(what, name);
  requireTransaction(what, tx);
  const place = placeOf(tx, given);
  const payload = { key: lockKeyNumber(namespace ?? place.schema.name, name), mode, ifLocked: wait.ifLocked, timeout };
  const answer = await callFunction<LockCallOutcome>(place, what, 'lock_key', payload);
  if (answer.outcome === 'done') return true;
  if (answer.outcome === 'held' && wait.ifLocked === 'skip') return false;
  throw heldError(`the key "${name}"`, answer, wait);
}

/**
 * The number under which pg_locks shows the name: `objid` is its lower half, `classid` its upper. It is the first eight
 * bytes of the SHA-256 of namespace, a zero byte, and name, as a signed number in decimal.
 */
export function lockKeyNumber(namespace: string, name: string): string {
  return createHash('sha256').update(`${namespace}\0${name}`).digest().readBigInt64BE(0).toString();
}

function requireName(what: string, name: unknown): void {
  const length = typeof name === 'string' && toText(name) !== undefined ? Buffer.byteLength(name) : 0;
  if (length < 1 || length > LONGEST_NAME) {
    throw refusal({ field: 'name', what }, name, `a name of 1 to ${LONGEST_NAME} bytes without U+0000`);
  }
}
