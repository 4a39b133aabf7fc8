import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** Who a lock belongs to, as others see it. */
export interface ProcessIdentity {
  /** Unlike a pid never the same again, and part of a channel's name. */
  readonly id: string;
  readonly host: string;
  readonly pid: number;
}

/** A new identity of this process. */
export function identify(): ProcessIdentity {
  return { id: randomBytes(8).toString('hex'), host: hostname(), pid: process.pid };
}
