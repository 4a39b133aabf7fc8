import { InvalidInput } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import type { PulledKey } from '../postgres/pull.ts';

/** The content of a handle: the unit, and the attempt that it is in. */
export interface UnitHandle extends PulledKey {
  readonly attempt: number;
}

/** A text that names a claimed unit, so that another process or program can settle the unit. */
export function writeHandle({ shard, worker, claim, job, process, attempt }: UnitHandle): string {
  return Buffer.from(JSON.stringify([shard, worker, claim, job, process, attempt])).toString('base64url');
}

/** @throws InvalidInput */
export function readHandle(text: unknown): UnitHandle {
  const [shard, worker, claim, job, process, attempt] = typeof text === 'string' ? parts(text) : [];
  const numbers = [shard, worker, claim, job, attempt];
  if (!numbers.every((one) => Number.isSafeInteger(one)) || typeof process !== 'string' || !UUID.test(process)) {
    throw new InvalidInput(`${show(text)} is no handle of a unit; claim() gives one with each unit`, {
      field: 'handle',
    });
  }
  const [s, w, c, j, a] = numbers.map(Number);
  return { shard: s ?? 0, worker: w ?? 0, claim: c ?? 0, job: j ?? 0, process, attempt: a ?? 0 };
}

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

function parts(text: string): unknown[] {
  try {
    const read: unknown = JSON.parse(Buffer.from(text, 'base64url').toString());
    return Array.isArray(read) ? (read as unknown[]) : [];
  } catch {
    return [];
  }
}
