import { randomUUID } from 'node:crypto';
import { after } from '../base/clock.ts';
import { probe } from '../base/probe.ts';
import type { Subscription } from '../engine/postgres/index.ts';
import type { PostgresQueueStore } from './postgres.ts';
import type { HandedOver, Offer, Recalled } from './store.ts';

export interface OffersOptions {
  readonly store: PostgresQueueStore;
  readonly queue: number;
  /** The worker's id, while it has one. */
  readonly worker: () => number | undefined;
  /** Whether it would begin a job now, if it were handed one. */
  readonly isFree: () => boolean;
  /** Called once for each offer that was used, unless the job is given back by a recall. */
  readonly onHanded: (job: HandedOver) => void;
  readonly onError: (error: unknown) => void;
}

/** An offer that no settlement took along by then is sent by itself. */
const LATER_MS = 5;

/**
 * The offers of one worker: one at a time, each good for one job, so that a worker that does not hear any more is handed
 * one and not all. What it is handed comes on a channel of its own, whose name is a secret: any role may listen.
 *
 * A notification is believed only while its offer is open here. So a job that was not heard of in time, and given back by a
 * recall, is not begun when it is heard of after all.
 */
export class Offers {
  readonly #options: OffersOptions;
  readonly #channel = `pawl_${randomUUID()}`;
  /** Numbers of offers that were sent, and of which nobody knows that they were used or taken back. */
  readonly #open = new Set<number>();
  #number = 0;
  /** When an offer was sent, or asked after. */
  #askedAt = -Infinity;
  #subscription: Subscription | undefined;
  /** A job was handed over, and not heard of: no more offers until something is heard. */
  #isDeaf = false;
  /** What was sent on the connection before is gone, and says nothing of this one. */
  #isReconnected = false;
  /** Up to here it was tried to take them back. Once is enough: what is handed over all the same is given back. */
  #withdrawn = 0;
  #isRecalling = false;
  /** Something was heard during a recall. */
  #hasMissed = false;
  #isClosed = false;
  #cancelLater: (() => void) | undefined;

  constructor(options: OffersOptions) {
    this.#options = options;
  }

  /** Makes offers once it is known that notifications arrive; `general` is the subscription that everybody has. */
  async start(general: Subscription): Promise<void> {
    // Behind a pooler nothing would arrive, and the lock that shows that somebody listens would stay there for ever.
    if (!(await general.tested) || this.#isClosed) return;
    const subscription = await this.#options.store.hear(this.#channel, {
      heard: (job) => this.#heard(job),
      onReconnect: () => this.#onReconnect(),
    });
    this.#subscription = subscription;
    if (this.#isClosed) await subscription.stop();
    else this.later();
  }

  /** The offer to be sent now, if there is one to be made. It counts as sent. */
  next(): Offer | undefined {
    if (this.#open.size > 0 || this.#isDeaf || this.#isClosed || this.#subscription === undefined) return undefined;
    const worker = this.#options.worker();
    if (worker === undefined || !this.#options.isFree()) return undefined;
    this.#number += 1;
    this.#open.add(this.#number);
    this.#askedAt = performance.now();
    return { queue: this.#options.queue, worker, number: this.#number, channel: this.#channel };
  }

  /** It was not made after all: there was work. */
  unsent(offer: Offer): void {
    this.#open.delete(offer.number);
  }

  /** Sends one in a moment, if none has gone with a settlement by then. */
  later(): void {
    if (this.#subscription === undefined || this.#cancelLater !== undefined) return;
    const send = (): void => {
      this.#cancelLater = undefined;
      const offer = this.next();
      if (offer !== undefined) this.#options.store.offer(offer).catch(this.#options.onError);
    };
    this.#cancelLater = after(LATER_MS, send, { unref: true });
  }

  /** There is no room any more: what was offered is taken back, unless it is being used just now. */
  withdraw(): void {
    if (this.#open.size > 0 && this.#withdrawn < this.#number) this.#takeBack();
  }

  /** Whether an offer has been open for so long that its notification may have been lost. */
  isOverdue(ms: number): boolean {
    return this.#open.size > 0 && (this.#isReconnected || performance.now() - this.#askedAt > ms);
  }

  /**
   * Has the database give back what the worker does not know of. Meanwhile nothing that is heard is believed, since it may be
   * given back just then; afterwards only of offers that are still open. With no answer none of them counts any more.
   * @returns whether nothing was missed by that
   */
  async recall(ask: () => Promise<Recalled>): Promise<boolean> {
    const asked = [...this.#open];
    this.#open.clear();
    const isReconnected = this.#isReconnected;
    this.#isReconnected = false;
    this.#isRecalling = true;
    this.#hasMissed = false;
    try {
      const { jobs, offers } = await ask();
      for (const number of asked) if (offers.includes(number)) this.#open.add(number);
      if (offers.some((number) => !this.#open.has(number))) this.#takeBack();
      this.#isDeaf = jobs > 0 && !this.#hasMissed && !isReconnected;
      this.#askedAt = performance.now();
      return !this.#hasMissed;
    } finally {
      this.#isRecalling = false;
    }
  }

  /** A notification came, whatever it says. */
  noteHearing(): void {
    this.#isDeaf = false;
  }

  /** The worker has a new id: what was offered under the old one is void. */
  restart(): void {
    this.#open.clear();
  }

  /** No more offers, and nothing that is heard from now on counts. @returns whether any may have been used unheard */
  close(): boolean {
    this.#isClosed = true;
    this.#cancelLater?.();
    const isOpen = this.#open.size > 0;
    this.#open.clear();
    return isOpen;
  }

  async stop(): Promise<void> {
    this.close();
    await this.#subscription?.stop();
  }

  #takeBack(): void {
    const { store, queue, worker, onError } = this.#options;
    const id = worker();
    if (id === undefined) return;
    this.#withdrawn = this.#number;
    store.withdraw(queue, id).then((numbers) => {
      for (const number of numbers) this.#open.delete(number);
    }, onError);
  }

  /** What was sent meanwhile is gone. The worker looks around now, and asks for it, too. */
  #onReconnect(): void {
    this.#isDeaf = false;
    this.#isReconnected = true;
  }

  #heard(job: HandedOver): void {
    this.#isDeaf = false;
    if (this.#isRecalling) this.#hasMissed = true;
    if (!this.#open.delete(job.offer)) return;
    if (probe.listening) probe.hit('queue.handed', { worker: job.worker, offer: job.offer });
    this.#options.onHanded(job);
  }
}
