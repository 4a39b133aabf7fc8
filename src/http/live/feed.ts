import { Lazy } from '../../base/lazy.ts';
import type { Logger } from '../../base/logger.ts';
import { after } from '../../base/time/clock.ts';
import { readCursor, writeCursor } from '../protocol/cursor.ts';
import { type HistoryEvent, type HistoryPlace, type HistoryStore, placeOf } from '../store/history.ts';

/** How often new events are searched for. */
const LOOK_MS = 1000;
/** Events that are committed this long after their time are still sent: a transaction is dated while it runs. */
const OVERLAP_MS = 15_000;
/** If a stream was away for longer, it gets a gap, and continues from the present. */
const MOST_BEHIND_MS = 3_600_000;
const PAGE = 500;
/** The most events of one poll, or of one return. If there are more, the oldest are left out, and a gap is sent. */
const MOST = 5000;

/** The part of the history that one statement reads. */
export interface Subject {
  readonly part: HistoryEvent['part'] | undefined;
  readonly subject: string | undefined;
}

export interface FeedEvent {
  readonly id?: string;
  readonly event: 'open' | 'change' | 'gap' | 'trouble';
  readonly data: string;
}

/** @param isWhole  false: there were more events than one poll reads, and the oldest are not among these */
type Tell = (events: readonly HistoryEvent[], isWhole: boolean) => void;

/**
 * Events as they happen. For each watched subject, the history is read once a second for all of its streams. Events are sent in
 * the order in which they are found, each once while a stream lasts. A stream that returns with an id gets everything from
 * shortly before that id, so nothing is left out, and some events come twice.
 */
export class Feeds {
  readonly #store: HistoryStore;
  readonly #logger: Logger;
  readonly #feeds = new Map<string, Feed>();

  constructor(store: HistoryStore, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /**
   * @param end  called if the database does not answer at the beginning: the client then comes back with the same id
   * @returns a function that ends it
   */
  watch(
    subject: Subject,
    isWanted: (event: HistoryEvent) => boolean,
    lastId: string | undefined,
    send: (event: FeedEvent) => void,
    end: () => void,
  ): () => void {
    const key = JSON.stringify([subject.part ?? null, subject.subject ?? null]);
    const feed = this.#feeds.get(key) ?? new Feed(this.#store, subject, this.#logger);
    this.#feeds.set(key, feed);
    const reader = new Reader(feed, isWanted, send);
    const leave = feed.join(reader.tell);
    void reader.begin(lastId).catch((error: unknown) => {
      this.#logger.warn({ err: error }, 'http: the missed events of a stream could not be read');
      send({ event: 'trouble', data: JSON.stringify({ message: 'the database does not answer' }) });
      end();
    });
    return () => {
      leave();
      if (feed.isIdle && this.#feeds.get(key) === feed) this.#feeds.delete(key);
    };
  }

  stop(): void {
    for (const feed of this.#feeds.values()) feed.stop();
    this.#feeds.clear();
  }
}

/** One statement a second, for all streams that watch the same. */
class Feed {
  readonly #store: HistoryStore;
  readonly #subject: Subject;
  readonly #logger: Logger;
  readonly #readers = new Set<Tell>();
  /** The events of the last moments that were sent, by id, with their time. */
  #seen = new Map<string, number>();
  #latest = 0;
  #cancel: (() => void) | undefined;
  readonly #beginning: Lazy<void> = new Lazy(() => this.#start());

  constructor(store: HistoryStore, subject: Subject, logger: Logger) {
    this.#store = store;
    this.#subject = subject;
    this.#logger = logger;
  }

  get isIdle(): boolean {
    return this.#readers.size === 0;
  }

  join(tell: Tell): () => void {
    this.#readers.add(tell);
    return () => {
      this.#readers.delete(tell);
      if (this.isIdle) this.#cancel?.();
    };
  }

  stop(): void {
    this.#readers.clear();
    this.#cancel?.();
  }

  /** Sends everything from now on, and nothing from before. */
  begin(): Promise<void> {
    return this.#beginning.get();
  }

  /** The events since then, oldest first, and whether these are all of them. */
  async since(at: number): Promise<{ events: HistoryEvent[]; isAll: boolean }> {
    const events: HistoryEvent[] = [];
    let place: HistoryPlace | undefined;
    while (events.length < MOST) {
      const page = await this.#store.list({
        since: new Date(at),
        until: FAR,
        ...this.#subject,
        word: undefined,
        withAudit: false,
        withErrors: false,
        after: place,
        limit: PAGE,
      });
      events.push(...page);
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) return { events: events.toReversed(), isAll: true };
      place = placeOf(last);
    }
    return { events: events.toReversed(), isAll: false };
  }

  async #start(): Promise<void> {
    this.#latest = await this.#store.now();
    this.#remember((await this.since(this.#latest - OVERLAP_MS)).events);
    this.#lookIn(LOOK_MS);
  }

  #lookIn(ms: number): void {
    if (!this.isIdle) this.#cancel = after(ms, () => void this.#look(), { unref: true });
  }

  async #look(): Promise<void> {
    const begun = performance.now();
    try {
      const { events, isAll } = await this.since(this.#latest - OVERLAP_MS);
      const fresh = events.filter((event) => !this.#seen.has(idOf(event)));
      // An event that was seen before has none behind it that was not.
      const isWhole = isAll || fresh[0] !== events[0];
      this.#remember(events);
      if (fresh.length > 0) for (const tell of this.#readers) tell(fresh, isWhole);
    } catch (error) {
      this.#logger.warn({ err: error }, 'http: new events could not be read');
    }
    // A slow statement is sent less often.
    this.#lookIn(Math.max(LOOK_MS, (performance.now() - begun) * 4));
  }

  #remember(events: readonly HistoryEvent[]): void {
    for (const event of events) {
      const at = Date.parse(event.at);
      this.#latest = Math.max(this.#latest, at);
      this.#seen.set(idOf(event), at);
    }
    const past = this.#latest - 2 * OVERLAP_MS;
    this.#seen = new Map([...this.#seen].filter(([, at]) => at >= past));
  }
}

const GAP: FeedEvent = { event: 'gap', data: JSON.stringify({ message: 'some events were missed: see GET history' }) };
/** No event has a later date. */
const FAR = new Date('9999-12-31T00:00:00Z');

/** One stream. */
class Reader {
  readonly #feed: Feed;
  readonly #isWanted: (event: HistoryEvent) => boolean;
  readonly #send: (event: FeedEvent) => void;
  #told: Set<string> | undefined = new Set();
  /** Events that come while the missed ones are still read. */
  #waiting: HistoryEvent[] | undefined = [];

  constructor(feed: Feed, isWanted: (event: HistoryEvent) => boolean, send: (event: FeedEvent) => void) {
    this.#feed = feed;
    this.#isWanted = isWanted;
    this.#send = send;
  }

  readonly tell: Tell = (events, isWhole): void => {
    if (!isWhole) this.#send(GAP);
    if (this.#waiting === undefined) this.#pass(events);
    else this.#waiting.push(...events);
  };

  async begin(lastId: string | undefined): Promise<void> {
    // First the feed, then the missed events: events between the two are in both.
    await this.#feed.begin();
    this.#send({ event: 'open', data: '{}' });
    if (lastId !== undefined) await this.#catchUp(lastId);
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    this.#pass(waiting);
    this.#told = undefined; // the feed sends no event twice
  }

  async #catchUp(lastId: string): Promise<void> {
    const at = timeOf(lastId);
    const from = Math.max(at, Date.now() - MOST_BEHIND_MS);
    const { events, isAll } = await this.#feed.since(from - OVERLAP_MS);
    if (!isAll || from > at) {
      this.#send(GAP);
    }
    this.#pass(events.filter((event) => idOf(event) !== lastId));
  }

  #pass(events: readonly HistoryEvent[]): void {
    for (const event of events) {
      const id = idOf(event);
      if (this.#told?.has(id) === true || !this.#isWanted(event)) continue;
      this.#told?.add(id);
      // The words of an event may quote values, which not every caller may see; GET history has them for callers that may.
      const { detail: _detail, error: _error, place: _place, ...shown } = event;
      this.#send({ id, event: 'change', data: JSON.stringify(shown) });
    }
  }
}

function idOf(event: HistoryEvent): string {
  return writeCursor(...placeOf(event));
}

/** @throws InvalidInput  it is no id of an event */
export function timeOf(lastId: string): number {
  const [at = ''] = readCursor(lastId, 5) ?? [];
  const time = Date.parse(at);
  return Number.isNaN(time) ? 0 : time;
}
