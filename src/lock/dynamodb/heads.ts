import type { CallLimits, DynamoEngine, Outcome, PartialWrite } from '../../engine/dynamodb/index.ts';
import type { Head } from './head.ts';
import { readHead, rewrite } from './items/head.ts';
import { headOf } from './items/key.ts';

/** One head, and what it is to become. */
export interface Change {
  readonly pk: string;
  readonly before: Head;
  readonly after: Head;
}

/** Reads and rewrites heads. */
export class Heads {
  readonly #engine: DynamoEngine;
  readonly #onObserved: (pk: string, head: Head) => void;
  readonly #hasWaiters: () => boolean;
  readonly #reading = new Map<string, Promise<Head>>();

  /**
   * @param onSeen  is told of every state that comes by: it may be somebody's turn
   * @param isAwaited  whether anybody here waits for a turn
   */
  constructor(engine: DynamoEngine, onSeen: (pk: string, head: Head) => void, isAwaited: () => boolean) {
    this.#engine = engine;
    this.#hasWaiters = isAwaited;
    this.#onObserved = onSeen;
  }

  /** One read unit; those of this process who ask at the same time share it. */
  read(pk: string, { timeoutMs, signal }: CallLimits): Promise<Head> {
    let reading = this.#reading.get(pk);
    if (reading === undefined) {
      reading = this.#read(pk, { timeoutMs }).finally(() => this.#reading.delete(pk));
      this.#reading.set(pk, reading);
    }
    return signal === undefined ? reading : unlessAborted(reading, signal);
  }

  /** @param rows  are written with them, or not at all @returns false when something was decided meanwhile */
  async write(changes: readonly Change[], limits: CallLimits, rows: readonly PartialWrite[] = []): Promise<boolean> {
    const heads = changes.map(({ pk, before, after }) => ({ key: headOf(pk), written: rewrite(before, after) }));
    const writes = [...heads, ...rows];
    const [only] = writes;
    if (only === undefined || writes.length > 1) return (await this.#engine.transact(writes, limits)).isDone;
    const outcome = await this.#engine.update(only.key, only.written, 'ALL_NEW', limits);
    this.observe(changes[0]?.pk ?? '', outcome);
    return outcome.isDone;
  }

  /** Whether to ask a request what it leaves behind: only if somebody here waits for that. */
  get returns(): 'ALL_NEW' | 'NONE' {
    return this.#hasWaiters() ? 'ALL_NEW' : 'NONE';
  }

  /** Takes note of what a request told. @returns undefined when it told nothing */
  observe(pk: string, { item }: Outcome): Head | undefined {
    if (item === undefined) return undefined;
    const head = readHead(item);
    this.#onObserved(pk, head);
    return head;
  }

  async #read(pk: string, limits: CallLimits): Promise<Head> {
    const head = readHead(await this.#engine.get(headOf(pk), limits));
    this.#onObserved(pk, head);
    return head;
  }
}

/** The request goes on for the others. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    void work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
