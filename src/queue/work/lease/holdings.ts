import type { Claim } from '../run/claimed-job.ts';

/** The claims of a worker that it has not given up: how many units, and by which claims. */
export class Holdings {
  /** The number of claimed units that have not finished. */
  count: number = 0;
  readonly #claims = new Set<Claim>();

  add(claims: Iterable<Claim>, count: number): void {
    this.count += count;
    if (this.#claims.size > 1000) this.#dropFinishedClaims();
    for (const claim of claims) this.#claims.add(claim);
  }

  /** The claims that it knows and whose rows may still exist. */
  knownClaims(): number[] {
    this.#dropFinishedClaims();
    return [...this.#claims].map(({ id }) => id);
  }

  clear(): void {
    this.count = 0;
    this.#claims.clear();
  }

  #dropFinishedClaims(): void {
    for (const claim of this.#claims) if (claim.left === 0) this.#claims.delete(claim);
  }
}
