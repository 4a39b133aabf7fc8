import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type Content, disk, s3 } from '../../src/files/index.ts';
import { type FaultyStore, type FaultyStoreOptions, faultyStore } from '../../src/testing/index.ts';

/** A content store that a test can look into behind the library's back. */
export interface TestStore {
  readonly content: Content;
  /** Another client of the same store, as another process has it. */
  again(): Content;
  /** The names of the objects there, sorted. */
  names(): Promise<string[]>;
  bytes(name: string): Promise<Buffer>;
  /** Replaces an object as no client would: what a broken disk, or a stranger, does. */
  put(name: string, bytes: Buffer): Promise<void>;
  remove(name: string): Promise<void>;
  /** For other processes: where it is. */
  readonly place: object;
  stop(): Promise<void>;
}

/** @param inside  a folder that is there; default: that of all temporary files */
export async function diskStore(inside: string = tmpdir()): Promise<TestStore> {
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

/** Bytes that nothing can guess. */
export function randomFile(size: number): Buffer {
  return randomBytes(size);
}

/** The bytes in pieces of some sizes, as a network gives them. */
export async function* inPieces(bytes: Buffer, size = 10_000): AsyncGenerator<Buffer, void> {
  for (let from = 0; from < bytes.length; from += size) yield bytes.subarray(from, from + size);
}

export async function readAll(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A bucket of its own in a store that speaks S3; `FaultyStore` is there to make it fail. */
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
