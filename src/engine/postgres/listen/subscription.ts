/** What a subscriber asks for in addition to the notifications. */
export interface SubscribeOptions {
  /** Called after the connection was renewed: whatever was sent meanwhile is gone, so look for work now. */
  onReconnect?: (() => void) | undefined;
  /**
   * Shows to those that would notify whether any process listens: as long as the listening connection lives, it holds the session's
   * shared advisory lock on hashtextextended(channel, 0). Not for a connection through a pooler: there it would outlast it.
   */
  isSeen?: boolean | undefined;
}

/** One handler on one channel. */
export interface Subscription {
  readonly channel: string;
  /**
   * True once a notification sent through the pool arrived on the listening connection, false when it did not (behind
   * a pooler in transaction mode, say), null while not yet known. When false, polling alone finds new work.
   */
  readonly reliable: boolean | null;
  /** Settles with the first verdict on `reliable`. One that is false is looked at again, more and more rarely. */
  readonly tested: Promise<boolean>;
  /** Settles once `reliable` was true, and never where notifications do not arrive. */
  readonly arrived: Promise<void>;
  /** Ends the subscription; the last one closes the connection. Safe to call twice. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
