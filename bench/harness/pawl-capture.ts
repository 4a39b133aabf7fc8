// The part of the library that the benches of captures call. It is loaded from the build, as a user of the package gets it.

export interface CaptureEngine {
  migrate(): Promise<unknown>;
  stop(): Promise<void>;
}

/** A template without values. */
export type Sql = (parts: readonly string[]) => object;

export interface BenchProjection {
  readonly events: { on(event: 'projected', listener: (told: { keys: number }) => void): () => void };
  run(options?: object): { readonly started: Promise<void>; stop(): Promise<void> };
  backfill(options?: object): Promise<{ done: number }>;
  reconcile(options?: object): Promise<{ drifted: number }>;
  settled(): Promise<void>;
  search(query: string, options?: object): Promise<{ rows: readonly unknown[]; capped: boolean; matches: number }>;
}

export interface BenchCapture {
  apply(): Promise<unknown>;
  verify(): Promise<readonly unknown[]>;
  detach(): Promise<void>;
  project(options: object): BenchProjection;
}

interface PawlForCapture {
  readonly postgres: (url: string, options: { max: number }) => CaptureEngine;
  readonly createCapture: (engine: CaptureEngine, options: object) => BenchCapture;
  readonly sql: Sql;
}

export async function loadCapture(): Promise<PawlForCapture> {
  const dist = new URL('../../dist/', import.meta.url);
  const { postgres } = (await import(new URL('engine/postgres/index.js', dist).href)) as Pick<
    PawlForCapture,
    'postgres'
  >;
  const { createCapture, sql } = (await import(new URL('capture/index.js', dist).href)) as Pick<
    PawlForCapture,
    'createCapture' | 'sql'
  >;
  return { postgres, createCapture, sql };
}
