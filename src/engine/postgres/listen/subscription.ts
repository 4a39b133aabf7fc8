/** What a subscriber asks for in addition to the notifications. */
export interface SubscribeOptions {
  /** Called after the connection was renewed: notifications that were sent meanwhile are lost, so search for work now. */
  onReconnect?: (() => void) | undefined;
  /**
   * Shows to notifiers whether any process listens: as long as the listening connection lives, it holds the session's shared
   * advisory lock on hashtextextended(channel, 0). Not for a connection through a pooler: there the lock would outlast the
   * connection.
   */
  isSeen?: boolean | undefined;
}

/** One handler on one channel. */
export interface Subscription {
  readonly channel: string;
  /**
   * True once a notification sent through the pool has arrived on the listening connection. False if it did not arrive, for
   * example behind a pooler in transaction mode. Null while that is not known. If false, only polling finds new work.
   */
  readonly reliable: boolean | null;
  /** Settles with the first verdict on `reliable`. A false verdict is checked again, more and more rarely. */
  readonly tested: Promise<boolean>;
  /** Settles once `reliable` is true; never if notifications do not arrive. */
  readonly arrived: Promise<void>;
  /** Ends the subscription; the end of the last one closes the connection. Safe to call twice. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
