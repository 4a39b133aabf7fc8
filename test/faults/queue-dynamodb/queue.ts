import type { DynamoEngine } from '../../../src/engine/dynamodb/index.ts';
import { createQueue, type DynamoQueue } from '../../../src/queue/index.ts';

const KINDS = {
  job: { attempts: 20, backoff: { kind: 'fixed', min: 20 } },
  letter: { attempts: 20, backoff: { kind: 'fixed', min: 20 } },
  save: { attempts: 20, backoff: { kind: 'fixed', min: 20 }, debounce: '300ms', coalesce: 'all' },
} as const;

export type FaultyQueue = DynamoQueue<typeof KINDS>;

/** The declaration of all processes of a schedule. */
export function openQueue(engine: DynamoEngine, shards: number): FaultyQueue {
  return createQueue(engine, 'faulty', { kinds: KINDS, shards });
}

/** The orders of a job to its handler. */
export interface Orders {
  readonly name: string;
  readonly ms: number;
  readonly fails: number;
}

export function readOrders(payload: unknown): Orders {
  const { name, ms, fails } = Object(payload);
  return { name: String(name), ms: Number(ms), fails: Number(fails) };
}
