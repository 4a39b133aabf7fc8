import pg from 'pg';
import { ConnectionFailed } from '../../../base/errors.ts';
import { deadline } from '../../../base/time/deadline.ts';
import { beforeSending, failure } from '../failure.ts';
import { destroySocket } from '../session/socket.ts';
import { id } from '../sql.ts';

/** What happens on a listening connection. */
export interface ListenConnectionEvents {
  onNotification: (channel: string, payload: string) => void;
  /** Called once, if the connection is lost without `close()`. */
  onLost: (error: Error) => void;
}

/** How often the connection is checked, and how long an answer may take; milliseconds. */
export interface ListenConnectionTiming {
  checkEvery: number;
  checkTimeout: number;
}

/** One connection that listens, and detects when it is dead. */
export interface ListenConnection {
  /**
   * With the seed of the schema's hashes, also holds the lock that shows that a process listens. A second call for the channel
   * does nothing.
   */
  listen(channel: string, seed?: string): Promise<void>;
  unlisten(channel: string): Promise<void>;
  /** Calls back on notifications of one channel until the returned function is called. */
  onNotificationOf(channel: string, callback: () => void): () => void;
  /** How many statements it was asked to send so far, and how many of those have no answer yet. */
  readonly sentCount: number;
  readonly pendingCount: number;
  /**
   * True: notifications have arrived here. Only then does a channel that the server has forgotten count as the loss of the
   * connection. Behind a pooler that lends another server connection each time, every check would see a forgotten channel.
   */
  hasReceived: boolean;
  /** Settles when the connection is gone, for any reason. */
  readonly closed: Promise<void>;
  close(): Promise<void>;
}

/**
 * @param signal  aborts the opening
 * @throws ConnectionFailed with outcome `nothing_written`
 */
export async function openListenConnection(
  settings: pg.ClientConfig,
  timing: ListenConnectionTiming,
  events: ListenConnectionEvents,
  signal: AbortSignal,
): Promise<ListenConnection> {
  const client = new pg.Client(settings);
  const connection = new ListeningClient(client, timing, events);
  const giveUp = (): void => destroySocket(client);
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    await client.connect();
  } catch (error) {
    void client.end().catch(() => {});
    throw beforeSending(error);
  } finally {
    signal.removeEventListener('abort', giveUp);
  }
  connection.start();
  return connection;
}

const FORGOTTEN =
  'the server no longer listens for this connection, which lives (UNLISTEN *, DISCARD ALL, or a pooler that has lent it another session)';

class ListeningClient implements ListenConnection {
  readonly closed: Promise<void>;
  sentCount = 0;
  pendingCount = 0;
  hasReceived = false;
  readonly #client: pg.Client;
  readonly #timing: ListenConnectionTiming;
  readonly #events: ListenConnectionEvents;
  readonly #expected = new Map<string, () => void>();
  /** The channels that it was asked to listen to. */
  readonly #channels = new Set<string>();
  /** The seeds of the channels whose lock this connection holds. */
  readonly #seen = new Map<string, string>();
  #queue: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  #state: 'connecting' | 'open' | 'closed' = 'connecting';
  #settleClosed: () => void = () => {};

  constructor(client: pg.Client, timing: ListenConnectionTiming, events: ListenConnectionEvents) {
    this.#client = client;
    this.#timing = timing;
    this.#events = events;
    this.closed = new Promise((resolve) => {
      this.#settleClosed = resolve;
    });
    client.on('error', (error) => this.#lose(error));
    client.on('end', () => this.#lose(new ConnectionFailed('the listening connection ended')));
    client.on('notification', ({ channel, payload }) => {
      const expected = this.#expected.get(channel);
      if (expected === undefined) {
        events.onNotification(channel, payload ?? '');
      } else {
        expected();
      }
    });
  }

  start(): void {
    if (this.#state === 'connecting') {
      this.#state = 'open';
      this.#timer = setTimeout(() => this.#check(), this.#timing.checkEvery);
    }
  }

  async listen(channel: string, seed?: string): Promise<void> {
    await this.#send(`listen ${id(channel)}`);
    this.#channels.add(channel);
    if (seed === undefined || this.#seen.has(channel)) return;
    this.#seen.set(channel, seed);
    // This statement also replaces the name of a secret channel in pg_stat_activity.
    await this.#send('-- engine.listen_seen\nselect pg_advisory_lock_shared(hashtextextended($1, $2::bigint))', [
      channel,
      seed,
    ]);
  }

  async unlisten(channel: string): Promise<void> {
    this.#channels.delete(channel);
    await this.#send(`unlisten ${id(channel)}`);
    const seed = this.#seen.get(channel);
    if (seed === undefined) return;
    this.#seen.delete(channel);
    await this.#send('-- engine.listen_unseen\nselect pg_advisory_unlock_shared(hashtextextended($1, $2::bigint))', [
      channel,
      seed,
    ]);
  }

  onNotificationOf(channel: string, callback: () => void): () => void {
    this.#expected.set(channel, callback);
    return () => this.#expected.delete(channel);
  }

  async close(): Promise<void> {
    if (this.#state === 'closed') {
      return;
    }
    this.#shut();
    const end = this.#client.end().catch(() => {});
    // The other side of a half-open socket never answers the goodbye.
    const timer = setTimeout(() => this.#destroy(), 1_000);
    await end;
    clearTimeout(timer);
  }

  /** Sends one statement at a time: node-postgres warns about a query that is sent while another runs. */
  #send(text: string, values: string[] = []): Promise<Record<string, unknown>[]> {
    this.sentCount += 1;
    this.pendingCount += 1;
    const sent = this.#queue
      .then(() => this.#ask(text, values))
      .finally(() => {
        this.pendingCount -= 1;
      });
    this.#queue = sent.catch(() => {});
    return sent;
  }

  async #ask(text: string, values: string[]): Promise<Record<string, unknown>[]> {
    if (this.#state === 'closed') {
      throw new ConnectionFailed('the listening connection is closed', { outcome: 'nothing_written' });
    }
    // The next check would also detect a half-open connection. A caller that waits for this answer need not wait for that
    // check.
    const { checkTimeout } = this.#timing;
    const cancel = deadline(checkTimeout, () =>
      this.#lose(new ConnectionFailed(`the listening connection did not answer within ${checkTimeout} ms`)),
    );
    try {
      const { rows } = await this.#client.query<Record<string, unknown>>(text, values);
      return rows;
    } catch (error) {
      throw failure(error);
    } finally {
      cancel();
    }
  }

  #check(): void {
    const { checkEvery } = this.#timing;
    const expected = [...this.#channels];
    this.#send('-- engine.listen_check\nselect pg_listening_channels() as channel').then(
      (rows) => {
        if (this.#state !== 'open') return;
        const there = new Set(rows.map(({ channel }) => channel));
        const isMissing = expected.some((channel) => this.#channels.has(channel) && !there.has(channel));
        if (this.hasReceived && isMissing) this.#lose(new ConnectionFailed(FORGOTTEN));
        else this.#timer = setTimeout(() => this.#check(), checkEvery);
      },
      (error: unknown) => this.#lose(error instanceof Error ? error : new ConnectionFailed(String(error))),
    );
  }

  #lose(error: Error): void {
    if (this.#state !== 'open') {
      this.#shut();
      return;
    }
    this.#shut();
    this.#destroy();
    this.#events.onLost(error);
  }

  #shut(): void {
    this.#state = 'closed';
    clearTimeout(this.#timer);
    this.#settleClosed();
  }

  /** Does not call `end()`, which waits for the other side: that side may be gone. */
  #destroy(): void {
    destroySocket(this.#client);
  }
}
