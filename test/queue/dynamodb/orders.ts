import { isObject } from '../../../src/base/options/shape.ts';

/** What a job of the fault tests does. */
export interface Orders {
  readonly name: string;
  readonly ms?: number;
  /** It writes under the guard of its unit. */
  readonly guards?: boolean;
}

/** As they come out of the payload of a job. */
export function readOrders(payload: unknown): Orders {
  if (!isObject(payload)) throw new Error(`no orders: ${JSON.stringify(payload)}`);
  const { name, ms, guards } = payload;
  return { name: String(name), ...(typeof ms === 'number' && { ms }), guards: guards === true };
}

export const KINDS = { job: { attempts: 5, backoff: { kind: 'fixed', min: 1 } } } as const;
