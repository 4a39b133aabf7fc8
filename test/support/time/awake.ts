/** How often the clock looks, and how much of a gap between two looks it counts. */
const LOOK_MS = 20;
const COUNTED_MS = 3 * LOOK_MS;

let countedMs = 0;
let lookedAt = performance.now();

function look(): void {
  const now = performance.now();
  countedMs += Math.min(now - lookedAt, COUNTED_MS);
  lookedAt = now;
}

setInterval(look, LOOK_MS).unref();

/**
 * Like `performance.now()`, for bounds on how long something else may take: on a machine that does not stand still it shows the
 * same. A pause in which this process gets no processor counts for 60 ms, however long it is: nothing else got on in it, either.
 * It may lag behind, so it is of no use for lower bounds, and of none for how long this process computes.
 */
export function awakeMs(): number {
  look();
  return countedMs;
}
