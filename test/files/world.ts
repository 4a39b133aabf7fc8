import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type Content, disk, s3 } from '../../src/files/index.ts';
import { type FaultyStore, type FaultyStoreOptions, faultyStore } from '../../src/testing/index.ts';
import { memoryFolder } from '../support/memory.ts';

/** A content store that a test can read and change without the library. */
export interface TestStore {
  readonly content: Content;
  /** Another client of the same store, like that of another process. */
  again(): Content;
  /** The names of the objects in the store, sorted. */
  names(): Promise<string[]>;
  bytes(name: string): Promise<Buffer>;
  /** Replaces an object, as a broken disk or another program might. */
  put(name: string, bytes: Buffer): Promise<void>;
  remove(name: string): Promise<void>;
  /** The place of the store, for child processes. */
  readonly place: object;
  stop(): Promise<void>;
}

/**
 * @param inside  an existing folder; default: one in memory, since what is written is flushed, and a flush takes a disk that others use, too,
 * a tenth of a second
 */
export async function diskStore(inside: string = memoryFolder()): Promise<TestStore> {
  const dir = await mkdtemp(join(inside, 'pawl-test-files-'));
  const path = (name: string): string => join(dir, 'objects', name.slice(0, 2), name);
  return {
    place: { dir },
    content: disk(dir),
    again: () => disk(dir),
    names: async () => {
      const all = await readdir(join(dir, 'objects'), { recursive: true, withFileTypes: true }).catch(() => []);
      return all
        .filter((entry) => entry.isFile())
        .map((entry) => entry.name)
        .sort();
    },
    bytes: (name) => readFile(path(name)),
    put: (name, bytes) => writeFile(path(name), bytes),
    remove: (name) => rm(path(name)),
    stop: () => rm(dir, { recursive: true, force: true }),
  };
}

/** Random bytes. */
export function randomFile(size: number): Buffer {
  return randomBytes(size);
}

/** The bytes in pieces of various sizes, as from a network. */
export async function* inPieces(bytes: Buffer, size = 10_000): AsyncGenerator<Buffer, void> {
  for (let from = 0; from < bytes.length; from += size) yield bytes.subarray(from, from + size);
}

export async function readAll(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A new bucket in a local store that speaks S3; `FaultyStore` makes it fail. */
export async function bucketStore(options?: FaultyStoreOptions): Promise<TestStore & { readonly server: FaultyStore }> {
  const server = await faultyStore(options);
  const key = (name: string): string => `test/objects/${name}`;
  const open = (): Content => s3({ ...server.connection, prefix: 'test' });
  const clients: Content[] = [];
  const again = (): Content => {
    const client = open();
    clients.push(client);
    return client;
  };
  return {
    server,
    place: { s3: { ...server.connection, prefix: 'test' } },
    content: again(),
    again,
    names: async () =>
      [...server.objects.keys()]
        .filter((each) => each.startsWith(key('')))
        .map((each) => each.slice(key('').length))
        .sort(),
    bytes: async (name) => Buffer.from(server.objects.get(key(name))?.body ?? ''),
    put: async (name, bytes) => server.put(key(name), bytes),
    remove: async (name) => void server.objects.delete(key(name)),
    stop: async () => {
      for (const client of clients) client.stop();
      await server.stop();
    },
  };
}
