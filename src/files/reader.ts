import { Readable as Stream } from 'node:stream';
import { CorruptObject, InvalidInput, NotFound, PawlError, StoreUnavailable } from '../base/errors.ts';
import { faults } from '../base/fault.ts';
import { checkOptions, integer, object, oneOf, optional, signal } from '../base/options/options.ts';
import { type OpenTransaction, openTransaction } from '../engine/postgres/index.ts';
import type { Range } from './content.ts';
import type { GuardedContent } from './guarded-content.ts';
import { parseId, parseVersion } from './options.ts';
import type { FileStore } from './store.ts';
import { TransferTimeout } from './transfer-timeout.ts';
import { blocksAround, type CheckLevel, cut, verified } from './verify.ts';
import type { FileVersion, Readable } from './version.ts';

/** Options of a read. */
export interface ReadOptions {
  /** An earlier version, as long as it is kept. Default: the live one. */
  readonly version?: number | undefined;
  /** From byte `start` up to, and without, byte `end`. Default: all. Whole blocks of 1 MiB around it are read and checked. */
  readonly range?: { readonly start?: number | undefined; readonly end?: number };
  /**
   * `'share'`: the version does not change until the transaction of `tx` ends. A writer waits for that, and readers with this
   * option that come later wait behind the writer. Default: no lock; none is needed to read one whole version.
   */
  readonly lock?: 'share' | undefined;
  /** For `lock`: an open transaction of any known library. */
  readonly tx?: OpenTransaction | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A version and its bytes. */
export interface FileReading {
  readonly version: FileVersion;
  /** The range of the bytes in `stream`. */
  readonly range: { readonly start: number; readonly end: number };
  /**
   * The bytes. Each block is passed on after its check, the last one after the check of the whole. The stream fails with
   * CorruptObject if the bytes are not those that were written. Read it to the end or destroy it, within `limits.total`.
   */
  readonly stream: Stream;
}

/** A stream of bytes, and how to check them. */
export interface ContentBody {
  readonly stream: Stream;
  readonly check: CheckLevel;
  /** Called once, when the transfer of the whole body has ended, with its error if it failed. */
  readonly ended?: (error?: unknown) => void;
}

/** Opens bytes of a version, in the store or in a hot copy. */
export type Open = (version: Readable, blocks: Range, transfer: TransferTimeout) => Promise<ContentBody>;

interface ParsedRead {
  readonly version: number | undefined;
  readonly range: { readonly start: number; readonly end: number | undefined } | undefined;
  readonly lock: 'share' | undefined;
  readonly tx: unknown;
  readonly signal: AbortSignal | undefined;
}

/** Reads versions. */
export class Reader {
  readonly #store: FileStore;
  readonly #guarded: GuardedContent;

  constructor(store: FileStore, guarded: GuardedContent) {
    this.#store = store;
    this.#guarded = guarded;
  }

  /** @throws NotFound, InvalidInput, CorruptObject, StoreUnavailable, StoreRefused */
  async read(id: string, options: ReadOptions): Promise<FileReading> {
    const name = parseId('read', id);
    const parsed = parseRead(options);
    const first = await this.row(name, parsed.version, parsed.lock === undefined ? undefined : parsed.tx);
    if (faults.armed) await faults.reach('files.after_row');
    const isFixed = parsed.version !== undefined || parsed.lock !== undefined;
    return isFixed ? this.open(first, parsed, this.fromStore) : this.openLive(first, parsed);
  }

  /** Opens the live version in the store, or the one that is live by then. @throws as `read` */
  async openLive(first: Readable, given: Pick<ParsedRead, 'range' | 'signal'>): Promise<FileReading> {
    try {
      return await this.open(first, given, this.fromStore);
    } catch (error) {
      if (!isMissing(error)) throw error;
      // The version may have been replaced, and collected, since its row was read.
      const second = await this.row(first.id, undefined, undefined);
      if (second.object === first.object) throw error;
      return this.open(second, given, this.fromStore);
    }
  }

  /** The row of a version that can be read. @throws NotFound */
  async row(id: string, version: number | undefined, tx: unknown): Promise<Readable> {
    const found = tx === undefined ? await this.#store.current(id, version) : await this.#store.share(tx, id);
    if (found === undefined) {
      const what = version === undefined ? `document "${id}"` : `version ${version} of document "${id}"`;
      throw new NotFound(`there is no ${what}`);
    }
    if (found.state === 'live' || found.state === 'retired') return found;
    throw new NotFound(
      `version ${found.version} of document "${id}" is no longer stored; only its entry in the history is left`,
    );
  }

  async open(
    version: Readable,
    { range, signal: outer }: Pick<ParsedRead, 'range' | 'signal'>,
    from: Open,
  ): Promise<FileReading> {
    const wanted = within(version, range);
    const blocks = blocksAround(wanted, version.size);
    const what = `reading "${version.id}" version ${version.version}`;
    const transfer = new TransferTimeout({ what, totalMs: this.#guarded.budget.totalMs, signal: outer });
    try {
      const body = blocks.start === blocks.end ? undefined : await from(version, blocks, transfer);
      transfer.expect('reader', Infinity);
      const chunks = timed(body?.stream, transfer, this.#guarded.budget.idleMs, 'reader');
      const parts = verified(chunks, version, blocks, body?.check ?? 'hash');
      const stream = new CheckedStream(cut(parts, blocks, wanted), body, transfer, (error) =>
        this.named(error, version),
      );
      return { version, range: wanted, stream };
    } catch (error) {
      transfer.stop();
      throw this.named(error, version);
    }
  }

  /** Opens bytes in the content store, within the time limit for a first byte. */
  readonly fromStore: Open = async (version, blocks, transfer) => {
    const { breaker } = this.#guarded;
    const body = await breaker.begin(() => this.#openObject(version, blocks, transfer), transfer);
    const ended = (error?: unknown): void => {
      if (error instanceof StoreUnavailable && !transfer.wasGivenUp) breaker.failed();
      else if (error === undefined) breaker.succeeded();
    };
    return { ...body, ended };
  };

  /**
   * The checked bytes of a whole version in the store, for a copy: within a call that the circuit breaker has let through, since
   * during a probe the breaker would refuse a second one. @throws CorruptObject, StoreUnavailable, StoreRefused
   */
  async *whole(version: Readable, transfer: TransferTimeout): AsyncGenerator<Buffer, void> {
    const all = { start: 0, end: version.size };
    let body: ContentBody | undefined;
    try {
      body = await this.#openObject(version, all, transfer);
      // It comes through the chunks; without this listener it could end the process.
      body.stream.on('error', () => {});
      const chunks = timed(body.stream, transfer, this.#guarded.budget.idleMs, 'neither');
      yield* verified(chunks, version, all, body.check);
    } catch (error) {
      throw this.named(error, version);
    } finally {
      body?.stream.destroy();
    }
  }

  readonly #openObject: Open = async (version, blocks, transfer) => {
    transfer.expect('store', this.#guarded.budget.firstByteMs);
    const part = { ...blocks, isWhole: blocks.start === 0 && blocks.end === version.size };
    const opening = this.#guarded.content.get(version.object, part, { signal: transfer.signal });
    // A body that comes after the transfer has ended is closed.
    opening.then((body) => transfer.signal.aborted && body.destroy()).catch(() => {});
    const stream = await transfer.wait(opening);
    transfer.expect('neither', Infinity);
    return { stream, check: 'hash' };
  };

  /** Adds to an error which version it is about. */
  named(error: unknown, { id, version, object: name }: Readable): unknown {
    if (!(error instanceof CorruptObject)) return error;
    const where = `${this.#guarded.content.kind} ${this.#guarded.content.where}`;
    return new CorruptObject(`version ${version} of "${id}" (object ${name} in ${where}): ${error.message}`, {
      cause: error,
      damage: error.damage,
    });
  }
}

/** @throws InvalidInput */
function parseRead(options: ReadOptions): ParsedRead {
  const parsed = checkOptions('read', options, {
    version: optional(integer({ min: 1 })),
    range: optional(object({ start: integer({ min: 0, default: 0 }), end: optional(integer({ min: 0 })) })),
    lock: optional(oneOf(['share'])),
    tx: openTransaction,
    signal,
  });
  if (parsed.version !== undefined) parseVersion('read', parsed.version);
  const { tx } = parsed;
  if (parsed.lock !== undefined && (tx === undefined || parsed.version !== undefined)) {
    throw new InvalidInput("read with lock: 'share' takes tx, the transaction that holds it, and no version", {
      field: 'lock',
    });
  }
  if (parsed.lock === undefined && tx !== undefined) {
    throw new InvalidInput("read takes tx only with lock: 'share'; without it no transaction is needed", {
      field: 'tx',
    });
  }
  return parsed;
}

/** @throws InvalidInput  the range begins after the end */
function within(version: Readable, range: ParsedRead['range']): Range {
  const start = range?.start ?? 0;
  const end = Math.min(range?.end ?? version.size, version.size);
  if (start <= end) return { start, end };
  throw new InvalidInput(
    `option "range" for read begins at ${start}, but ends at ${range?.end ?? version.size}; version ${version.version} of ` +
      `"${version.id}" has ${version.size} bytes`,
    { field: 'range' },
  );
}

/** The chunks of a body, each within the time limit for a pause. @param taker  who has to take them */
async function* timed(
  body: Stream | undefined,
  transfer: TransferTimeout,
  idleMs: number,
  taker: 'reader' | 'neither',
): AsyncGenerator<Buffer, void> {
  if (body === undefined) return;
  const chunks = body[Symbol.asyncIterator]();
  for (;;) {
    transfer.expect('store', idleMs);
    const { value, done } = await transfer.wait(chunks.next()).catch(asTransferError);
    transfer.expect(taker, Infinity);
    if (done === true) return;
    yield value;
  }
}

function asTransferError(error: unknown): never {
  if (error instanceof PawlError || !(error instanceof Error)) throw error;
  if (error.name === 'AbortError') throw error;
  throw new StoreUnavailable(`the transfer broke off: ${error.message}`, { cause: error });
}

function isMissing(error: unknown): boolean {
  return error instanceof CorruptObject && error.damage === 'missing';
}

/** A stream of checked bytes. To destroy it ends the transfer at once, even if the transfer hangs. */
class CheckedStream extends Stream {
  readonly #parts: AsyncGenerator<Buffer, void>;
  readonly #body: ContentBody | undefined;
  readonly #transfer: TransferTimeout;
  readonly #name: (error: unknown) => unknown;
  #hasEnded = false;

  constructor(
    parts: AsyncGenerator<Buffer, void>,
    body: ContentBody | undefined,
    transfer: TransferTimeout,
    name: (error: unknown) => unknown,
  ) {
    // One piece at a time: a stream copies several waiting pieces into one.
    super({ highWaterMark: 1 });
    this.#parts = parts;
    this.#body = body;
    this.#transfer = transfer;
    this.#name = name;
    // Failures of the body come through its chunks; without this listener they could end the process.
    body?.stream.on('error', () => {});
    transfer.signal.addEventListener('abort', () => this.#fail(transfer.signal.reason), { once: true });
  }

  override _read(): void {
    this.#parts.next().then(
      ({ value, done }) => {
        if (done !== true) return void this.push(value);
        this.#end();
        this.push(null);
      },
      (error: unknown) => this.#fail(error),
    );
  }

  #fail(error: unknown): void {
    this.#end(error);
    this.destroy(asError(this.#name(error)));
  }

  #end(error?: unknown): void {
    if (!this.#hasEnded) this.#body?.ended?.(error);
    this.#hasEnded = true;
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#transfer.stop();
    this.#body?.stream.destroy();
    callback(error);
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new StoreUnavailable(String(error));
}
