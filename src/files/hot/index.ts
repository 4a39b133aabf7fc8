import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import {
  ConnectionFailed,
  CorruptObject,
  InvalidInput,
  LeaseLost,
  StoreUnavailable,
  TimedOut,
} from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { checkOptions, duration, integer, object, oneOf, optional, signal, text } from '../../base/options/options.ts';
import { startRenewal } from '../../base/renewal.ts';
import { type Moment, moment, now, ownedFor, sleep } from '../../base/time/clock.ts';
import { type Duration, formatDuration } from '../../base/time/duration.ts';
import { parseId } from '../options.ts';
import type { FileReading, Reader } from '../reader.ts';
import type { FileStore } from '../store.ts';
import { TransferTimeout } from '../transfer-timeout.ts';
import type { Readable } from '../version.ts';
import { HotCache } from './cache.ts';
import type { HotCopy } from './copy.ts';

/** Options of {@link Files.hot}. */
export interface HotOptions {
  /** A folder of this host that holds nothing else. Processes may share it. */
  readonly dir: string;
  /**
   * The most bytes that all copies together may take; those used longest ago are removed first. A version that is larger is read
   * from the store each time. Default 10 GiB.
   */
  readonly maxBytes?: number | undefined;
  /**
   * How many processes fetch one version at a time: one per `'host'`, or one of `'all'` hosts, which spares the store when
   * many hosts want the same version. Default `'host'`.
   */
  readonly reload?: 'host' | 'all' | undefined;
  /** How long to wait while another process fetches the version. Default `'30s'`. */
  readonly wait?: Duration | undefined;
  /**
   * If the newest version is being fetched, or the database or the store does not answer, `open()` reads a copy that was the
   * newest at most this long ago. Default 0: never.
   */
  readonly maxStale?: Duration | undefined;
}

/** Options of {@link HotFiles.open}. */
export interface HotReadOptions {
  readonly range?: { readonly start?: number | undefined; readonly end?: number };
  readonly signal?: AbortSignal | undefined;
}

/** A reading from a hot copy. */
export interface HotReading extends FileReading {
  /** How long ago this version was confirmed to be the newest; 0 when the database was asked just now. */
  readonly staleMs: number;
}

interface VersionCheck {
  readonly version: Readable;
  readonly at: Moment;
}

/** Checked {@link HotReadOptions}. */
type GivenRead = Parameters<Reader['openLive']>[1];

/** The most attempts to open a copy that other processes remove each time before it is opened. */
const LOADS = 5;

/** A copy to read, and how long ago its version was confirmed to be the newest; 0 when the database was asked just now. */
interface HotRead {
  readonly version: Readable;
  readonly copy: HotCopy;
  readonly staleSince: Moment | undefined;
}

/**
 * The lease of a process that fetches a version. It renews the lease; after its death another process takes over within this
 * time.
 */
const LEASE_MS = 5000;
/** How many leases one load may lose: each time this process stood still, or the database did not answer. */
const LOSSES = 5;
const LOOK_MS = 50;

/**
 * Copies of versions on this host, for programs that read the same documents again and again. Before every use it asks the
 * database for the live version, in one round trip, and reads a copy only if that has the bytes of this version.
 */
export class HotFiles {
  readonly #reader: Reader;
  readonly #store: FileStore;
  readonly #cache: HotCache;
  readonly #options: {
    readonly scope: string;
    readonly waitMs: number;
    readonly maxStaleMs: number;
    readonly totalMs: number;
  };
  readonly #known = new Map<string, VersionCheck>();
  readonly #loading = new Map<string, Promise<void>>();

  /** @internal */
  constructor(reader: Reader, store: FileStore, totalMs: number, options: HotOptions) {
    const { dir, maxBytes, reload, wait, maxStale } = checkOptions('hot', options, {
      dir: text({ min: 1 }),
      maxBytes: integer({ min: 1, default: 10 * 1024 ** 3 }),
      reload: oneOf(['host', 'all'], { default: 'host' }),
      wait: duration({ default: '30s' }),
      maxStale: duration({ default: 0 }),
    });
    this.#reader = reader;
    this.#store = store;
    this.#cache = new HotCache(resolve(dir), maxBytes);
    const scope = reload === 'all' ? '*' : `${hostname()}:${resolve(dir)}`;
    this.#options = { scope, waitMs: wait, maxStaleMs: maxStale, totalMs };
  }

  /**
   * Reads a document's live version from its hot copy. If there is none, the copy is fetched first. A damaged copy is found
   * while it is read, before the damage is passed on: the stream fails, the copy is removed, and the next call fetches a new
   * one.
   * @throws NotFound, InvalidInput, StoreUnavailable, CorruptObject
   * @throws TimedOut  another process was fetching the version for longer than `wait`
   */
  async open(id: string, options: HotReadOptions = {}): Promise<HotReading> {
    const name = parseId('open', id);
    const given = checkOptions('open', options, {
      range: optional(object({ start: integer({ min: 0, default: 0 }), end: optional(integer({ min: 0 })) })),
      signal,
    });
    const read = await this.#find(name, given.signal);
    if ('copy' in read) return this.#read(read, given);
    try {
      return { ...(await this.#reader.openLive(read.version, given)), staleMs: 0 };
    } catch (error) {
      const stale = error instanceof StoreUnavailable ? await this.#findStale(name) : undefined;
      if (stale === undefined) throw error;
      return this.#read(stale, given);
    }
  }

  async #read({ version, copy, staleSince }: HotRead, given: GivenRead): Promise<HotReading> {
    try {
      const reading = await this.#reader.open(version, given, (_, blocks) => Promise.resolve(copy.read(blocks)));
      reading.stream.once('error', (error) => {
        if (error instanceof CorruptObject) void this.#cache.drop(version.sha256).catch(() => {});
      });
      return { ...reading, staleMs: staleSince === undefined ? 0 : ownedFor(staleSince) };
    } finally {
      // Nothing was read of an empty range.
      await copy.close();
    }
  }

  /**
   * The copy of the live version; or, if `maxStale` allows it and the live one is not available now, of a version that was
   * live at most `maxStale` ago. Without a copy: the live version, which is too large to be kept.
   */
  async #find(id: string, signal: AbortSignal | undefined): Promise<HotRead | Pick<HotRead, 'version'>> {
    const asked = moment();
    const row = await this.#reader
      .row(id, undefined, undefined)
      .catch((error: unknown) => this.#unlessStale(id, error));
    if (row === undefined) return (await this.#findStale(id)) ?? gone();
    if (!this.#cache.fits(row.size)) return { version: row };
    const there = await this.#cache.open(row.sha256, row.size);
    if (there === undefined) {
      const loading = this.#load(row, signal);
      // Loading continues even if no caller waits for it any more.
      loading.catch(() => {});
      const stale = await this.#findStale(id);
      if (stale !== undefined) return stale;
      await loading;
    }
    const copy = there ?? (await this.#openLoaded(row, signal));
    this.#note(id, { version: row, at: asked });
    return { version: row, copy, staleSince: undefined };
  }

  /** Keeps a version for as long as `maxStale` allows its use: a program may read any number of documents. */
  #note(id: string, check: VersionCheck): void {
    this.#known.delete(id); // the map is in the order of the checks
    this.#known.set(id, check);
    for (const [known, { at }] of this.#known) {
      if (ownedFor(at) <= this.#options.maxStaleMs) return;
      this.#known.delete(known);
    }
  }

  /** Another process that makes room, or finds a damaged copy of that name, may remove the new copy before it is opened. */
  async #openLoaded(row: Readable, signal: AbortSignal | undefined): Promise<HotCopy> {
    for (let load = 1; ; load += 1) {
      if (faults.armed) await faults.reach('files.loaded');
      const copy = await this.#cache.open(row.sha256, row.size);
      if (copy !== undefined) return copy;
      if (load === LOADS) gone();
      await this.#load(row, signal);
    }
  }

  async #findStale(id: string): Promise<HotRead | undefined> {
    const known = this.#stale(id);
    const copy = known && (await this.#cache.open(known.version.sha256, known.version.size));
    return known && copy && { version: known.version, copy, staleSince: known.at };
  }

  #stale(id: string): VersionCheck | undefined {
    const known = this.#known.get(id);
    return known !== undefined && ownedFor(known.at) <= this.#options.maxStaleMs ? known : undefined;
  }

  /** If the database does not answer, a copy is used that is not too old. */
  #unlessStale(id: string, error: unknown): undefined {
    if (!(error instanceof ConnectionFailed) || this.#stale(id) === undefined) throw error;
  }

  /** One load of a version at a time in this process. Each caller waits for it until its own signal is aborted. */
  async #load(row: Readable, given: AbortSignal | undefined): Promise<void> {
    const underWay = this.#loading.get(row.sha256);
    const loading = underWay ?? this.#reload(row).finally(() => this.#loading.delete(row.sha256));
    if (underWay === undefined) this.#loading.set(row.sha256, loading);
    using transfer = new TransferTimeout({
      what: `fetching "${row.id}"`,
      totalMs: this.#options.totalMs + this.#options.waitMs,
      signal: given,
    });
    await transfer.wait(loading);
  }

  /** One load at a time on this host, or on all hosts. */
  async #reload(row: Readable): Promise<void> {
    const owner = randomUUID();
    const { scope, waitMs } = this.#options;
    let until = now() + waitMs;
    for (let losses = 0; ; ) {
      const sentAt = moment();
      const leftMs = await this.#store.takeReload(scope, row.sha256, owner, LEASE_MS);
      // The previous owner of the lease may have made the copy.
      if (await this.#cache.has(row.sha256, row.size))
        return leftMs === 0 ? this.#store.endReload(scope, row.sha256, owner) : undefined;
      if (leftMs === 0) {
        if (await this.#fetch(row, owner, sentAt, (losses += 1) < LOSSES)) return;
        until = now() + waitMs; // another process may be fetching it since this one lost the lease
        continue;
      }
      if (now() >= until) {
        throw new TimedOut(
          `another process has been fetching "${row.id}" version ${row.version} for longer than ${formatDuration(waitMs)}`,
        );
      }
      await sleep(Math.min(leftMs, LOOK_MS * (1 + Math.random())));
    }
  }

  /** @returns false if the lease was lost, and the caller may try again */
  async #fetch(row: Readable, owner: string, since: Moment, mayRepeat: boolean): Promise<boolean> {
    const { scope, totalMs } = this.#options;
    const renewal = startRenewal({
      what: `the reload of "${row.id}"`,
      leaseMs: LEASE_MS,
      since,
      unref: true,
      beat: async () => ((await this.#store.takeReload(scope, row.sha256, owner, LEASE_MS)) === 0 ? 'kept' : 'lost'),
    });
    using transfer = new TransferTimeout({
      what: `fetching "${row.id}" version ${row.version}`,
      totalMs,
      signal: renewal.signal,
    });
    try {
      if (faults.armed) await faults.reach('files.reloading');
      const all = { range: undefined, signal: transfer.signal };
      const { stream } = await this.#reader.open(row, all, this.#reader.fromStore);
      try {
        await transfer.wait(this.#cache.add(row.sha256, row.size, stream));
      } finally {
        stream.destroy(); // the folder may have refused the copy before the first byte was read
      }
      return true;
    } catch (error) {
      if (mayRepeat && transfer.signal.reason instanceof LeaseLost) return false;
      if (error instanceof InvalidInput || error instanceof CorruptObject || error instanceof StoreUnavailable)
        throw error;
      throw transfer.signal.aborted ? transfer.signal.reason : error;
    } finally {
      await renewal.stop();
      await this.#store.endReload(scope, row.sha256, owner).catch(() => {});
    }
  }
}

function gone(): never {
  throw new CorruptObject(
    'the hot copy is gone: it was removed each time right after it was written; give the hot copies more room (maxBytes)',
    { damage: 'missing' },
  );
}
