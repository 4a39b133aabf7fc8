// Sources that are streams: when a write closes them, and what follows from their failure.
import { EventEmitter, on } from 'node:events';
import { Readable } from 'node:stream';
import { ReadableStream } from 'node:stream/web';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../src/engine/postgres/index.ts';
import { createFiles, type Files } from '../../src/files/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { bucketStore, diskStore, readAll } from './world.ts';

let engine: PostgresEngine;
let spaces = 0;

beforeAll(async () => {
  engine = postgres((await freshDatabase()).url, { max: 4 });
});

afterAll(() => engine.stop());

/** Files that have not called their store yet: the first write does so before it reads its source. */
async function freshFiles(): Promise<Files> {
  const store = await diskStore();
  const files = createFiles(engine, { content: store.content, namespace: `space-${(spaces += 1)}` });
  onTestFinished(async () => {
    await files.stop();
    await store.stop();
  });
  return files;
}

test('a stream that fails before its first byte is read fails its write, and not the process', async () => {
  const files = await freshFiles();
  const source = new Readable({ read: () => {} });
  const writing = files.write('doc', source);
  source.destroy(new Error('the source broke'));
  // If only this promise has the error, vitest reports no other one.
  await expect(writing).rejects.toThrow('the source broke');
});

test('a write that is refused before it reads its source closes the source', async () => {
  const files = await freshFiles();
  const signal = AbortSignal.abort(new Error('enough'));
  const source = new Readable({ read: () => {} });
  await expect(files.write('doc', source, { signal })).rejects.toThrow('enough');
  expect(source.destroyed).toBe(true);
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    cancel: () => {
      isCancelled = true;
    },
  });
  await expect(files.write('doc', body, { signal })).rejects.toThrow('enough');
  expect(isCancelled).toBe(true);
});

test('a write that ends while its source hangs closes the source', async () => {
  const files = await freshFiles();
  const abort = new AbortController();
  let isRead = false;
  const source = new Readable({
    read: () => {
      isRead = true;
    },
  });
  const writing = files.write('doc', source, { signal: abort.signal });
  await until('the source is read', () => isRead);
  abort.abort(new Error('enough'));
  await expect(writing).rejects.toThrow('enough');
  expect(source.destroyed).toBe(true);
});

test.each(['an abort', 'its hang', 'the store'] as const)(
  'a web stream that gives nothing any more is cancelled when its write ends by %s',
  async (end) => {
    const store = await bucketStore();
    const limits = { idle: end === 'its hang' ? 300 : 30_000 };
    const files = createFiles(engine, { content: store.content, namespace: `space-${(spaces += 1)}`, limits });
    onTestFinished(async () => {
      await files.stop();
      await store.stop();
    });
    await files.probe();
    const abort = new AbortController();
    let reads = 0;
    let reason: unknown = 'not cancelled';
    const source = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          reads += 1;
          if (reads > 60) return new Promise(() => {});
          controller.enqueue(Buffer.alloc(512 * 1024));
        },
        cancel: (why) => {
          reason = why;
        },
      },
      { highWaterMark: 0 },
    );
    if (end === 'the store') store.server.fault('unavailable', { operation: 'CreateMultipartUpload' });
    const writing = files.write('doc', source, { signal: abort.signal });
    writing.catch(() => {});
    if (end === 'an abort') {
      await until('the source hangs', () => reads > 60);
      abort.abort(new Error('enough'));
    }
    await expect(writing).rejects.toThrow(end === 'an abort' ? 'enough' : /its source gave nothing|503/);
    await until('the source is cancelled', () => reason !== 'not cancelled');
  },
);

test('an iterator with its own way to end is told to end though it gives nothing', async () => {
  const files = await freshFiles();
  const abort = new AbortController();
  const emitter = new EventEmitter();
  const source = on(emitter, 'piece') as AsyncIterable<never>;
  const writing = files.write('doc', source, { signal: abort.signal });
  await until('the source is read', () => emitter.listenerCount('piece') > 0);
  abort.abort(new Error('enough'));
  await expect(writing).rejects.toThrow('enough');
  await until('it listens no more', () => emitter.listenerCount('piece') === 0);
});

test('a web stream that another program reads is refused by its own error, and stays open', async () => {
  const files = await freshFiles();
  const source = new ReadableStream<Uint8Array>();
  const reader = source.getReader();
  await expect(files.write('doc', source)).rejects.toThrow(/locked/);
  reader.releaseLock();
  expect(source.locked).toBe(false);
});

test('a web stream is read to its end, and free after it', async () => {
  const files = await freshFiles();
  const source = new Blob(['a web stream']).stream();
  await files.write('doc', source);
  expect((await readAll((await files.read('doc')).stream)).toString()).toBe('a web stream');
  expect(source.locked).toBe(false);
});

test('a stream is read to its end, and closed as usual', async () => {
  const files = await freshFiles();
  const source = Readable.from([Buffer.from('a stream')]);
  await files.write('doc', source);
  expect((await readAll((await files.read('doc')).stream)).toString()).toBe('a stream');
  expect([source.readableEnded, source.errored]).toEqual([true, null]);
});
