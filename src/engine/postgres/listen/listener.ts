import { randomUUID } from 'node:crypto';
import { InvalidInput, Stopped } from '../../../base/errors.ts';
import { within } from '../../../base/time/clock.ts';
import { failure, isTransient } from '../failure.ts';
import { type ListenConnection, type ListenConnectionEvents, openListenConnection } from './listen-connection.ts';
import { deferred, type ListenerSettings, type ListenerTiming } from './settings.ts';
import type { SubscribeOptions, Subscription } from './subscription.ts';

// A half-open socket stays silent for hours; a check every 30 s costs one round trip.
const TIMING: ListenerTiming = {
  backoff: [100, 10_000],
  checkEvery: 30_000,
  checkTimeout: 10_000,
  probeTimeout: 2_000,
};

const UNLISTEN_MS = 1_000;
/** After failed probes, one probe in this many checks of the connection is still sent: one every 16 minutes. */
const RAREST = 32;

interface Subscriber {
  readonly channel: string;
  readonly handler: (payload: string) => void;
  readonly onReconnect: (() => void) | undefined;
  readonly isSeen: boolean;
}

/** All channels of one engine on one connection outside the pool, which stays open as long as there is a subscriber. */
export class Listener {
  readonly #given: ListenerSettings;
  readonly #timing: ListenerTiming;
  readonly #subscribers = new Set<Subscriber>();
  readonly #tested = deferred<boolean>();
  readonly #arrived = deferred<void>();
  #reliable: boolean | undefined;
  #connection: ListenConnection | undefined;
  #connecting: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;
  #failures = 0;
  #stopped = false;
  /** Aborted when the last subscriber has left: a connection that is still being opened is not needed then. */
  #opening = new AbortController();

  constructor(given: ListenerSettings) {
    this.#given = given;
    this.#timing = { ...TIMING, ...given.timing };
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /**
   * Resolves once the server listens. If the server cannot be reached now, resolves once that is known: the listener then tries
   * again in the background, and calls `onReconnect` when the connection is open.
   * @throws InvalidInput for a channel name that Postgres cannot hold
   * @throws the errors of `failure.ts` that waiting does not mend, such as a refused password
   */
  async subscribe(
    channel: string,
    handler: (payload: string) => void,
    options?: SubscribeOptions,
  ): Promise<Subscription> {
    if (channel === '' || Buffer.byteLength(channel) > 63) {
      throw new InvalidInput(`channel "${channel}" must have 1 to 63 bytes, but has ${Buffer.byteLength(channel)}`, {
        field: 'channel',
      });
    }
    const { onReconnect, isSeen = false } = options ?? {};
    const subscriber: Subscriber = { channel, handler, onReconnect, isSeen };
    this.#subscribers.add(subscriber);
    if (!this.#given.enabled) {
      this.#recordVerdict(false);
      return this.#subscription(subscriber);
    }
    try {
      await this.#ensureListening(channel, isSeen);
    } catch (error) {
      if (!isTransient(error) || this.#stopped) {
        this.#subscribers.delete(subscriber);
        throw error;
      }
    }
    return this.#subscription(subscriber);
  }

  /** Ends every subscription and the connection. Safe to call twice. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#subscribers.clear();
    this.#recordVerdict(this.#reliable ?? false);
    // A connection that is open waits for nothing more. Otherwise an answer that a server owes would be awaited until its time is over.
    void this.#connection?.close();
    await this.#disconnect();
  }

  async #ensureListening(channel: string, isSeen: boolean): Promise<void> {
    if (this.#connection !== undefined && this.#connecting === undefined) {
      await this.#connection.listen(channel, this.#seedOf(isSeen));
      return;
    }
    if (this.#retry !== undefined) {
      return;
    }
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    await this.#connecting;
    // Another subscriber's connect may have begun before this channel was added.
    await this.#connection?.listen(channel, this.#seedOf(isSeen));
  }

  #seedOf(isSeen: boolean): string | undefined {
    return isSeen ? this.#given.seed : undefined;
  }

  async #connect(): Promise<void> {
    try {
      this.#opening = new AbortController();
      const events: ListenConnectionEvents = {
        onNotification: (channel, payload) => this.#deliver(channel, payload),
        onLost: (error) => this.#onLost(connection, error),
      };
      const connection = await openListenConnection(this.#given.settings, this.#timing, events, this.#opening.signal);
      if (this.#stopped) {
        await connection.close();
        throw new Stopped('listening was stopped while it began');
      }
      this.#connection = connection;
      for (const channel of new Set([...this.#subscribers].map((subscriber) => subscriber.channel))) {
        const isSeen = [...this.#subscribers].some((one) => one.channel === channel && one.isSeen);
        await connection.listen(channel, this.#seedOf(isSeen));
      }
    } catch (error) {
      const known = failure(error);
      await this.#connection?.close();
      this.#connection = undefined;
      if (isTransient(known) && this.#subscribers.size > 0) {
        this.#scheduleRetry(known);
      }
      throw known;
    }
    this.#afterConnect();
  }

  #afterConnect(): void {
    const isRenewal = this.#failures > 0;
    this.#failures = 0;
    if (isRenewal) {
      this.#given.logger.info({}, 'listening again; polling, because notifications may have been missed');
      for (const subscriber of this.#subscribers) {
        this.#guard(() => subscriber.onReconnect?.());
      }
    }
    if (this.#connection !== undefined) {
      void this.#probe(this.#connection);
    }
  }

  #onLost(connection: ListenConnection, error: Error): void {
    if (this.#stopped || this.#connection !== connection) {
      return;
    }
    this.#connection = undefined;
    this.#scheduleRetry(error);
  }

  #scheduleRetry(error: unknown): void {
    this.#failures += 1;
    if (this.#failures === 1) {
      this.#given.logger.warn({ err: error }, 'the listening connection was lost; polling carries on until it is back');
    }
    const [first, longest] = this.#timing.backoff;
    const wait = Math.min(first * 2 ** Math.min(this.#failures - 1, 20), longest);
    clearTimeout(this.#retry);
    this.#retry = setTimeout(
      () => {
        this.#retry = undefined;
        this.#connecting ??= this.#connect()
          .catch((cause: unknown) => this.#afterRetryFailed(cause))
          .finally(() => {
            this.#connecting = undefined;
          });
      },
      // Half of the wait is random, so that not all processes come back in the same instant after a restart.
      wait / 2 + (Math.random() * wait) / 2,
    );
  }

  #afterRetryFailed(error: unknown): void {
    if (this.#stopped || isTransient(error)) {
      return;
    }
    // An operator may change a password back. If the listener gave up, a passing mistake would become a lasting one.
    this.#given.logger.error({ err: error }, 'listening failed and is tried again');
    this.#failures = Math.max(this.#failures, 6);
    this.#scheduleRetry(error);
  }

  /**
   * Finds out whether notifications arrive here. Repeats the probe if it could not be sent, or if its result may be chance. A
   * late notification says little about a busy server, so a negative verdict is also checked again, more and more rarely.
   */
  async #probe(connection: ListenConnection): Promise<void> {
    const [first, longest] = this.#timing.backoff;
    const { checkEvery } = this.#timing;
    let refusals = 0;
    for (let tries = 0; this.#connection === connection; tries++) {
      const verdict = await this.#probeOnce(connection);
      if (this.#connection !== connection) return;
      if (verdict !== undefined) this.#recordVerdict(verdict);
      if (verdict === true) {
        connection.hasReceived = true;
        return;
      }
      const restMs =
        verdict === false
          ? Math.min(checkEvery * 2 ** refusals++, checkEvery * RAREST)
          : Math.min(first * 2 ** tries, longest);
      await within(restMs, connection.closed);
    }
  }

  /**
   * Sends a notification through the pool to a channel of its own, and waits until it arrives here. @returns undefined if it
   * was not sent, or if it arrived while this connection had a statement to send: a pooler may have lent the right server
   * connection only for that statement.
   */
  async #probeOnce(connection: ListenConnection): Promise<boolean | undefined> {
    const channel = `pawl_probe_${randomUUID()}`;
    const arrived = deferred<true>();
    const forget = connection.onNotificationOf(channel, () => arrived.resolve(true));
    try {
      await connection.listen(channel);
      const { sentCount, pendingCount } = connection;
      await this.#given.notify(channel);
      // Counted from the sending: a pool that makes the notification wait says nothing about notifications.
      const hasArrived = await within(this.#timing.probeTimeout, arrived.promise);
      return hasArrived && (pendingCount > 0 || connection.sentCount !== sentCount) ? undefined : hasArrived;
    } catch (error) {
      this.#given.logger.debug({ err: error }, 'the notification probe could not be sent');
      return undefined;
    } finally {
      forget();
      void connection.unlisten(channel).catch(() => {});
    }
  }

  #recordVerdict(verdict: boolean): void {
    const isNews = this.#reliable === undefined && !verdict && this.#given.enabled && !this.#stopped;
    const isCured = this.#reliable === false && verdict;
    this.#reliable = verdict;
    this.#tested.resolve(verdict);
    if (verdict) this.#arrived.resolve();
    if (isCured) this.#given.logger.info({}, 'NOTIFY arrives on the listening connection after all');
    if (isNews) {
      this.#given.logger.warn(
        {},
        'NOTIFY does not arrive on the listening connection (a pooler in transaction mode?); new work is found by ' +
          'polling; pass directUrl with a URL that reaches the server itself',
      );
    }
  }

  #deliver(channel: string, payload: string): void {
    for (const subscriber of this.#subscribers) {
      if (subscriber.channel === channel) {
        this.#guard(() => subscriber.handler(payload));
      }
    }
  }

  #guard(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#given.logger.error({ err: error }, 'a notification handler threw');
    }
  }

  #subscription(subscriber: Subscriber): Subscription {
    const isReliable = (): boolean | null => this.#reliable ?? null;
    const stop = (): Promise<void> => this.#unsubscribe(subscriber);
    return {
      channel: subscriber.channel,
      get reliable() {
        return isReliable();
      },
      tested: this.#tested.promise,
      arrived: this.#arrived.promise,
      stop,
      [Symbol.asyncDispose]: stop,
    };
  }

  async #unsubscribe(subscriber: Subscriber): Promise<void> {
    if (!this.#subscribers.delete(subscriber)) {
      return;
    }
    if (this.#subscribers.size === 0) {
      await this.#disconnect();
      return;
    }
    if (![...this.#subscribers].some((other) => other.channel === subscriber.channel)) {
      // A lost connection has forgotten the channel by itself, and the answer of a dead one is not awaited.
      const forgotten = this.#connection?.unlisten(subscriber.channel).catch(() => {});
      await within(UNLISTEN_MS, Promise.resolve(forgotten));
    }
  }

  async #disconnect(): Promise<void> {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    this.#opening.abort();
    await this.#connecting?.catch(() => {});
    // A new subscriber may have come meanwhile.
    if (this.#subscribers.size > 0) return;
    clearTimeout(this.#retry);
    this.#retry = undefined;
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }
}
