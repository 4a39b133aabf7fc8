// The part of the library that the side calls. It is loaded from the build, as a user of the package gets it.

export interface PawlEngine {
  migrate(): Promise<unknown>;
  stop(): Promise<void>;
}

export interface PawlJob {
  kind: string;
  payload: unknown;
  key?: string;
  group?: string;
  runAt?: Date;
}

export interface PawlUnit {
  readonly payload: unknown;
  readonly jobs: readonly unknown[];
  readonly attempt: number;
  readonly signal: AbortSignal;
}

export interface WorkOptions {
  readonly hold: 'lease' | 'transaction';
  readonly concurrency: number;
  readonly prefetch?: number;
  readonly poll?: string;
}

export interface PawlWorker {
  readonly started: Promise<void>;
  stop(options?: { timeout?: string }): Promise<void>;
}

export interface PawlQueue {
  enqueue(kind: string, payload: unknown, options: { key?: string }): Promise<unknown>;
  enqueueMany(jobs: PawlJob[]): Promise<unknown>;
  work(handlers: Record<string, (unit: PawlUnit) => Promise<void>>, options: WorkOptions): PawlWorker;
  stats(): Promise<Record<'new' | 'in-progress', number>>;
  run(kind: string, payload: unknown): Promise<unknown>;
  batch(callbacks: object): Promise<PawlBatch>;
  flow(nodes: object[]): Promise<unknown>;
}

export interface PawlBatch {
  enqueueMany(jobs: PawlJob[]): Promise<unknown>;
  seal(): Promise<void>;
}

interface Pawl {
  readonly postgres: (url: string, options: { max: number }) => PawlEngine;
  readonly createQueue: (engine: PawlEngine, name: string, options: object) => PawlQueue;
}

/** Loads the built package. */
export async function loadPawl(): Promise<Pawl> {
  const dist = new URL('../../dist/', import.meta.url);
  const { postgres } = (await import(new URL('engine/postgres/index.js', dist).href)) as Pick<Pawl, 'postgres'>;
  const { createQueue } = (await import(new URL('queue/index.js', dist).href)) as Pick<Pawl, 'createQueue'>;
  return { postgres, createQueue };
}

export interface PawlStatement {
  readonly name: string;
  readonly text: string;
  readonly prepare: boolean;
}

export interface PawlLockEngine extends PawlEngine {
  query(statement: PawlStatement, values?: unknown[]): Promise<unknown>;
  transaction(run: (tx: Pick<PawlLockEngine, 'query'>) => Promise<void>): Promise<void>;
}

export interface PawlLock {
  readonly token: bigint;
  readonly isHeld: boolean;
  release(): Promise<void>;
}

export interface PawlLocks {
  acquire(name: string, options?: { lease?: number; signal?: AbortSignal }): Promise<PawlLock>;
  stop(): Promise<void>;
}

/** Sends the statements. The side counts its calls. */
export interface PawlLockStore {
  acquire(...args: unknown[]): unknown;
  renew(...args: unknown[]): unknown;
}

interface PawlForLocks {
  readonly postgres: (url: string, options: { max: number }) => PawlLockEngine;
  readonly createLocks: (engine: PawlLockEngine) => PawlLocks;
  readonly storeOf: (engine: PawlLockEngine) => PawlLockStore;
}

/** Loads the locks of the built package. */
export async function loadLocks(): Promise<PawlForLocks> {
  const dist = new URL('../../dist/', import.meta.url);
  const { postgres } = (await import(new URL('engine/postgres/index.js', dist).href)) as Pick<PawlForLocks, 'postgres'>;
  const { createLocks } = (await import(new URL('lock/index.js', dist).href)) as Pick<PawlForLocks, 'createLocks'>;
  const { LockClient } = (await import(new URL('lock/client.js', dist).href)) as {
    LockClient: { of(engine: PawlLockEngine): { store: PawlLockStore } };
  };
  return { postgres, createLocks, storeOf: (engine) => LockClient.of(engine).store };
}
