import type { EndedCounts } from '../heads/ended.ts';
import { type ShardClaim } from '../heads/head.ts';
import type { KeyHead } from '../heads/key-head.ts';
import { type Span } from '../heads/spans.ts';

/** A claim of a worker, until it is settled. */
export interface HeldClaim {
  /** The id of the claim for the worker. */
  readonly id: number;
  readonly shard: number;
  readonly claimedAt: number;
  /** The place up to which the line of keys had been claimed after this claim. */
  readonly frontier: number;
  /** The pieces before the frontier that were missing then. */
  readonly missing: readonly number[];
  /** The last number that was taken then. */
  readonly last: number;
  /** All claims of the shard at that time. */
  readonly claims: readonly ShardClaim[];
  /** The claim as the head has it. */
  claim: ShardClaim;
  /** A counter that gives each settlement and each set of jobs that goes back a name of its own. */
  returns: number;
  /** Jobs without a key that have no outcome yet, by id, each with its span. */
  readonly plain: Map<number, Span>;
  readonly keys: Set<HeldKey>;
  /** Jobs that have an `onError` of their own. */
  readonly ownLetters: Set<number>;
  /** Jobs that have ended since the head of the shard was last written for this claim. */
  ended: EndedCounts;
}

/** A key that a worker has taken, and the jobs of its chain that have no outcome yet. */
export interface HeldKey {
  readonly key: string;
  readonly epoch: number;
  readonly pk: string;
  readonly claim: HeldClaim;
  /** The poke by which the worker took the key. It stays in the claim as long as the key is held. */
  readonly poke: Span;
  /** The attempt of each job, by id. */
  readonly jobs: Map<number, number>;
  head: KeyHead;
  /** Set when the key was given up and its poke has yet to leave the claim, with the time until which the poke goes back. */
  givenUp: { readonly backUntil: number | undefined } | undefined;
}

/** Each shard counts its claims. With the shard in it, the id of a claim is unique, and rises with each claim of a shard. */
const SHARDS = 256;

export function claimId(shard: number, token: number): number {
  return token * SHARDS + shard;
}
