/** Measures how long a process stood still, for what is promised only while it does not. */
export class LongestPause {
  ms = 0;
  #before = performance.now();

  /** Call it at each step: the time since the step before counts. */
  step(): void {
    const now = performance.now();
    this.ms = Math.max(this.ms, now - this.#before);
    this.#before = now;
  }
}
