import { Conflict, CorruptObject, StoreRefused, StoreUnavailable } from '../../base/errors.ts';

/** Errors that may go away: a person makes room, closes files or repairs the disk. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'EMFILE', 'ENFILE', 'EAGAIN', 'ESTALE', 'ETIMEDOUT']);

/** Awaits work on a disk; throws its error as {@link diskFailure} translates it. */
export async function told<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw diskFailure(error);
  }
}

/**
 * Translates an error of the operating system to one of Pawl's. CorruptObject: there is no such file. Conflict: there is one
 * already.
 */
export function diskFailure(error: unknown): unknown {
  const code = codeOf(error);
  if (!(error instanceof Error) || code === '') return error;
  const cause = { cause: error };
  if (code === 'ENOENT')
    return new CorruptObject(`there is no such file: ${error.message}`, { ...cause, damage: 'missing' });
  if (code === 'EEXIST') return new Conflict(`there is such a file already: ${error.message}`, cause);
  if (PASSING.has(code))
    return new StoreUnavailable(`the disk store failed, but a later call may succeed: ${error.message}`, cause);
  return new StoreRefused(`the disk store refused: ${error.message}`, cause);
}

export function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}
