import { TimedOut } from './errors.ts';
import { show } from './options/refusal.ts';

/** The data of one hit. */
export type ProbeDetail = Readonly<Record<string, unknown>>;

/** Collects the hits of one place from its creation on: no hit is missed between two waits. */
export interface Watch extends Disposable {
  /** Every hit so far, oldest first, also the hits that {@link Watch.next} has returned. */
  readonly hits: readonly ProbeDetail[];
  /** The oldest hit that was not returned yet and satisfies the predicate; waits for it. @throws TimedOut */
  next(predicate?: (detail: ProbeDetail) => boolean, options?: { timeoutMs?: number }): Promise<ProbeDetail>;
  /** Stops collecting. */
  stop(): void;
}

interface ProbeWait {
  readonly predicate: (detail: ProbeDetail) => boolean;
  readonly resolve: (detail: ProbeDetail) => void;
}

const any = (): boolean => true;
const NOTHING: ProbeDetail = Object.freeze({});
/** Only a failing test waits for it. It is less than the timeout of a test, so that the message says which hit was missing. */
const TIMEOUT_MS = 50_000;

/**
 * Signals for tests. The code calls `probe.hit('queue.claimed', …)`, and a test waits for that instead of sleeping. In production
 * nothing listens, and a hit costs one boolean check. If making the detail costs something, check `probe.listening` first.
 */
class Probe {
  /** True: a test listens to a place. */
  listening = false;
  readonly #watches = new Map<string, Set<Recorder>>();

  /** Records that the code passed a place. Names are `capability.event` in snake_case. Does nothing unless a test listens. */
  hit(name: string, detail: ProbeDetail = NOTHING): void {
    if (!this.listening) return;
    for (const watch of this.#watches.get(name) ?? []) watch.add(detail);
  }

  /**
   * The next hit from now on. Make the promise before you start the code that hits, or use {@link Probe.watch}.
   * @throws TimedOut  after `timeoutMs`, 50 s by default; the message lists the hits that came instead
   */
  async next(
    name: string,
    predicate?: (detail: ProbeDetail) => boolean,
    options?: { timeoutMs?: number },
  ): Promise<ProbeDetail> {
    const watch = this.watch(name);
    try {
      return await watch.next(predicate, options);
    } finally {
      watch.stop();
    }
  }

  /** Collects the hits of one place from now on, until stopped: `using claims = probe.watch('queue.claimed')`. */
  watch(name: string): Watch {
    const recorder = new Recorder(name, () => this.#forget(name, recorder));
    this.#watches.set(name, (this.#watches.get(name) ?? new Set()).add(recorder));
    this.listening = true;
    return recorder;
  }

  #forget(name: string, recorder: Recorder): void {
    const watches = this.#watches.get(name);
    watches?.delete(recorder);
    if (watches?.size === 0) this.#watches.delete(name);
    this.listening = this.#watches.size > 0;
  }
}

class Recorder implements Watch {
  readonly hits: ProbeDetail[] = [];
  readonly #unread: ProbeDetail[] = [];
  readonly #waiters = new Set<ProbeWait>();
  readonly #name: string;
  readonly #onStop: () => void;

  constructor(name: string, onStop: () => void) {
    this.#name = name;
    this.#onStop = onStop;
  }

  add(detail: ProbeDetail): void {
    this.hits.push(detail);
    for (const waiter of this.#waiters) {
      if (!waiter.predicate(detail)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(detail);
      return;
    }
    this.#unread.push(detail);
  }

  next(predicate: (detail: ProbeDetail) => boolean = any, { timeoutMs = TIMEOUT_MS } = {}): Promise<ProbeDetail> {
    const index = this.#unread.findIndex(predicate);
    const [unread] = index < 0 ? [] : this.#unread.splice(index, 1);
    if (unread !== undefined) return Promise.resolve(unread);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiters.delete(waiter);
        reject(this.#timedOut(timeoutMs));
      }, timeoutMs);
      const waiter: ProbeWait = {
        predicate,
        resolve: (detail) => {
          clearTimeout(timer);
          resolve(detail);
        },
      };
      this.#waiters.add(waiter);
    });
  }

  stop(): void {
    this.#onStop();
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  #timedOut(ms: number): TimedOut {
    const seen = this.hits.length === 0 ? 'it was not hit at all' : `hit instead: ${this.hits.map(brief).join('; ')}`;
    return new TimedOut(`no awaited hit of probe "${this.#name}" within ${ms} ms; ${seen}`);
  }
}

function brief(detail: ProbeDetail): string {
  const fields = Object.entries(detail).map(([name, value]) => `${name} ${show(value)}`);
  return fields.length === 0 ? '(no detail)' : fields.join(', ');
}

/** The one probe of this process. */
export const probe: Probe = new Probe();
