import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CorruptObject, InvalidInput, StoreUnavailable } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { PutCall } from '../content.ts';
import { Digest } from '../digest.ts';
import type { ParsedUpload } from '../options.ts';
import type { Reader } from '../reader.ts';
import { TransferTimeout } from '../transfer-timeout.ts';
import type { Readable } from '../version.ts';
import { Upload } from './publish.ts';
import { readAhead } from './read-ahead.ts';
import { type FileSource, keepSource, readSource } from './source.ts';
import { abandon, type WriteContext } from './write-context.ts';

/**
 * Moves the bytes of a source into the content store, under a new name that is in the database before the first byte is sent.
 * Holds no connection and no lock meanwhile.
 * @throws what the source throws; InvalidInput, TimedOut, StoreUnavailable, StoreRefused. Then the source is closed, and only a
 *   row is left for the collector.
 */
export async function beginUpload(
  w: WriteContext,
  id: string,
  source: FileSource,
  given: ParsedUpload,
): Promise<Upload> {
  const digest = new Digest();
  const kept = keepSource(source);
  const written = writeObject(w, id, given, async (name, transfer, intent) => {
    const { budget } = w.guarded;
    const expected = { size: given.size, maxBytes: w.options.maxBytes, idleMs: budget.idleMs };
    const chunks = hashed(readSource(kept.chunks, expected, transfer), digest);
    const call = putCall(w, name, transfer, () => digest.sha256());
    try {
      const bytes = readAhead(chunks, intent);
      await intent;
      transfer.signal.throwIfAborted();
      await put(w, id, name, bytes, call);
    } finally {
      // Closes the source, even if the store has not read it to the end; does not wait, since the source may hang.
      void chunks.return().catch(() => {});
    }
    if (faults.armed) await faults.reach('files.after_upload');
  });
  const object = await written.catch((error: unknown) => {
    kept.close();
    throw error;
  });
  const print = digest.end();
  if (given.sha256 !== undefined && given.sha256 !== print.sha256) {
    await abandon(w, object);
    throw new InvalidInput(
      `option "sha256" says ${given.sha256}, but the source gave ${print.sha256}; nothing was published`,
      { field: 'sha256' },
    );
  }
  return new Upload(w, id, object, print, given);
}

/**
 * Makes a second object with the bytes of a version, inside the store if it can do that.
 * @throws CorruptObject  the bytes of the version are gone or damaged; and as `beginUpload`
 */
export async function beginCopy(
  w: WriteContext,
  id: string,
  from: Readable,
  reader: Reader,
  given: Pick<ParsedUpload, 'ifVersion' | 'author' | 'lock' | 'signal'>,
): Promise<Upload> {
  const told = {
    ...given,
    contentType: from.contentType ?? undefined,
    meta: from.meta,
    size: from.size,
    sha256: from.sha256,
  };
  const object = await writeObject(w, id, told, async (name, transfer, intent) => {
    await intent;
    if (await copyInside(w, from, name, transfer, reader)) return;
    const call = putCall(w, name, transfer, () => from.sha256);
    // The source is the store itself, so its failures are those of the store.
    await put(w, id, name, reader.whole(from, transfer), call).catch((error: unknown) => {
      throw ownError(error);
    });
  });
  return new Upload(w, id, object, from, told);
}

/** @returns false if the store cannot copy @throws CorruptObject  it does not have the bytes */
async function copyInside(
  w: WriteContext,
  from: Readable,
  name: string,
  transfer: TransferTimeout,
  reader: Reader,
): Promise<boolean> {
  const { content } = w.guarded;
  const { signal } = transfer;
  try {
    return await transfer.within(limitOf(w, from.size / 256), content.copy(from.object, name, from.size, { signal }));
  } catch (error) {
    if (!(error instanceof CorruptObject)) throw error;
    // The place of the new object may be missing as well.
    const size = await transfer.within(limitOf(w, 0), content.size(from.object, { signal }));
    throw size === undefined ? reader.named(error, from) : asStoreError(error, from.id);
  }
}

function putCall(w: WriteContext, object: string, transfer: TransferTimeout, sha256: () => string): PutCall {
  return {
    signal: transfer.signal,
    onUpload: (upload) => w.store.noteUpload(object, upload),
    within: (bytes, work) => transfer.within(limitOf(w, bytes), work),
    sha256,
  };
}

/** How long one request of so many bytes may take, in milliseconds. */
function limitOf({ guarded }: WriteContext, bytes: number): number {
  return guarded.budget.idleMs + bytes / SLOWEST;
}

/** An error of the source: it says nothing about the store, whatever its type is. */
class SourceFailed extends Error {
  readonly error: unknown;

  constructor(error: unknown) {
    super('the source failed', { cause: error });
    this.error = error;
  }
}

function ownError(error: unknown): unknown {
  return error instanceof SourceFailed ? error.error : error;
}

/** Puts chunks into the store. @throws SourceFailed  the chunks could not be read */
async function put(
  { guarded }: WriteContext,
  id: string,
  name: string,
  chunks: AsyncIterable<Buffer>,
  call: PutCall,
): Promise<void> {
  const source: { failure?: SourceFailed } = {};
  const noted = (async function* () {
    try {
      yield* chunks;
    } catch (error) {
      source.failure = new SourceFailed(error);
      throw error;
    }
  })();
  await guarded.content.put(name, noted, call).catch((error: unknown) => {
    throw source.failure ?? asStoreError(error, id);
  });
}

/** Bytes per millisecond. A slower store counts as dead. */
const SLOWEST = 64;

/**
 * Commits the intent, transfers the bytes, and after a failure leaves the object to the collector.
 * @param move  sends nothing to the store before the intent is committed
 * @returns the object's name
 */
async function writeObject(
  w: WriteContext,
  id: string,
  { lock, signal }: Pick<ParsedUpload, 'lock' | 'signal'>,
  move: (name: string, transfer: TransferTimeout, intent: Promise<void>) => Promise<void>,
): Promise<string> {
  signal?.throwIfAborted();
  await w.guarded.attach();
  const object = randomUUID();
  const outer = lock === undefined ? signal : AbortSignal.any([lock.signal, ...(signal ? [signal] : [])]);
  using transfer = new TransferTimeout({ what: `writing "${id}"`, totalMs: w.guarded.budget.totalMs, signal: outer });
  let intent: Promise<void> | undefined;
  try {
    await w.guarded.breaker.run(() => {
      intent = intend(w, id, object);
      return transfer.wait(move(object, transfer, intent));
    }, transfer);
  } catch (error) {
    if (intent === undefined) throw error;
    // Before the intent is committed there is nothing to abandon; if it cannot be committed, nothing was sent.
    await intent;
    await abandon(w, object);
    // After an abort the store throws because of it; the caller gets the reason of the abort.
    throw transfer.signal.aborted ? transfer.signal.reason : ownError(error);
  }
  return object;
}

async function intend({ store, options }: WriteContext, id: string, object: string): Promise<void> {
  await store.intend(id, object, options.pending, hostname(), process.pid);
  if (faults.armed) await faults.reach('files.after_intent');
}

/** A store that lacks the place of a new object has lost its folder or bucket. */
function asStoreError(error: unknown, id: string): unknown {
  if (!(error instanceof CorruptObject)) return error;
  return new StoreUnavailable(`writing "${id}": ${error.message}`, { cause: error });
}

/** About a millisecond of hashing: for this long, other work of this process may wait. */
const TURN_BYTES = 512 * 1024;

async function* hashed(chunks: AsyncIterable<Buffer>, digest: Digest): AsyncGenerator<Buffer, void> {
  let inTurn = 0;
  for await (const chunk of chunks) {
    digest.update(chunk);
    inTurn += chunk.length;
    if (inTurn >= TURN_BYTES) {
      inTurn = 0;
      await nextTurn();
    }
    yield chunk;
  }
}
