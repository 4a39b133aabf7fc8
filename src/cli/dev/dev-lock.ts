import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { DevControl } from '../../http/index.ts';
import { createLocks, type Lock, type Locks } from '../../lock/index.ts';

const NAMESPACE = 'demo';

/**
 * A lock that is held, and clients that wait for it. One of them holds another lock that a further client waits for, so that
 * the graph of blockers shows a chain.
 */
export class LockAccident implements DevControl {
  readonly id = 'hold-lock';
  readonly title = 'Hold this lock';
  readonly undo = 'Release the lock';
  readonly about =
    'The lock "printer" is held, three wait for it, and one of them has the "scanner", which a fourth wants.';
  readonly look = 'locks';
  readonly #locks: Locks;
  #held: Lock | undefined;
  #waiting = new AbortController();

  constructor(engine: PostgresEngine) {
    this.#locks = createLocks(engine, { namespace: NAMESPACE });
  }

  isOn(): boolean {
    return this.#held?.isHeld === true;
  }

  async run(): Promise<string> {
    if (this.isOn()) {
      await this.#release();
      return 'the lock is released: its waiters got it one after another';
    }
    this.#waiting = new AbortController();
    this.#held = await this.#locks.acquire('printer', { wait: '5s', lease: '30s' });
    for (let n = 0; n < 2; n += 1) this.#use('printer', () => Promise.resolve());
    await new Promise<void>((resolve) => {
      this.#use('scanner', () => {
        resolve();
        return this.#take('printer');
      });
    });
    this.#use('scanner', () => Promise.resolve());
    return 'the lock "printer" is held, and other clients wait for it';
  }

  async stop(): Promise<void> {
    await this.#release();
    await this.#locks.stop();
  }

  async #release(): Promise<void> {
    await this.#held?.release().catch(() => {});
    this.#held = undefined;
    // After a second, the clients that still wait give up, but not those of the next accident.
    const waiting = this.#waiting;
    setTimeout(() => waiting.abort(), 1000).unref();
  }

  #use(name: string, work: () => Promise<void>): void {
    const { signal } = this.#waiting;
    // If the request was interrupted or stopped, no caller waits for its outcome.
    void this.#locks.request(name, { signal }, work).catch(() => {});
  }

  async #take(name: string): Promise<void> {
    await this.#locks.request(name, { signal: this.#waiting.signal }, () => {});
  }
}
