import { TimedOut } from './errors.ts';
import { show } from './options/refusal.ts';

/** What a place tells about the moment it is passed. */
export type ProbeDetail = Readonly<Record<string, unknown>>;

/** Collects the hits of one place from the moment it is made: no hit can slip through between two waits. */
export interface Watch extends Disposable {
  /** Every hit so far, oldest first, also those that {@link Watch.next} has handed out. */
  readonly hits: readonly ProbeDetail[];
  /** The oldest hit not yet handed out that satisfies the predicate; waits for it. @throws TimedOut */
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
/** Only a test that fails waits for it; less than what a test may take, so that it says what was missing. */
const TIMEOUT_MS = 50_000;

/**
 * Test signals: the code says `probe.hit('queue.claimed', …)`, and a test waits for that instead of sleeping. In production
 * nothing listens, and a hit costs one boolean check; where making the detail costs something, ask `probe.listening` first.
 */
class Probe {
  /** Whether any test listens to anything. */
  listening = false;
  readonly #watches = new Map<string, Set<Recorder>>();

  /** Says that a place was passed. Names are `capability.event` in snake_case. Does nothing unless somebody listens. */
  hit(name: string, detail: ProbeDetail = NOTHING): void {
    if (!this.listening) return;
    for (const watch of this.#watches.get(name) ?? []) watch.add(detail);
  }

  /**
   * The next hit from now on. Make the promise before you start what is to be seen, or use {@link Probe.watch}.
   * @throws TimedOut  after `timeoutMs`, 50 s by default, saying what was hit instead
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
