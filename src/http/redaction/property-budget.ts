/** Thrown if an answer is larger than redaction can check. */
export class TooLarge extends Error {}

/** How many properties redaction may still check for one answer. */
export class PropertyBudget {
  #left: number;

  constructor(properties: number) {
    this.#left = properties;
  }

  /** @throws TooLarge */
  spend(properties: number): void {
    this.#left -= properties;
    if (this.#left < 0) throw new TooLarge();
  }
}
