/**
 * The place of a job, and its id. A _piece_ is one row of at most {@link JOBS} jobs of one enqueue. Its number is made of the band of
 * their priority and a sequence number of the shard. Sequence numbers are consecutive, so a number without a row is known to be missing.
 *
 * `id = shard × 2^45 + piece × 64 + index`, below 2^53. In the first shard, jobs without a priority have short ids.
 */

/** The most jobs of a piece. With 200 bytes each it has 13 KB, so rounding up to a kilobyte costs little. */
export const JOBS = 64;
/** Sequence numbers have 37 bits. At a thousand enqueues a second, the most that one row allows, they last four years. */
const SEQUENCES = 2 ** 37;
const PIECES = 2 ** 39;

/** Priorities are bands: below 0, 0, and above 0. Within a band, jobs run in the order of their enqueue. */
export const BANDS = 3;
/** The order in which bands are claimed. The band of priority 0 has the number 0, so that its ids are short. */
export const CLAIM_ORDER: readonly number[] = [1, 0, 2];

export function bandOf(priority: number): number {
  if (priority === 0) return 0;
  return priority < 0 ? 1 : 2;
}

export function pieceOf(band: number, sequence: number): number {
  return band * SEQUENCES + sequence;
}

export function bandOfPiece(piece: number): number {
  return Math.floor(piece / SEQUENCES);
}

export function sequenceOf(piece: number): number {
  return piece % SEQUENCES;
}

/** The id of a job, as a number. */
export function jobNumber(shard: number, piece: number, index: number): number {
  return (shard * PIECES + piece) * JOBS + index;
}

/** A reference to a job: in the same queue its number, in another queue a name such as `mail:1042`. */
export type JobRef = number | string;

export interface KeyPlace {
  readonly shard: number;
  readonly piece: number;
  readonly index: number;
}

export function placeOf(job: number): KeyPlace {
  const place = Math.floor(job / JOBS);
  return { shard: Math.floor(place / PIECES), piece: place % PIECES, index: job % JOBS };
}
