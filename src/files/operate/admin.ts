import { NotFound } from '../../base/errors.ts';
import { type PostgresEngine, requireEngine } from '../../engine/postgres/index.ts';
import { parseId } from '../options.ts';
import { type FileStoreRecord, type ReloadRecord, readReloads, readStores } from '../postgres/admin.ts';
import { PostgresFileStore } from '../postgres/store.ts';
import type { PastVersion } from '../version.ts';
import { explainFile, type FileExplanation, withoutChecks } from './explain.ts';

/** Reads what the database knows about files, without the content store and the program that uses it. Changes nothing. */
export function createFileAdmin(engine: PostgresEngine): FileAdmin {
  requireEngine('createFileAdmin', engine);
  return new FileAdmin(engine);
}

/** Made by {@link createFileAdmin}. `namespace` is that of `createFiles`; `''` without one. */
export class FileAdmin {
  readonly #engine: PostgresEngine;

  /** @internal */
  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** The namespaces with a content store, by name; at most 200. */
  stores(): Promise<FileStoreRecord[]> {
    return readStores(this.#engine);
  }

  /** Documents in the byte order of their ids, after one of them. */
  list(namespace: string, prefix: string, after: string | undefined, limit: number): Promise<PastVersion[]> {
    return this.#of(namespace).list(prefix, after, limit);
  }

  /** One version, or the live one. @throws NotFound, InvalidInput */
  async stat(namespace: string, id: string, version?: number): Promise<PastVersion> {
    const found = await this.#of(namespace).current(parseId('stat', id), version);
    if (found !== undefined) return withoutChecks(found);
    throw new NotFound(`there is no ${version === undefined ? '' : `version ${version} of `}document "${id}"`);
  }

  /** Every version of a document, newest first. @throws InvalidInput */
  history(namespace: string, id: string, before: number | undefined, limit: number): Promise<PastVersion[]> {
    return this.#of(namespace).past(parseId('history', id), before, limit);
  }

  /** Which transactions hold a document or wait for it, and which processes fetch it for hot copies. @throws InvalidInput */
  async explain(namespace: string, id: string): Promise<FileExplanation> {
    return explainFile(this.#of(namespace), parseId('explain', id));
  }

  /** The processes that fetch bytes for hot copies now; at most 200. */
  reloads(namespace: string): Promise<ReloadRecord[]> {
    return readReloads(this.#engine, namespace);
  }

  #of(namespace: string): PostgresFileStore {
    return new PostgresFileStore(this.#engine, namespace);
  }
}
