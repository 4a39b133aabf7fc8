import { probe } from '../probe.ts';
import { after } from '../time/clock.ts';
import type { Handoff, HandoffPort, HandoffStore, HandoffSubscription, Offer, RecallResult } from './handoff.ts';

export interface DirectHandoffOptions<H extends Handoff> {
  /** `queue`, in the names of probes. */
  readonly name: string;
  readonly store: HandoffStore<H>;
  /** The worker's id, while it has one. */
  readonly worker: () => number | undefined;
  /** Whether it would begin something now, if it were handed that. */
  readonly isFree: () => boolean;
  /** Called once for each offer that was used, unless what was handed over is given back by a recall. */
  readonly onHandoff: (handed: H) => void;
  readonly onError: (error: unknown) => void;
}

/** An offer that no settlement took along by then is sent by itself. */
const OFFER_DELAY_MS = 5;

/**
 * The offers of one worker: one at a time, each good for one job or actor, so that a worker that does not hear any more is handed
 * one and not all. What it is handed comes on a channel of its own, whose name is a secret: any role may listen.
 *
 * A notification is believed only while its offer is open here. So what was not heard of in time, and given back by a
 * recall, is not begun when it is heard of after all.
 */
export class DirectHandoff<H extends Handoff> implements HandoffPort {
  readonly #options: DirectHandoffOptions<H>;
  readonly #channel = `pawl_${crypto.randomUUID()}`;
  /** Numbers of offers that were sent, and of which nobody knows that they were used or taken back. */
  readonly #open = new Set<number>();
  #number = 0;
  /** When an offer was sent, or asked after. */
  #askedAt = -Infinity;
  #subscription: HandoffSubscription | undefined;
  /** Something was handed over, and not heard of: no more offers until something is heard. */
  #isUnreachable = false;
  /** How often the connection was renewed: what was sent on the one before is gone, and says nothing of this one. */
  #reconnects = 0;
  /** How many of them had been when that was asked for which the last recall got an answer. */
  #recalledReconnects = 0;
  /** Up to here it was tried to take them back; again only when a recall finds one that is left. */
  #withdrawn = 0;
  #isRecalling = false;
  /** Something was heard during a recall. */
  #hasMissed = false;
  #isClosed = false;
  #cancelTimer: (() => void) | undefined;

  constructor(options: DirectHandoffOptions<H>) {
    this.#options = options;
  }

  /** Makes offers once it is known that notifications arrive; `general` is the subscription that everybody has. */
  start(general: HandoffSubscription): void {
    this.#subscribe(general).catch(this.#options.onError);
  }

  async #subscribe(general: HandoffSubscription): Promise<void> {
    // Behind a pooler nothing would arrive, and the lock that shows that somebody listens would stay there for ever.
    await general.arrived;
    if (this.#isClosed) return;
    const subscription = await this.#options.store.listenForHandoffs(this.#channel, {
      onHandoff: (handed) => this.#receive(handed),
      onReconnect: () => this.#onReconnect(),
    });
    this.#subscription = subscription;
    if (this.#isClosed) await subscription.stop();
    else this.offerSoon();
  }

  /** The offer to be sent now, if there is one to be made. It counts as sent. */
  nextOffer(): Offer | undefined {
    if (this.#open.size > 0 || this.#isUnreachable || this.#isClosed || this.#subscription === undefined)
      return undefined;
    const worker = this.#options.worker();
    if (worker === undefined || !this.#options.isFree()) return undefined;
    this.#number += 1;
    this.#open.add(this.#number);
    this.#askedAt = performance.now();
    return { worker, number: this.#number, channel: this.#channel };
  }

  /** It was not made after all: there was work. */
  cancelOffer(offer: Offer): void {
    this.#open.delete(offer.number);
  }

  /** Sends one in a moment, if none has gone with a settlement by then. */
  offerSoon(): void {
    if (this.#subscription === undefined || this.#cancelTimer !== undefined) return;
    const send = (): void => {
      this.#cancelTimer = undefined;
      const offer = this.nextOffer();
      if (offer !== undefined) this.#options.store.offer(offer).catch(this.#options.onError);
    };
    this.#cancelTimer = after(OFFER_DELAY_MS, send, { unref: true });
  }

  /** There is no room any more: what was offered is taken back, unless it is being used just now. */
  withdraw(): void {
    if (this.#open.size > 0 && this.#withdrawn < this.#number) this.#withdrawAll();
  }

  /** Whether an offer has been open for so long that its notification may have been lost. */
  isOverdue(ms: number): boolean {
    return (
      this.#open.size > 0 && (this.#reconnects > this.#recalledReconnects || performance.now() - this.#askedAt > ms)
    );
  }

  /**
   * Has the database give back what the worker does not know of. Meanwhile nothing that is heard is believed, since it may be
   * given back just then; afterwards only of offers that are still open. With no answer none of them counts any more.
   * @returns whether nothing was missed by that
   */
  async recall(ask: () => Promise<RecallResult>): Promise<boolean> {
    const asked = [...this.#open];
    this.#open.clear();
    const reconnects = this.#reconnects;
    this.#isRecalling = true;
    this.#hasMissed = false;
    try {
      const { lost, offers } = await ask();
      for (const number of asked) if (offers.includes(number)) this.#open.add(number);
      // Those that it has given up; and those that were not there yet, or just in use, when it tried to take them back.
      if (offers.some((number) => !this.#open.has(number) || number <= this.#withdrawn)) this.#withdrawAll();
      // A renewal counts that came while the database was asked, too, or before a question that got no answer.
      this.#isUnreachable = lost > 0 && !this.#hasMissed && this.#reconnects === this.#recalledReconnects;
      this.#recalledReconnects = reconnects;
      this.#askedAt = performance.now();
      return !this.#hasMissed;
    } finally {
      this.#isRecalling = false;
    }
  }

  /** A notification came, whatever it says. */
  noteNotification(): void {
    this.#isUnreachable = false;
  }

  /** The worker has a new id: what was offered under the old one is void. */
  reset(): void {
    this.#open.clear();
  }

  /** No more offers, and nothing that is heard from now on counts. @returns whether any may have been used unheard */
  close(): boolean {
    this.#isClosed = true;
    this.#cancelTimer?.();
    const isOpen = this.#open.size > 0;
    this.#open.clear();
    return isOpen;
  }

  async stop(): Promise<void> {
    this.close();
    await this.#subscription?.stop();
  }

  #withdrawAll(): void {
    const { store, worker, onError } = this.#options;
    const id = worker();
    if (id === undefined) return;
    this.#withdrawn = this.#number;
    store.withdraw(id).then((numbers) => {
      for (const number of numbers) this.#open.delete(number);
      // There may be room again by now, and nothing else would make an offer before the next look.
      this.offerSoon();
    }, onError);
  }

  /** What was sent meanwhile is gone. The worker looks around now, and asks for it, too. */
  #onReconnect(): void {
    this.#isUnreachable = false;
    this.#reconnects += 1;
  }

  #receive(handed: H): void {
    this.#isUnreachable = false;
    if (this.#isRecalling) this.#hasMissed = true;
    const { worker, offer } = handed;
    if (!this.#open.delete(offer)) return;
    if (probe.listening) probe.hit(`${this.#options.name}.handed`, { worker, offer });
    this.#options.onHandoff(handed);
  }
}
