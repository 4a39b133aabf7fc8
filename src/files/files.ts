import { NotFound } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { type Loop, startLoop } from '../base/loop.ts';
import { bool, checkOptions, duration, integer, optional, signal, text } from '../base/options/options.ts';
import { within } from '../base/time/clock.ts';
import type { Duration } from '../base/time/duration.ts';
import { type OpenTransaction, type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import type { StoreProbe } from './content.ts';
import { GuardedContent } from './guarded-content.ts';
import { HotFiles, type HotOptions } from './hot/index.ts';
import { explainFile, type FileExplanation, withoutChecks } from './operate/explain.ts';
import { type ReconcileReport, reconcile } from './operate/reconcile.ts';
import { Collector, type CollectorState, type SweepReport } from './operate/sweep.ts';
import {
  type ChangeOptions,
  type FilesOptions,
  type ParsedOptions,
  parseChange,
  parseFilesOptions,
  parseId,
  parseRemove,
  parseUpload,
  parseVersion,
  parseWrite,
  type UploadOptions,
  type WriteOptions,
} from './options.ts';
import { PostgresFileStore } from './postgres/store.ts';
import { type FileReading, Reader, type ReadOptions } from './reader.ts';
import type { FileVersion, PastVersion } from './version.ts';
import { conflict, type Upload, type WriteResult } from './write/publish.ts';
import { checkSource, type FileSource } from './write/source.ts';
import { beginCopy, beginUpload } from './write/upload.ts';
import type { WriteContext } from './write/write-context.ts';

/** The events of {@link Files}. */
export interface FilesEvents {
  swept: SweepReport;
  /** The collector failed; its loop continues after a pause. */
  error: { readonly error: unknown };
}

/** Options of {@link Files.remove}. */
export type RemoveOptions = Pick<WriteOptions, 'ifVersion' | 'tx'>;

/** Options of {@link Files.copy}. */
export interface CopyOptions extends ChangeOptions {
  /** The version to copy. Default: the live one. */
  readonly version?: number | undefined;
}

/**
 * Versioned files: the bytes are in a content store, and the database decides which version is live. Every method checks its
 * arguments before it does anything.
 * @throws InvalidInput
 */
export function createFiles(engine: PostgresEngine, options: FilesOptions): Files {
  requireEngine('createFiles', engine);
  return new Files(engine, parseFilesOptions(options));
}

/** The longest time that `stop()` waits for sweeps. A database that says nothing any more answers no statement of theirs. */
const STOP_MS = 5000;

/** The files of one namespace; made by {@link createFiles}. */
export class Files implements AsyncDisposable {
  readonly #engine: PostgresEngine;
  readonly #options: ParsedOptions;
  readonly #store: PostgresFileStore;
  readonly #guarded: GuardedContent;
  readonly #reader: Reader;
  readonly #collector: Collector;
  readonly #events = new Events<FilesEvents>();
  readonly #loops = new Set<Loop>();

  /** @internal */
  constructor(engine: PostgresEngine, options: ParsedOptions) {
    this.#engine = engine;
    this.#options = options;
    this.#store = new PostgresFileStore(engine, options.namespace);
    this.#guarded = new GuardedContent(
      options.content,
      options.budget,
      this.#store,
      options.namespace,
      engine.options.logger,
    );
    this.#reader = new Reader(this.#store, this.#guarded);
    this.#collector = new Collector(this.#store, this.#guarded, options);
  }

  /**
   * Writes a document's next version: moves the bytes into the content store, then publishes them in your transaction (`tx`),
   * or in one of its own. Before the store has all bytes, it runs no statement in your transaction and locks nothing. But your
   * transaction is open meanwhile. If the bytes take long, call {@link Files.upload} first, and begin the transaction after
   * it.
   *
   * After a roll-back, a crash or a failure at any moment the version before is still the live one.
   * @param id  1 to 512 bytes
   * @throws VersionConflict  the document has another version than `ifVersion`
   * @throws what the source throws; InvalidInput, TimedOut, StoreUnavailable, StoreRefused, UploadExpired, LeaseLost
   */
  async write(id: string, source: FileSource, options: WriteOptions = {}): Promise<WriteResult> {
    const given = parseWrite('write', options);
    const { tx } = given;
    const upload = await beginUpload(this.#writing, parseId('write', id), checkSource('write', source), given);
    return publishOrAbandon(upload, tx);
  }

  /**
   * Moves the bytes of a version into the content store, without holding a connection or a lock. They are no version yet:
   * `await upload.publish({ tx })` makes them one, in the time of one statement.
   * @throws as {@link Files.write}
   */
  async upload(id: string, source: FileSource, options: UploadOptions = {}): Promise<Upload> {
    const given = parseUpload(options);
    return beginUpload(this.#writing, parseId('upload', id), checkSource('upload', source), given);
  }

  /**
   * Reads one whole version, or a part of it; two round trips. The version does not change while it is read, even if the
   * document is written meanwhile.
   * @throws NotFound, InvalidInput, StoreUnavailable, StoreRefused
   * @throws CorruptObject  the bytes are not those that were written; thrown by `stream` when it is found during the transfer
   */
  read(id: string, options: ReadOptions = {}): Promise<FileReading> {
    return this.#reader.read(id, options);
  }

  /** The facts about a document's live version, or about another one; one round trip, no bytes. @throws NotFound */
  async stat(id: string, version?: number): Promise<PastVersion> {
    const wanted = version === undefined ? undefined : parseVersion('stat', version);
    return withoutChecks(await this.#reader.row(parseId('stat', id), wanted, undefined));
  }

  /** Documents in the byte order of their ids. `after` is the last id of the page before. `limit`: default 100. */
  async list(options?: {
    prefix?: string | undefined;
    after?: string | undefined;
    limit?: number | undefined;
  }): Promise<FileVersion[]> {
    const { prefix, after, limit } = checkOptions('list', options, {
      prefix: text({ max: 512, default: '' }),
      after: optional(text({ max: 512 })),
      limit: integer({ min: 1, max: 10_000, default: 100 }),
    });
    return this.#store.list(prefix, after, limit);
  }

  /** Every version of a document, newest first: its author, time and size, and whether it can still be read. */
  async history(
    id: string,
    options?: { before?: number | undefined; limit?: number | undefined },
  ): Promise<PastVersion[]> {
    const { before, limit } = checkOptions('history', options, {
      before: optional(integer({ min: 1 })),
      limit: integer({ min: 1, max: 10_000, default: 100 }),
    });
    return this.#store.past(parseId('history', id), before, limit);
  }

  /**
   * Makes an earlier version the next one. The bytes are copied, inside the store if it can do that. @throws NotFound, and as
   * write
   */
  async restore(id: string, version: number, options: ChangeOptions = {}): Promise<WriteResult> {
    const name = parseId('restore', id);
    return this.#copy('restore', name, parseVersion('restore', version), name, options);
  }

  /** Makes a document's version, by default the live one, the next version of another document. @throws NotFound, and as write */
  async copy(from: string, to: string, options: CopyOptions = {}): Promise<WriteResult> {
    const { version, ...change } = options;
    const wanted = version === undefined ? undefined : parseVersion('copy', version);
    return this.#copy('copy', parseId('copy', from, 'from'), wanted, parseId('copy', to, 'to'), change);
  }

  /**
   * Removes a document, in your transaction or in one of its own. Its versions can be restored as long as they are kept.
   * @throws NotFound, VersionConflict
   */
  async remove(id: string, options: RemoveOptions = {}): Promise<void> {
    const { ifVersion, tx } = parseRemove(options);
    const name = parseId('remove', id);
    const remove = async (inside: unknown): Promise<void> => {
      const answer = await this.#store.remove(inside, name, ifVersion, this.#options.retain);
      if ('conflict' in answer) throw conflict(name, ifVersion ?? 0, answer.conflict);
      if ('absent' in answer) throw new NotFound(`there is no document "${name}"`);
    };
    await (tx === undefined ? this.#engine.transaction(remove) : remove(tx));
  }

  /**
   * Deletes objects in the content store that are no longer needed: uploads that were not published in time, and versions whose
   * time is over. It also deletes, a second time, objects that were deleted before. It may run in any number of processes at the
   * same time, and may be killed.
   * @throws CollectorHalted  the database and the store disagree about the past; nothing was deleted
   */
  async sweep(options?: { limit?: number | undefined; signal?: AbortSignal | undefined }): Promise<SweepReport> {
    const parsed = checkOptions('sweep', options, {
      limit: integer({ min: 1, default: Number.MAX_SAFE_INTEGER }),
      signal,
    });
    const report = await this.#collector.sweep(parsed);
    this.#events.emit('swept', report);
    return report;
  }

  /** Sweeps again and again until it is stopped. Default: every minute. */
  collect(options?: { every?: Duration | undefined }): Loop {
    const { every } = checkOptions('collect', options, { every: duration({ min: 100, default: '1m' }) });
    const loop = startLoop({
      name: 'files.collect',
      run: async (stop) => {
        await this.sweep({ signal: stop });
        return every;
      },
      onError: (error) => this.#events.emit('error', { error }),
      backoff: { kind: 'exponential', min: Math.min(every, 1000), max: every, factor: 2, jitter: 0.5 },
      unref: true,
    });
    this.#loops.add(loop);
    return loop;
  }

  /** How much there is to collect, and whether the collector has stopped itself. */
  async collector(): Promise<CollectorState> {
    const isDamaged = (await this.#guarded.findMarker()) === 'damaged';
    if (!isDamaged) await this.#guarded.attach();
    const because = isDamaged ? this.#guarded.damage : (await this.#store.row())?.haltedBecause;
    return { ...(await this.#store.due()), haltedBecause: because ?? null };
  }

  /**
   * Compares the content store with the database: finds names in the store that belong to no version, and versions that have
   * lost their bytes. Changes nothing, except that `dryRun: false` moves such names to quarantine, where they are not
   * deleted. A failure of the store is listed in the report, and the comparison continues. A report has about 10,000 names, at
   * most one page more. If it has `next`, pass that as `from` to the next call; null is the beginning.
   * @throws CollectorHalted  without a dry run: the database and the store disagree about the past
   */
  async reconcile(options?: {
    dryRun?: boolean | undefined;
    from?: string | null | undefined;
    signal?: AbortSignal | undefined;
  }): Promise<ReconcileReport> {
    const from = optional(text({ min: 1, max: 2000 }));
    const given = { ...options, from: options?.from ?? undefined };
    const parsed = checkOptions('reconcile', given, { dryRun: bool({ default: true }), from, signal });
    return reconcile(this.#store, this.#guarded, this.#collector, parsed);
  }

  /**
   * Restarts a collector that has stopped itself: then this database collects in this store. Before that, make sure that no
   * other database does, and reconcile: after a restore the database does not know objects that were written later. If the
   * marker is damaged or gone, it is written again.
   * @throws Conflict  the store belongs to another namespace @throws StoreRefused  the database knows no object in it
   */
  rearm(): Promise<void> {
    return this.#collector.rearm();
  }

  /**
   * Hot copies of documents on this host: `await hot.open(id)` asks the database for the live version and reads its bytes
   * from a local file.
   */
  hot(options: HotOptions): HotFiles {
    return new HotFiles(this.#reader, this.#store, this.#options.budget.totalMs, options);
  }

  /**
   * The guarantees that a test found at the first use of the content store. @throws Conflict, StoreUnavailable,
   * StoreRefused
   */
  probe(): Promise<StoreProbe> {
    return this.#guarded.attach();
  }

  /** The namespace of {@link createFiles}; `''` without one. */
  get namespace(): string {
    return this.#options.namespace;
  }

  /** Which transactions hold a document, and which wait for it. For people. */
  async explain(id: string): Promise<FileExplanation> {
    return explainFile(this.#store, parseId('explain', id));
  }

  /** Adds a listener for an event. @returns a function that removes the listener */
  on<K extends keyof FilesEvents>(event: K, listener: (payload: FilesEvents[K]) => unknown): () => void {
    return this.#events.on(event, listener);
  }

  /**
   * Stops the loops that this object started, and closes the connections of the content store. Waits up to 5 s for a sweep that
   * is under way. Safe to call twice; never rejects.
   */
  async stop(): Promise<void> {
    await within(STOP_MS, Promise.all([...this.#loops].map((loop) => loop.stop())));
    this.#options.content.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  get #writing(): WriteContext {
    return { engine: this.#engine, store: this.#store, guarded: this.#guarded, options: this.#options };
  }

  async #copy(
    what: string,
    from: string,
    version: number | undefined,
    to: string,
    options: ChangeOptions,
  ): Promise<WriteResult> {
    const change = parseChange(what, options);
    const found = await this.#reader.row(from, version, undefined);
    return publishOrAbandon(await beginCopy(this.#writing, to, found, this.#reader, change), change.tx);
  }
}

async function publishOrAbandon(upload: Upload, tx: OpenTransaction | undefined): Promise<WriteResult> {
  try {
    return await upload.publish({ tx });
  } catch (error) {
    // A refused publication has changed nothing. If the outcome is unknown, the row decides: this call has no effect
    // if the bytes were published.
    if (tx === undefined) await upload.abandon();
    throw error;
  }
}
