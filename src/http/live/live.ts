import { randomBytes } from 'node:crypto';
import type { Logger } from '../../base/logger.ts';
import type { LiveSnapshot } from '../store/live.ts';
import { type Picture, pictureOf } from './picture.ts';

/** The message of a stream: the whole picture, because it is small, whenever it has changed. */
export interface LiveEvent {
  readonly id: string;
  readonly event: 'snapshot' | 'trouble';
  readonly data: string;
}

type Listener = (event: LiveEvent) => void;

/** Pictures that are kept for streams that return: those of a minute, one each two seconds. */
const KEPT = 30;

/**
 * Reads the live picture from the database while streams watch, once for all of them. Without streams nothing is read. An
 * unchanged picture is not sent again.
 */
export class Live {
  readonly #ask: () => Promise<LiveSnapshot>;
  readonly #everyMs: number;
  readonly #logger: Logger;
  readonly #listeners = new Set<Listener>();
  readonly #kept: LiveEvent[] = [];
  /** Ids of another process, or of an earlier run of this one, have no meaning here. */
  readonly #epoch = randomBytes(6).toString('base64url');
  #timer: NodeJS.Timeout | undefined;
  #asking: Promise<LiveSnapshot> | undefined;
  #askedAt = -Infinity;
  #last: LiveSnapshot | undefined;
  #picture: { readonly of: LiveSnapshot; readonly shown: Picture } | undefined;
  #shown = '';
  #count = 0;
  #isStopped = false;

  constructor(ask: () => Promise<LiveSnapshot>, everyMs: number, logger: Logger) {
    this.#ask = ask;
    this.#everyMs = everyMs;
    this.#logger = logger;
  }

  /** The number of streams that watch now. */
  get watchers(): number {
    return this.#listeners.size;
  }

  /** The picture in the form that is sent. */
  async picture(): Promise<Picture> {
    return this.#pictureOf(await this.snapshot());
  }

  /** The state of all queues and types, no older than one interval. Callers at the same time share one statement. */
  snapshot(): Promise<LiveSnapshot> {
    if (this.#last !== undefined && performance.now() - this.#askedAt < this.#everyMs)
      return Promise.resolve(this.#last);
    this.#asking ??= this.#refresh().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  /** Called after a change here: the next picture is read again. */
  expire(): void {
    this.#askedAt = -Infinity;
  }

  /**
   * Sends everything after `lastId`, or the whole picture if that id is unknown.
   * @returns a function that ends it
   */
  watch(lastId: string | undefined, listener: Listener): () => void {
    const [epoch, number] = lastId?.split(':') ?? [];
    const missed = epoch === this.#epoch ? this.#kept.filter(({ id }) => numberOf(id) > Number(number)) : [];
    const isKnown = epoch === this.#epoch && this.#kept.some(({ id }) => id === lastId);
    const latest = this.#kept.at(-1);
    for (const event of isKnown ? missed : latest === undefined ? [] : [latest]) listener(event);
    this.#listeners.add(listener);
    if (this.#timer === undefined && !this.#isStopped) this.#poll();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
    };
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    this.#listeners.clear();
  }

  #poll(): void {
    this.#timer = setTimeout(() => this.#poll(), this.#everyMs).unref();
    this.snapshot().then(
      (snapshot) => this.#show(snapshot),
      (error: unknown) => {
        this.#logger.warn({ err: error }, 'http: the live picture could not be read');
        this.#tell('trouble', JSON.stringify({ message: 'the database does not answer' }));
      },
    );
  }

  async #refresh(): Promise<LiveSnapshot> {
    const snapshot = await this.#ask();
    this.#askedAt = performance.now();
    this.#last = snapshot;
    if (this.#listeners.size > 0) this.#show(snapshot);
    return snapshot;
  }

  #pictureOf(snapshot: LiveSnapshot): Picture {
    if (this.#picture?.of !== snapshot) this.#picture = { of: snapshot, shown: pictureOf(snapshot) };
    return this.#picture.shown;
  }

  #show(snapshot: LiveSnapshot): void {
    const { at, ...rest } = this.#pictureOf(snapshot);
    const shown = JSON.stringify(rest);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#tell('snapshot', JSON.stringify({ at, ...rest }));
  }

  #tell(event: LiveEvent['event'], data: string): void {
    const told = { id: `${this.#epoch}:${(this.#count += 1)}`, event, data };
    if (event === 'snapshot') {
      this.#kept.push(told);
      if (this.#kept.length > KEPT) this.#kept.shift();
    } else {
      // The next picture counts as changed, whatever it shows.
      this.#shown = '';
    }
    for (const listener of this.#listeners) listener(told);
  }
}

function numberOf(id: string): number {
  return Number(id.slice(id.indexOf(':') + 1));
}
