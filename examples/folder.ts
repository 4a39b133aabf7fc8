import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { DevContext } from './dev-example.ts';

/** Where an example has its files: they live as long as the database that has their rows. */
export class Folder {
  readonly path: string;
  readonly isTemporary: boolean;

  private constructor(path: string, isTemporary: boolean) {
    this.path = path;
    this.isTemporary = isTemporary;
  }

  static async open({ embedded }: Pick<DevContext, 'embedded'>, name: string): Promise<Folder> {
    if (embedded?.temporary === true) return new Folder(await mkdtemp(join(tmpdir(), `pawl-${name}-`)), true);
    return new Folder(embedded === undefined ? resolve('.pawl', name) : `${resolve(embedded.dataDir)}-${name}`, false);
  }

  async close(): Promise<void> {
    if (this.isTemporary) await rm(this.path, { recursive: true, force: true });
  }
}
