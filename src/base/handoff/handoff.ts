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

/** Says that one unit may be handed to this worker, by a notification on its channel. */
export interface Offer {
  readonly worker: number;
  /** Rises with each offer of a worker. */
  readonly number: number;
  readonly channel: string;
}

/** A unit that a producer has claimed for a worker: the content of the notification. */
export interface Handoff {
  readonly worker: number;
  /** The number of the used offer. */
  readonly offer: number;
}

/** How many claims the database has given back that the worker did not know, and which of its offers are unused. */
export interface RecallResult {
  readonly lost: number;
  readonly offers: readonly number[];
}

/** Notifications on one channel. */
export interface HandoffSubscription {
  /** Settles once it is known that notifications arrive; that may never happen. */
  readonly arrived: Promise<void>;
  stop(): Promise<void>;
}

/** The statements of direct hand-off. */
export interface HandoffStore<H extends Handoff> {
  offer(offer: Offer): Promise<void>;
  /** Withdraws the offers that no producer is using at that moment. @returns their numbers */
  withdraw(worker: number): Promise<number[]>;
  /** Calls back with each unit that is handed over on this channel, and shows producers that the channel has a listener. */
  listenForHandoffs(
    channel: string,
    handlers: { readonly onHandoff: (handed: H) => void; readonly onReconnect: () => void },
  ): Promise<HandoffSubscription>;
}

/** The methods of direct hand-off for a claim loop. */
export interface HandoffPort {
  /** Makes offers once it is known that notifications arrive; `general` is the subscription that all workers share. */
  start(general: HandoffSubscription): void;
  /** The offer to send now, if there is one to make. It counts as sent. */
  nextOffer(): Offer | undefined;
  /** Called when the offer was not made, because there was work. */
  cancelOffer(offer: Offer): void;
  /** Sends an offer after a moment, if no settlement has carried one by then. */
  offerSoon(): void;
  /** Called when no slot is free: withdraws the offer, unless a producer is using it at that moment. */
  withdraw(): void;
  /** Whether an offer has been open for so long that its notification may have been lost. */
  isOverdue(ms: number): boolean;
  /**
   * Has the database give back claims that the worker does not know.
   * @param ask  sends the statement @returns true if no notification came during the recall; it would have been ignored
   */
  recall(ask: () => Promise<RecallResult>): Promise<boolean>;
  /** Called for every notification, whatever its content. */
  noteNotification(): void;
  /** The worker has a new id: the offers of the old one are void. */
  reset(): void;
  /** Makes no more offers; from now on, no notification counts. @returns whether an offer may have been used unnoticed */
  close(): boolean;
  stop(): Promise<void>;
}
