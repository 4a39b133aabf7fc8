import type { EndedCounts } from '../heads/ended.ts';
import { type ShardClaim } from '../heads/head.ts';
import type { KeyHead } from '../heads/key-head.ts';
import { type Span } from '../heads/spans.ts';

/** What a worker has claimed, as long as it is not settled. */
export interface HeldClaim {
  /** The id of the claim, as the worker knows it. */
  readonly id: number;
  readonly shard: number;
  readonly claimedAt: number;
  /** How far the line of keys was claimed then, as a place, and the pieces before that were missing. */
  readonly frontier: number;
  readonly missing: readonly number[];
  /** The last number that was taken then. */
  readonly last: number;
  /** All claims of the shard then. */
  readonly claims: readonly ShardClaim[];
  /** As it stands in the head. */
  claim: ShardClaim;
  /** How often something went back from it: each time under a name of its own. */
  returns: number;
  /** Jobs without a key that have no outcome yet, by id, each with its span. */
  readonly plain: Map<number, Span>;
  readonly keys: Set<HeldKey>;
  /** Jobs that have an `onError` of their own. */
  readonly ownLetters: Set<number>;
  /** Jobs that have ended since the head of the shard was last written for this claim. */
  ended: EndedCounts;
}

/** A key that a worker has taken, and what of its chain has no outcome yet. */
export interface HeldKey {
  readonly key: string;
  readonly epoch: number;
  readonly pk: string;
  readonly claim: HeldClaim;
  /** The poke that it followed: it stays in the claim as long as the key is held. */
  readonly poke: Span;
  readonly jobs: Map<number, number>;
  head: KeyHead;
  /** It was given up, and its poke is still to leave the claim: until when that goes back. */
  givenUp: { readonly backUntil: number | undefined } | undefined;
}

/** Claims have numbers by shard; with the shard in it, the id is unique, and rises with each claim of a shard. */
const SHARDS = 256;

export function claimId(shard: number, token: number): number {
  return token * SHARDS + shard;
}
