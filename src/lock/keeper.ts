import { LeaseLost } from '../base/errors.ts';
import { type Renewal, startRenewal } from '../base/renewal.ts';
import { after, type Moment, moment, ownedFor } from '../base/time/clock.ts';
import { describe } from './name.ts';
import type { GrantKey, LockStore } from './store.ts';

/** A lock to keep, and how. */
export interface KeepOptions {
  readonly grant: GrantKey;
  /** Infinity: there is no lease to renew, and the keeper only checks whether the lock was broken. */
  readonly leaseMs: number;
  readonly everyMs: number | undefined;
  /** A moment before the request for the lock was sent. */
  readonly since: Moment;
  /** The length of the first lease, from `since`. */
  readonly firstMs: number;
  /** Called once, when the lock is lost. */
  readonly onLost: (reason: LeaseLost) => void;
}

/** A lock that is kept until it is stopped or lost: the interface of {@link Renewal}, also for locks without a lease. */
export type LockRenewal = Pick<Renewal, 'signal' | 'remainingMs' | 'ageMs' | 'renewed' | 'lose' | 'stop'>;

interface Entry {
  readonly grant: GrantKey;
  readonly everyMs: number;
  /** How long a renewal may take so that there is time for a second try. */
  readonly patienceMs: number;
  readonly renewal: LockRenewal;
}

/** The outcome for each entry of one statement. */
type RenewalOutcomes = ReadonlyMap<Entry, RenewalOutcome>;
type RenewalOutcome = 'renewed' | 'lost' | { readonly error: unknown };

// How often a lock without a lease is checked. Only the news that it was broken can come this late, if its notice was lost.
const CHECK_MS = 10_000;

// Names per statement: about half a second of one connection (54 µs a name, Postgres 18, 2 cores), a fraction of a
// statement's timeout.
const MOST_AT_ONCE = 10_000;
// Statements at a time: the engine reserves as many connections outside of the pool for them.
const LANES = 2;

/** Renews all locks that this process holds on one engine: one statement per interval and 10,000 names. */
export class Keeper {
  readonly #store: LockStore;
  readonly #entries = new Map<string, Entry>();
  readonly #due = new Set<Entry>();
  #next: Promise<void> | undefined;
  /** Renewals that are under way or about to be sent. */
  readonly #sending = new Map<Entry, Promise<RenewalOutcomes>>();

  constructor(store: LockStore) {
    this.#store = store;
  }

  /** The number of kept locks. */
  get size(): number {
    return this.#entries.size;
  }

  /** Keeps a lock from now on. Stop it before the lock is released. */
  keep(options: KeepOptions): LockRenewal {
    const { grant, leaseMs, since, firstMs, onLost } = options;
    const everyMs = options.everyMs ?? leaseMs / 3;
    const beat = (): Promise<'renewed' | LeaseLost> => this.#renewEntry(grant.nonce);
    const renewal =
      leaseMs === Infinity
        ? new BreakWatch(since, beat, onLost)
        : startRenewal({
            // A getter, so that the text is made only for a message.
            get what() {
              return describe(grant.names);
            },
            leaseMs,
            everyMs,
            since,
            firstMs,
            unref: true,
            beat,
            onLost,
          });
    this.#entries.set(grant.nonce, {
      grant,
      everyMs: Math.min(everyMs, CHECK_MS),
      patienceMs: Math.min(everyMs, firstMs / 3),
      renewal,
    });
    return renewal;
  }

  /** Called when a renewal is stopped: the lock is no longer renewed with others. */
  forget(grant: GrantKey): void {
    this.#entries.delete(grant.nonce);
  }

  /** Called when the lock with this token was broken. */
  onLost(token: string): void {
    for (const entry of this.#entries.values()) if (String(entry.grant.token) === token) this.#lose(entry);
  }

  /** A due renewal takes along all that would be due soon: so all leases of one length come to be renewed together. */
  async #renewEntry(nonce: string): Promise<'renewed' | LeaseLost> {
    const entry = this.#entries.get(nonce);
    // It was released meanwhile: nothing uses the answer.
    if (entry === undefined) return 'renewed';
    if (!this.#sending.has(entry)) await this.#join(entry);
    const fate = (await this.#sending.get(entry))?.get(entry);
    if (fate instanceof Object) throw fate.error;
    return fate === 'renewed' ? fate : this.#whyLost(entry.grant);
  }

  /** Entries that are due in the same turn of the event loop share one statement. */
  #join(entry: Entry): Promise<void> {
    this.#due.add(entry);
    this.#next ??= nextTurnOfEventLoop().then(() => this.#send());
    return this.#next;
  }

  #send(): void {
    const isDue = (entry: Entry): boolean => this.#due.has(entry) || entry.renewal.ageMs() >= entry.everyMs / 2;
    const entries = [...this.#entries.values()].filter((entry) => !this.#sending.has(entry) && isDue(entry));
    this.#next = undefined;
    this.#due.clear();
    const lanes = Array.from({ length: LANES }, () => Promise.resolve());
    for (const [nth, piece] of batchesOf(entries).entries()) {
      const before = lanes[nth % LANES] ?? Promise.resolve();
      const fates = nth < LANES ? this.#renew(piece) : before.then(() => this.#renew(piece));
      for (const entry of piece) this.#sending.set(entry, fates);
      const end = (): void => {
        for (const entry of piece) this.#sending.delete(entry);
      };
      lanes[nth % LANES] = fates.then(end, end);
    }
  }

  /** A renewed lease counts from before the statement was sent. */
  async #renew(due: readonly Entry[]): Promise<RenewalOutcomes> {
    // A lease that has run out is lost, even if its timer has not fired yet.
    const entries = due.filter((entry) => entry.renewal.remainingMs() > 0);
    if (entries.length === 0) return new Map();
    const timeoutMs = entries.reduce((least, entry) => Math.min(least, entry.patienceMs), CHECK_MS);
    const sentAt = moment();
    const { renewed, unknown } = await this.#store.renew(
      entries.map((entry) => entry.grant),
      { timeoutMs },
    );
    const fates = new Map<Entry, RenewalOutcome>();
    for (const [index, entry] of entries.entries()) {
      if (unknown.has(index)) fates.set(entry, { error: unknown.get(index) });
      else fates.set(entry, renewed.has(index) ? 'renewed' : 'lost');
      if (renewed.has(index)) entry.renewal.renewed(sentAt);
      else if (!unknown.has(index) && this.#entries.has(entry.grant.nonce)) this.#lose(entry);
    }
    return fates;
  }

  #lose({ grant, renewal }: Entry): void {
    void this.#whyLost(grant).then((reason) => renewal.lose(reason));
  }

  /** Asks how the lock was lost, with a short timeout: the loss itself must be reported at once. */
  async #whyLost(grant: GrantKey): Promise<LeaseLost> {
    const past = await this.#store.howEnded(grant, { timeoutMs: 1000, isUrgent: true }).catch(() => undefined);
    return lossOf(grant, past?.outcome, past?.reason ?? undefined);
  }
}

/** Batches of at most so many names, except for a set that alone has more. */
function batchesOf(entries: readonly Entry[]): Entry[][] {
  const pieces: Entry[][] = [];
  let left = 0;
  for (const entry of entries) {
    const { length } = entry.grant.names;
    if (left < length) {
      pieces.push([]);
      left = MOST_AT_ONCE;
    }
    pieces.at(-1)?.push(entry);
    left -= length;
  }
  return pieces;
}

/** The error for a lock that the store says is no longer held. */
export function lossOf(grant: GrantKey, outcome: string | undefined, reason: string | undefined): LeaseLost {
  const what = describe(grant.names);
  if (outcome === 'broken') {
    return new LeaseLost(`${what} was broken: ${reason ?? 'no reason given'}; stop working on it`, {
      reason: 'broken',
    });
  }
  return new LeaseLost(`${what} is no longer held with token ${grant.token}: its lease ran out; stop working on it`);
}

function nextTurnOfEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Watches a lock without a lease: it is lost only when the store says so, never by lack of an answer. */
class BreakWatch implements LockRenewal {
  readonly #lost = new AbortController();
  readonly #beat: () => Promise<'renewed' | LeaseLost>;
  readonly #onLost: (reason: LeaseLost) => void;
  #checkedAt: Moment;
  #cancel = (): void => {};
  #isStopped = false;

  constructor(since: Moment, beat: () => Promise<'renewed' | LeaseLost>, onLost: (reason: LeaseLost) => void) {
    this.#checkedAt = since;
    this.#beat = beat;
    this.#onLost = onLost;
    this.#schedule();
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  remainingMs(): number {
    return this.#lost.signal.aborted ? 0 : Infinity;
  }

  ageMs(): number {
    return ownedFor(this.#checkedAt);
  }

  renewed(sentAt: Moment): void {
    this.#checkedAt = sentAt;
    if (!this.#isStopped) this.#schedule();
  }

  lose(reason: LeaseLost): void {
    if (this.#isStopped) return;
    void this.stop();
    this.#onLost(reason);
    this.#lost.abort(reason);
  }

  stop(): Promise<void> {
    this.#isStopped = true;
    this.#cancel();
    return Promise.resolve();
  }

  #schedule(): void {
    this.#cancel();
    this.#cancel = after(CHECK_MS, () => void this.#check(), { unref: true });
  }

  async #check(): Promise<void> {
    try {
      const answer = await this.#beat();
      if (answer instanceof LeaseLost) this.lose(answer);
    } catch {
      // The state is unknown; the lock counts as held.
    }
    if (!this.#isStopped) this.#schedule();
  }
}
