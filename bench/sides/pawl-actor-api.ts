// The part of the library that the side calls. It is loaded from the build, as a user of the package gets it.
import { createRequire } from 'node:module';
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

interface Driver {
  readonly Client: { readonly prototype: { query: (...given: unknown[]) => unknown } };
}

/** Counts the statements that the package sends by its driver, because the server's own statistics come up to ten seconds late. */
export async function watchStatements(): Promise<{ readonly count: number }> {
  const dist = new URL('../../dist/', import.meta.url);
  const { Client } = createRequire(dist)('pg') as Driver;
  const sent = { count: 0 };
  const { query } = Client.prototype;
  Client.prototype.query = function counted(this: unknown, ...given: unknown[]): unknown {
    sent.count += 1;
    return Reflect.apply(query, this, given);
  };
  return sent;
}
