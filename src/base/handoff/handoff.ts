// Direct hand-off: a producer claims its own job for a worker that sleeps, and sends it along with the notification. That saves the
// worker a round trip and a commit. A worker with a free slot leaves an offer in the database, which is good for one job:
//
//              nextOffer()                    a notification names the offer
//      none ─────────────────▶ open ──────────────────────────────────────────▶ used: the worker takes the job, and none is open
//        ▲    cancelOffer()    │  ▲
//        ├─────────────────────┤  │ a producer was just using it
//        │     withdraw()      ▼  │
//        ├──────────────── withdrawing
//        │                     │
//        │      recall()       ▼  isOverdue(): no notification for half a poll, or the connection was renewed
//        └──────────────── overdue: the database gives back what the worker does not know, and says which offers are open
//
// A worker for which a recall finds a lost job is unreachable: it makes no offers until a notification arrives, on any channel.

/** One thing may be handed to this worker, by a notification on its channel. */
export interface Offer {
  readonly worker: number;
  /** Rises with each offer of a worker. */
  readonly number: number;
  readonly channel: string;
}

/** A unit that a producer has claimed for a worker, as the notification says. */
export interface Handoff {
  readonly worker: number;
  /** Which of its offers was used. */
  readonly offer: number;
}

/** How much the database has given back that the worker did not know, and which of its offers are unused. */
export interface RecallResult {
  readonly lost: number;
  readonly offers: readonly number[];
}

/** Notifications on one channel. */
export interface HandoffSubscription {
  /** Settles once it is known that they arrive; maybe never. */
  readonly arrived: Promise<void>;
  stop(): Promise<void>;
}

/** What is asked of the database. */
export interface HandoffStore<H extends Handoff> {
  offer(offer: Offer): Promise<void>;
  /** Takes back the offers that no producer is just using. @returns their numbers */
  withdraw(worker: number): Promise<number[]>;
  /** Calls back with what is handed over on this channel, and shows producers that it has a listener. */
  listenForHandoffs(
    channel: string,
    handlers: { readonly onHandoff: (handed: H) => void; readonly onReconnect: () => void },
  ): Promise<HandoffSubscription>;
}

/** What a claim loop asks of direct hand-off. */
export interface HandoffPort {
  /** Makes offers once it is known that notifications arrive; `general` is the subscription that every worker has. */
  start(general: HandoffSubscription): void;
  /** The offer to be sent now, if there is one to be made. It counts as sent. */
  nextOffer(): Offer | undefined;
  /** The offer was not made after all: there was work. */
  cancelOffer(offer: Offer): void;
  /** Sends an offer in a moment, if none has gone with a settlement by then. */
  offerSoon(): void;
  /** There is no free slot any more: takes the offer back, unless a producer is just using it. */
  withdraw(): void;
  /** Whether an offer has been open for so long that its notification may have been lost. */
  isOverdue(ms: number): boolean;
  /**
   * Has the database give back what the worker does not know.
   * @param ask  asks the database @returns whether no notification came meanwhile, which would have been ignored
   */
  recall(ask: () => Promise<RecallResult>): Promise<boolean>;
  /** A notification came, whatever it says. */
  noteNotification(): void;
  /** The worker has a new id: the offers of the old one are void. */
  reset(): void;
  /** No more offers, and no notification counts from now on. @returns whether any offer may have been used unnoticed */
  close(): boolean;
  stop(): Promise<void>;
}
