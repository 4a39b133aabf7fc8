import type { ClientLike } from '../driver.ts';

/**
 * If one connection has gone silent, other connections that were idle at that time may be dead, too: they lead through the same
 * firewall to the same server. They are not used again. Otherwise a pool of ten would cost ten deadlines, one after another.
 */
export class SuspectConnections {
  #since = -Infinity;
  readonly #heardAt = new WeakMap<ClientLike, number>();

  /** The connection has answered just now. */
  markAlive(client: ClientLike): void {
    this.#heardAt.set(client, performance.now());
  }

  /** A connection has not answered a statement that was sent this many milliseconds ago. */
  markSilent(ms: number): void {
    this.#since = Math.max(this.#since, performance.now() - ms);
  }

  /** True if the connection has not answered since then. A connection that is not recorded here has just been opened. */
  isSuspect(client: ClientLike): boolean {
    return (this.#heardAt.get(client) ?? Infinity) < this.#since;
  }
}
