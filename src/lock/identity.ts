import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** The owner of a lock, as others see it. */
export interface ProcessIdentity {
  /** Unlike a pid it is never used again; it is part of the name of a channel. */
  readonly id: string;
  readonly host: string;
  readonly pid: number;
}

/** A new identity of this process. */
export function identify(): ProcessIdentity {
  return { id: randomBytes(8).toString('hex'), host: hostname(), pid: process.pid };
}
