import { type CallLimits, type DynamoEngine, type Outcome, readBig } from '../../engine/dynamodb/index.ts';
import type { AcquireCall } from '../store.ts';
import type { Head, HeadHolder } from './head.ts';
import type { Heads } from './heads.ts';
import { A } from './items/head.ts';
import { headOf, lockKey } from './items/key.ts';
import { takeAgain, takeFree } from './items/requests.ts';
import type { Leavings } from './leavings.ts';

/** What it takes. */
interface FastAcquireParts {
  readonly engine: DynamoEngine;
  readonly heads: Heads;
  readonly leavings: Leavings;
}

/** What is asked for: one lock. */
interface FastAcquireRequest {
  readonly call: AcquireCall;
  readonly holderAt: (at: number) => Omit<HeadHolder, 'token'>;
  readonly limits: () => CallLimits;
}

/**
 * Takes a lock without looking first: the whole uncontended acquire, one write unit and one round trip.
 * @returns its token, or the head when that could not be
 */
export async function fastAcquire(parts: FastAcquireParts, request: FastAcquireRequest): Promise<bigint | Head> {
  const { engine, heads, leavings } = parts;
  const { call, holderAt, limits } = request;
  const pk = lockKey(call.space, call.names[0] ?? '');
  const left = mayBeWrong(call) ? leavings.expected(pk) : undefined;
  const readHeadOf = async (outcome: Outcome): Promise<Head> => {
    leavings.missed(pk, left !== undefined);
    return heads.observe(pk, outcome) ?? (await heads.read(pk, limits()));
  };
  if (left !== undefined) {
    const outcome = await engine.update(headOf(pk), takeAgain(holderAt(engine.now()), left), 'NONE', limits());
    if (!outcome.isDone) return readHeadOf(outcome);
    leavings.met(pk, left);
    return left + 1n;
  }
  const { periodMs } = call;
  const at = periodMs === undefined ? engine.now() : await engine.serviceTime(limits());
  const written = takeFree(holderAt(at), periodMs === undefined ? undefined : at - periodMs);
  // What was there before is less to send than what is there now: the token before this one.
  const outcome = await engine.update(headOf(pk), written, 'UPDATED_OLD', limits());
  if (!outcome.isDone) return readHeadOf(outcome);
  const fence = readBig(outcome.item, A.fence);
  leavings.met(pk, fence);
  return fence + 1n;
}

/** Whether a second request will do when the first one meets another state than it expects. Without waiting there is only one. */
function mayBeWrong({ capacity, waiterMs, periodMs }: AcquireCall): boolean {
  return capacity === 1 && waiterMs !== undefined && periodMs === undefined;
}
