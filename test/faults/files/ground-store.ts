import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Content, disk, s3 } from '../../../src/files/index.ts';
import { type FaultyStore, faultyStore } from '../../../src/testing/index.ts';
import { hashOf } from './bytes.ts';
import type { StorePlace } from './member-store.ts';
import type { FilesPlan, StoreFaulting } from './plan.ts';

/** The longest time of a full disk. With longer times, a schedule could end without a write. */
const FULL_MS = 1000;

/** The content store of a schedule, for its faults, its members and its checker. */
export class GroundStore implements AsyncDisposable {
  readonly place: StorePlace;
  /** Names in the store that no row has. */
  readonly strangers: string[] = [];
  /** Objects that rotted. */
  readonly rotten: string[] = [];
  readonly #server: FaultyStore | undefined;
  readonly #dir: string;

  static async open({ store }: FilesPlan, folder: string): Promise<GroundStore> {
    const dir = join(folder, 'store');
    await mkdir(dir);
    return new GroundStore(dir, folder, store === 's3' ? await faultyStore() : undefined);
  }

  private constructor(dir: string, folder: string, server: FaultyStore | undefined) {
    this.#dir = dir;
    this.#server = server;
    const flags = { hanging: join(folder, 'hanging'), full: join(folder, 'full') };
    this.place = server === undefined ? { dir, ...flags } : { s3: { ...server.connection, prefix: 'test' }, ...flags };
  }

  /** A client for a process that no fault hits. */
  client(): Content {
    return this.place.s3 === undefined ? disk(this.#dir) : s3(this.place.s3);
  }

  /** Inflicts the plan's faults of the store, each at its time from now on. @returns the number of each fault */
  async inflict({ storeFaults }: FilesPlan): Promise<Record<string, number>> {
    const done: Record<string, number> = {};
    await Promise.all(
      storeFaults.map(async (fault) => {
        await sleep(fault.at);
        if (await this.#inflictOne(fault)) done[fault.do] = (done[fault.do] ?? 0) + 1;
      }),
    );
    this.mend();
    await rm(this.place.hanging, { force: true });
    await rm(this.place.full, { force: true });
    return done;
  }

  mend(): void {
    this.#server?.mend();
  }

  /** The names and hashes in the place of objects. */
  async stored(): Promise<{ name: string; sha256: string }[]> {
    const names = await this.#names('objects');
    return Promise.all(
      names.map(async (path) => ({ name: path.split('/').at(-1) ?? '', sha256: hashOf(await this.#read(path)) })),
    );
  }

  async quarantined(): Promise<string[]> {
    return (await this.#names('quarantine')).map((path) => path.split(/\/|%2F/).at(-1) ?? '');
  }

  get unfinished(): string[] {
    return this.#server?.unfinished ?? [];
  }

  /** Names next to objects: the marker and its copy, and drafts of it. */
  async markers(): Promise<string[]> {
    const all = this.#server === undefined ? await readdir(this.#dir) : await this.#names('');
    return all.filter((name) => name.startsWith('pawl-store'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server?.stop();
  }

  async #inflictOne({ do: name, ms, times, draw }: StoreFaulting): Promise<boolean> {
    switch (name) {
      case 'hang':
      case 'full': {
        const flag = name === 'hang' ? this.place.hanging : this.place.full;
        await writeFile(flag, '');
        await sleep(name === 'hang' ? ms : Math.min(ms, FULL_MS));
        await rm(flag, { force: true });
        return true;
      }
      case 'rot':
        return this.#rotObject(draw);
      case 'rot the marker':
        // A process may have written only the first of the two. If that one is damaged, an operator must confirm the owner of the store.
        if ((await this.markers()).length < 2) return false;
        return this.#rot(draw % 2 === 0 ? 'pawl-store.json' : 'pawl-store.copy.json', draw);
      case 'strangers':
        for (let n = 0; n < times; n += 1) await this.#putStranger();
        return true;
      case 'error_in_200':
        this.#server?.fault(name, { operation: 'CompleteMultipartUpload', times });
        return true;
      case 'short':
      case 'short_body':
      case 'flip':
        // All reads, also of the marker; or only reads of objects.
        this.#server?.fault(name, { operation: 'GetObject', times, key: draw % 2 === 1 ? 'objects/' : '' });
        return true;
      case 'lose_answer':
      case 'cut':
      case 'delay':
      case 'unavailable':
      case 'conflict':
      case 'trickle':
        this.#server?.fault(name, { times, ms: Math.min(ms, 2000) });
        return true;
    }
  }

  async #rotObject(draw: number): Promise<boolean> {
    const names = (await this.#names('objects')).toSorted();
    const path = names[draw % names.length];
    if (path === undefined) return false;
    // The object may be collected at this moment, or may still be written.
    this.rotten.push(path.split('/').at(-1) ?? '');
    return this.#rot(path, draw).catch(() => false);
  }

  /** Flips one bit, without a trace in the times or the length of the file. */
  async #rot(path: string, draw: number): Promise<boolean> {
    const bytes = await this.#read(path).catch(() => Buffer.alloc(0));
    // In a marker, the bit is in the text and not in the padding.
    const size = path.startsWith('pawl-store') ? bytes.toString().trimEnd().length : bytes.length;
    if (size === 0) return false;
    const at = draw % size;
    const byte = (bytes[at] ?? 0) ^ (1 << (draw % 7));
    if (this.#server !== undefined) {
      const body = Buffer.from(bytes);
      body[at] = byte;
      this.#server.put(`test/${path}`, body);
      return true;
    }
    const file = await open(join(this.#dir, path), 'r+');
    await file.write(Buffer.of(byte), 0, 1, at);
    await file.close();
    return true;
  }

  async #putStranger(): Promise<void> {
    const name = randomUUID();
    if (this.#server !== undefined) this.#server.put(`test/objects/${name}`, Buffer.from('of somebody'));
    else {
      await mkdir(join(this.#dir, 'objects', name.slice(0, 2)), { recursive: true });
      await writeFile(join(this.#dir, 'objects', name.slice(0, 2), name), 'of somebody');
    }
    this.strangers.push(name);
  }

  #read(path: string): Promise<Buffer> {
    if (this.#server === undefined) return readFile(join(this.#dir, path));
    const object = this.#server.objects.get(`test/${path}`);
    return object === undefined ? Promise.reject(new Error(`there is no ${path}`)) : Promise.resolve(object.body);
  }

  async #names(under: string): Promise<string[]> {
    if (this.#server !== undefined) {
      const prefix = under === '' ? 'test/' : `test/${under}/`;
      return [...this.#server.objects.keys()]
        .filter((key) => key.startsWith(prefix))
        .map((key) => key.slice('test/'.length));
    }
    const all = await readdir(join(this.#dir, under), { recursive: true, withFileTypes: true }).catch(() => []);
    const path = (parent: string): string => parent.slice(this.#dir.length + 1);
    return all.filter((entry) => entry.isFile()).map((entry) => join(path(entry.parentPath), entry.name));
  }
}
