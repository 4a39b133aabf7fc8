import type { ClientLike } from '../driver.ts';

/**
 * When one connection has gone silent, those that were idle then may have, too: behind the same firewall, to the same
 * server. They are not used any more; otherwise a pool of ten would cost ten deadlines, one after another.
 */
export class SuspectConnections {
  #since = -Infinity;
  readonly #heardAt = new WeakMap<ClientLike, number>();

  /** The connection has answered just now. */
  markAlive(client: ClientLike): void {
    this.#heardAt.set(client, performance.now());
  }

  /** A connection has not answered what it was asked so many milliseconds ago. */
  markSilent(ms: number): void {
    this.#since = Math.max(this.#since, performance.now() - ms);
  }

  /** True when the connection has not answered since then. One that is new here has just been opened. */
  isSuspect(client: ClientLike): boolean {
    return (this.#heardAt.get(client) ?? Infinity) < this.#since;
  }
}
