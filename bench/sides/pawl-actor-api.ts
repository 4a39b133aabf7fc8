// The part of the library that the side calls, loaded from the build, as a user of the package gets it.
import type { PawlEngine } from './pawl-api.ts';

export interface PawlDispatcher {
  readonly started: Promise<void>;
  stop(): Promise<void>;
}

export interface PawlActors {
  register(): Promise<void>;
  incr(actor: string, semaphore: string): Promise<unknown>;
  run(options: { concurrency: number; poll: string }): PawlDispatcher;
}

interface Pawl {
  readonly postgres: (url: string, options: { max: number }) => PawlEngine;
  readonly actor: (name: string, options: object) => object;
  readonly createActors: (engine: PawlEngine, definitions: readonly object[]) => PawlActors;
}

/** Loads the built package. */
export async function loadActors(): Promise<Pawl> {
  const dist = new URL('../../dist/', import.meta.url);
  const { postgres } = (await import(new URL('engine/postgres/index.js', dist).href)) as Pick<Pawl, 'postgres'>;
  const { actor, createActors } = (await import(new URL('actor/index.js', dist).href)) as Omit<Pawl, 'postgres'>;
  return { postgres, actor, createActors };
}
