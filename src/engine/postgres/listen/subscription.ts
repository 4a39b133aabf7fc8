import type pg from 'pg';
import type { Logger } from '../../../base/logger.ts';

/** What a subscriber wants beside the notifications. */
export interface SubscribeOptions {
  /** Called after the connection was renewed: whatever was sent meanwhile is gone, so look for work now. */
  onReconnect?: () => void;
  /**
   * Lets whoever would notify see whether anybody hears it: as long as the listening connection lives, it holds the session's
   * shared advisory lock on hashtextextended(channel, 0). Not for a connection through a pooler: there it would outlast it.
   */
  isSeen?: boolean;
}

/** One handler on one channel. */
export interface Subscription {
  readonly channel: string;
  /**
   * True once a notification sent through the pool arrived on the listening connection, false when it did not (behind
   * a pooler in transaction mode, say), undefined while not yet known. When false, polling alone finds new work.
   */
  readonly reliable: boolean | undefined;
  /** Settles with the first verdict on `reliable`. One that is false is looked at again, more and more rarely. */
  readonly tested: Promise<boolean>;
  /** Settles once `reliable` was true, and never where notifications do not arrive. */
  readonly arrived: Promise<void>;
  /** Ends the subscription; the last one closes the connection. Safe to call twice. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** What a listener needs from its engine. */
export interface ListenerSettings {
  settings: pg.ClientConfig;
  /** False: every subscription is a silent one. */
  enabled: boolean;
  logger: Logger;
  /** Sends an empty notification the way everybody else does: through the pool. */
  notify: (channel: string) => Promise<void>;
  timing?: Partial<ListenerTiming>;
}

/** All in milliseconds. */
export interface ListenerTiming {
  /** First and longest wait before a new connection is tried. */
  backoff: [number, number];
  /** How often the connection is asked whether it still lives, and how long it may take to answer. */
  checkEvery: number;
  checkTimeout: number;
  /** How long the probe may travel, once it was sent. */
  probeTimeout: number;
}

/** A promise and the function that settles it. */
export interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
}

/** Makes a promise that is settled from outside; settling it twice does nothing. */
export function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
