import { Conflict, CorruptObject, StoreRefused, StoreUnavailable } from '../../base/errors.ts';

/** What may be otherwise in a while: somebody makes room, closes files, mends the disk. */
const PASSING = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'EMFILE', 'ENFILE', 'EAGAIN', 'ESTALE', 'ETIMEDOUT']);

/** Does work on a disk. @throws diskFailure */
export async function told<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw diskFailure(error);
  }
}

/** What the operating system threw as one of Pawl's errors. CorruptObject: there is no such file. Conflict: there is one. */
export function diskFailure(error: unknown): unknown {
  const code = codeOf(error);
  if (!(error instanceof Error) || code === '') return error;
  const cause = { cause: error };
  if (code === 'ENOENT')
    return new CorruptObject(`there is no such file: ${error.message}`, { ...cause, damage: 'missing' });
  if (code === 'EEXIST') return new Conflict(`there is such a file already: ${error.message}`, cause);
  if (PASSING.has(code)) return new StoreUnavailable(`the disk store cannot now: ${error.message}`, cause);
  return new StoreRefused(`the disk store refused: ${error.message}`, cause);
}

export function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}
