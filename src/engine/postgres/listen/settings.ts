import type pg from 'pg';
import type { Logger } from '../../../base/logger.ts';

/** What a listener needs from its engine. */
export interface ListenerSettings {
  settings: pg.ClientConfig;
  /** Of the hash of a channel, for the lock that shows that a process listens: {@link SchemaName.seed}. */
  seed: string;
  /** False: no subscription gets notifications. */
  enabled: boolean;
  logger: Logger;
  /** Sends an empty notification through the pool, as all other notifications are sent. */
  notify: (channel: string) => Promise<void>;
  timing?: Partial<ListenerTiming>;
}

/** All in milliseconds. */
export interface ListenerTiming {
  /** First and longest wait before a new connection is tried. */
  backoff: [number, number];
  /** How often the connection is checked, and how long it may take to answer. */
  checkEvery: number;
  checkTimeout: number;
  /** How long a probe may take to arrive, once it was sent. */
  probeTimeout: number;
}

/** A promise and the function that settles it. */
export interface ManualPromise<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
}

/** Makes a promise that is settled from outside; settling it twice does nothing. */
export function deferred<T>(): ManualPromise<T> {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}
