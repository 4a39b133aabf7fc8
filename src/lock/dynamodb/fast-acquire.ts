import { type CallLimits, type DynamoEngine, readBig } from '../../engine/dynamodb/index.ts';
import type { AcquireCall } from '../store.ts';
import type { Head, HeadHolder } from './head.ts';
import type { Heads } from './heads.ts';
import { A } from './items/head.ts';
import { headOf, lockKey } from './items/key.ts';
import { takeFree } from './items/requests.ts';

/** The parts of the store that the fast path needs. */
interface FastAcquireParts {
  readonly engine: DynamoEngine;
  readonly heads: Heads;
}

/** A request for one lock. */
interface FastAcquireRequest {
  readonly call: AcquireCall;
  readonly holderAt: (at: number) => Omit<HeadHolder, 'token'>;
  readonly limits: () => CallLimits;
}

/**
 * Takes a lock without reading it first: an uncontended acquire is one write unit and one round trip.
 * @returns the token; or the head, if the lock is not free
 */
export async function fastAcquire(
  { engine, heads }: FastAcquireParts,
  { call, holderAt, limits }: FastAcquireRequest,
): Promise<bigint | Head> {
  const pk = lockKey(call.space, call.names[0] ?? '');
  const { periodMs } = call;
  const at = periodMs === undefined ? engine.now() : await engine.serviceTime(limits());
  const written = takeFree(holderAt(at), periodMs === undefined ? undefined : at - periodMs);
  // The old values of the written attributes are less to send than the whole item, and contain the token before this one.
  const outcome = await engine.update(headOf(pk), written, 'UPDATED_OLD', limits());
  if (outcome.isDone) return readBig(outcome.item, A.fence) + 1n;
  return heads.observe(pk, outcome) ?? (await heads.read(pk, limits()));
}
