/** Thrown when an answer holds more than redaction looks at. */
export class TooLarge extends Error {}

/** How many properties redaction may still look at for one answer. */
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
