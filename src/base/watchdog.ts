import { Worker } from 'node:worker_threads';

/** Watches the event loop until it is stopped; see {@link watchEventLoop}. */
export interface EventLoopWatch {
  /** Wraps `run`: it is recorded as running under that name until its result has settled. */
  around<A, R>(name: (given: A) => string, run: (given: A) => R): (given: A) => R;
  /** Safe to call twice. */
  stop(): void;
}

/** The most handlers that are recorded at a time; further ones are not named. */
const SLOTS = 256;
/** The fields of a slot: a rising number for the time when it was taken, and the length of its name in bytes. */
const HEAD = 2;
const NAME_BYTES = 120;
/** Counters, by their index. */
const [BEATS, LIMIT, OVER] = [0, 1, 2];

/**
 * Ends this process with SIGKILL as soon as its event loop was blocked for `limitMs`, so that its supervisor starts another one.
 * Before that it writes to stderr what was running. A blocked loop renews no lease, receives no signal to stop, and would stay
 * blocked for ever.
 *
 * A thread watches a counter that the event loop raises; one thread serves all watches, from the first to the last. It counts
 * only time in which it ran itself: a process that was stopped as a whole, or a machine that slept, is not blocked. Recording a
 * handler costs about a microsecond; without a watch, nothing.
 */
export function watchEventLoop(limitMs: number): EventLoopWatch {
  guard ??= new Guard();
  return guard.add(limitMs);
}

let guard: Guard | undefined;

class Guard {
  readonly #limits = new Set<{ readonly ms: number }>();
  readonly #counters = new Int32Array(new SharedArrayBuffer(3 * Int32Array.BYTES_PER_ELEMENT));
  readonly #heads = new Int32Array(new SharedArrayBuffer(SLOTS * HEAD * Int32Array.BYTES_PER_ELEMENT));
  readonly #names = new Uint8Array(new SharedArrayBuffer(SLOTS * NAME_BYTES));
  readonly #free = Array.from({ length: SLOTS }, (_, slot) => slot);
  readonly #utf8 = new TextEncoder();
  #taken = 0;
  #beat: NodeJS.Timeout | undefined;

  add(ms: number): EventLoopWatch {
    const limit = { ms };
    this.#limits.add(limit);
    this.#setLimit();
    if (this.#limits.size === 1) this.#startThread();
    return {
      around: (name, run) => (given) => {
        const leave = this.#enter(name(given));
        let isOver = true;
        try {
          const value = run(given);
          isOver = !(value instanceof Promise);
          if (value instanceof Promise) value.then(leave, leave);
          return value;
        } finally {
          if (isOver) leave();
        }
      },
      stop: () => {
        if (!this.#limits.delete(limit)) return;
        if (this.#limits.size > 0) this.#setLimit();
        else this.#end();
      },
    };
  }

  /** If several watches have different limits, the shortest one counts: its lease is the first to end. */
  #setLimit(): void {
    const shortest = [...this.#limits].reduce((least, { ms }) => Math.min(least, ms), Infinity);
    Atomics.store(this.#counters, LIMIT, Math.ceil(Math.min(shortest, 2 ** 31 - 1)));
    clearInterval(this.#beat);
    this.#beat = setInterval(() => Atomics.add(this.#counters, BEATS, 1), Math.max(shortest / 20, 10)).unref();
  }

  #enter(name: string): () => void {
    const slot = this.#free.pop();
    if (slot === undefined) return () => {};
    const from = slot * NAME_BYTES;
    const { written } = this.#utf8.encodeInto(name, this.#names.subarray(from, from + NAME_BYTES));
    this.#taken = (this.#taken % (2 ** 31 - 1)) + 1;
    Atomics.store(this.#heads, slot * HEAD + 1, written);
    Atomics.store(this.#heads, slot * HEAD, this.#taken);
    return () => {
      Atomics.store(this.#heads, slot * HEAD, 0);
      this.#free.push(slot);
    };
  }

  #startThread(): void {
    const workerData = { counters: this.#counters, heads: this.#heads, names: this.#names };
    // As text, and not as a file next to this one: bundlers would leave the file out.
    const thread = new Worker(THREAD, { eval: true, workerData, execArgv: [], env: {} });
    thread.on('error', (error) =>
      process.emitWarning(`the watchdog thread failed, so nothing watches the event loop: ${String(error)}`),
    );
    thread.unref();
  }

  #end(): void {
    guard = undefined;
    clearInterval(this.#beat);
    Atomics.store(this.#counters, OVER, 1);
    Atomics.notify(this.#counters, OVER);
  }
}

const THREAD = `
const { writeSync } = require('node:fs');
const { workerData: { counters, heads, names } } = require('node:worker_threads');

// The handler that began last is named first: it has blocked the event loop.
function running() {
  const all = [];
  for (let slot = 0; slot < ${SLOTS}; slot += 1) {
    const taken = Atomics.load(heads, slot * ${HEAD});
    const from = slot * ${NAME_BYTES};
    const name = Buffer.from(names.slice(from, from + Atomics.load(heads, slot * ${HEAD} + 1))).toString();
    if (taken > 0) all.push({ taken, name });
  }
  return all.sort((a, b) => b.taken - a.taken).map(({ name }) => name);
}

let beats = -1;
let stoodMs = 0;
for (;;) {
  const limitMs = Atomics.load(counters, ${LIMIT});
  const tickMs = Math.max(limitMs / 10, 10);
  const from = performance.now();
  if (Atomics.wait(counters, ${OVER}, 0, tickMs) !== 'timed-out') break;
  // A longer gap means that the whole process was stopped, and this thread with it.
  const tick = Math.min(performance.now() - from, 2 * tickMs);
  const now = Atomics.load(counters, ${BEATS});
  stoodMs = now === beats ? stoodMs + tick : 0;
  beats = now;
  if (stoodMs < limitMs) continue;
  const names = running();
  const what = names.length === 0 ? 'nothing that Pawl began' : names.slice(0, 20).join(', ') + (names.length > 20 ? ' and more' : '');
  writeSync(2, 'pawl: the event loop has stood still for ' + Math.round(stoodMs) + ' ms; this process (' + process.pid + ') ends with SIGKILL. Running, the last first: ' + what + '\\n');
  process.kill(process.pid, 'SIGKILL');
}
`;
