import type { CallLimits, DynamoEngine, PartialWrite, WriteOutcome } from '../../engine/dynamodb/index.ts';
import type { Head } from './head.ts';
import { readHead, rewrite } from './items/head.ts';
import { headOf } from './items/key.ts';

/** One head before and after a change. */
export interface HeadWrite {
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
   * @param onSeen  called with every state that is read, since it may be the turn of a waiter
   * @param isAwaited  whether a waiter of this process waits for its turn
   */
  constructor(engine: DynamoEngine, onSeen: (pk: string, head: Head) => void, isAwaited: () => boolean) {
    this.#engine = engine;
    this.#hasWaiters = isAwaited;
    this.#onObserved = onSeen;
  }

  /**
   * Reads a head, for one read unit. Callers of this process at the same time share the request, so the head may be as old as the first of
   * these calls. Write a decision on it on condition that the state is still the same.
   */
  read(pk: string, { timeoutMs, signal }: CallLimits): Promise<Head> {
    let reading = this.#reading.get(pk);
    if (reading === undefined) {
      reading = this.#read(pk, { timeoutMs }).finally(() => this.#reading.delete(pk));
      this.#reading.set(pk, reading);
    }
    return signal === undefined ? reading : unlessAborted(reading, signal);
  }

  /** Reads a head as it is after all writes that were answered before this call. */
  readNow(pk: string, limits: CallLimits): Promise<Head> {
    return this.#read(pk, limits);
  }

  /** @param rows  rows that are written in the same transaction @returns false if another client has decided meanwhile */
  async write(changes: readonly HeadWrite[], limits: CallLimits, rows: readonly PartialWrite[] = []): Promise<boolean> {
    const heads = changes.map(({ pk, before, after }) => ({ key: headOf(pk), written: rewrite(before, after) }));
    const writes = [...heads, ...rows];
    const [only] = writes;
    if (only === undefined || writes.length > 1) return (await this.#engine.transact(writes, limits)).isDone;
    const outcome = await this.#engine.update(only.key, only.written, 'ALL_NEW', limits);
    this.observe(changes[0]?.pk ?? '', outcome);
    return outcome.isDone;
  }

  /** Whether a request should return the new row: only if a waiter of this process needs it. */
  get returns(): 'ALL_NEW' | 'NONE' {
    return this.#hasWaiters() ? 'ALL_NEW' : 'NONE';
  }

  /** Notes the row that a request returned. @returns undefined if it returned none */
  observe(pk: string, { item }: WriteOutcome): Head | undefined {
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

/** Rejects for this caller when the signal is aborted; the request continues for the others. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    void work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
