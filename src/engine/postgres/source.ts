import pg from 'pg';
import { LONGEST_TIMER_MS, within } from '../../base/time/clock.ts';
import { maskUrl } from '../database-url.ts';
import type { ClientLike, PoolLike, PoolSettings } from './driver.ts';
import type { ResolvedOptions } from './options.ts';
import { keepGreeting, refusalOf } from './server/greeting.ts';
import { destroySocket } from './session/socket.ts';

/** Where an engine's connections come from, opened at first use. */
export interface Source {
  readonly pool: PoolLike;
  /**
   * A few connections outside the pool for short statements, above all renewals of leases, which must not wait until busy
   * handlers return a connection. If the given pool does not show its settings, this is the pool itself.
   */
  readonly reserved: PoolLike;
  /** The settings for a connection outside the pool. */
  readonly direct: pg.ClientConfig;
  /** The URL without its password. */
  readonly url: string;
  readonly embedded: { dataDir: string; temporary: boolean } | undefined;
  /** Gives up connections that have been opening for this long, so that their places in the pool are free for another try. */
  dropOpening(ms: number): void;
  /** Closes every connection that was opened here; a pool given by the user stays open. */
  close(): Promise<void>;
}

/** Opens the pool: the user's own, one on their URL, or one on an embedded server that is started now. */
export async function openSource(given: string | PoolLike | undefined, options: ResolvedOptions): Promise<Source> {
  if (given === undefined) {
    const { startEmbedded } = await import('./embedded/index.ts');
    const server = await startEmbedded(options.data === undefined ? {} : { data: options.data });
    const source = openUrl(server.url, options);
    return {
      ...source,
      embedded: { dataDir: server.dataDir, temporary: server.temporary },
      async close() {
        await source.close();
        await server.stop();
      },
    };
  }
  return typeof given === 'string' ? openUrl(given, options) : adoptPool(given, options);
}

function openUrl(url: string, options: ResolvedOptions): Source {
  const address = maskUrl(url);
  const main = openPool({ ...connection(url, options), max: options.max }, address, options);
  const reserved = openPool({ ...connection(url, options), ...RESERVED }, address, options);
  return {
    pool: main.pool,
    reserved: reserved.pool,
    direct: connection(options.directUrl ?? url, options),
    url: address,
    embedded: undefined,
    dropOpening: (ms) => {
      main.dropOpening(ms);
      reserved.dropOpening(ms);
    },
    close: async () => {
      await Promise.all([main.end(), reserved.end()]);
    },
  };
}

// Closed if unused for longer than leases usually last. An idle connection does not keep the process alive.
const RESERVED: pg.PoolConfig = { max: 2, idleTimeoutMillis: 120_000, allowExitOnIdle: true };

/** A pool of ours. It keeps track of each connection from the start of its opening until it has ended. */
interface OwnPool {
  readonly pool: pg.Pool;
  dropOpening(ms: number): void;
  end(): Promise<void>;
}

function openPool(settings: pg.PoolConfig, address: string, options: ResolvedOptions): OwnPool {
  const openingSince = new Map<object, number>();
  const clients = new Set<pg.Client>();
  const Client = class extends pg.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config);
      keepGreeting(this);
      openingSince.set(this, performance.now());
      clients.add(this);
      this.once('end', () => {
        openingSince.delete(this);
        clients.delete(this);
      });
    }
  };
  const pool = new pg.Pool({ ...settings, Client, verify: (client, done) => done(refusalOf(client, address)) });
  watch(pool);
  // Without a listener, a server restart that closes an idle connection would end the process.
  pool.on('error', (error) => options.logger.debug({ err: error }, 'an idle connection was lost'));
  pool.on('connect', (client) => openingSince.delete(client));
  const dropOpening = (ms: number): void => {
    const past = performance.now() - ms;
    for (const [client, since] of openingSince) if (since <= past) destroySocket(client);
  };
  const end = async (): Promise<void> => {
    dropOpening(0);
    // `pool.end()` resolves before its last sockets have closed. A half-open socket would never close.
    const goodbyes = Promise.all([pool.end(), ...[...clients].map(whenEnded)]);
    if (await within(GOODBYE_MS, goodbyes)) return;
    for (const client of clients) destroySocket(client);
    await within(GOODBYE_MS, goodbyes);
  };
  return { pool, dropOpening, end };
}

const GOODBYE_MS = 1_000;

/** Unlike `once(client, 'end')` of node:events, it does not reject if the server ends the connection meanwhile with an error. */
function whenEnded(client: pg.Client): Promise<void> {
  return new Promise((resolve) => {
    client.once('end', () => resolve());
  });
}

/**
 * Adds an error listener to every connection of a pool before any caller gets the connection. The pool listens only while a
 * connection is idle, and some turns of the event loop pass before a session listens. Without this listener, a connection that
 * the server ends in the very packet that opens it would end the process by its 'error'.
 * @returns removes all listeners that were added here
 */
function watch(pool: PoolLike): () => void {
  const watched = new Set<ClientLike>();
  const keep = (client: ClientLike): void => {
    if (watched.has(client)) return;
    watched.add(client);
    client.on('error', ignore);
  };
  const forget = (client: ClientLike): void => void watched.delete(client);
  pool.on('connect', keep);
  pool.on('acquire', keep);
  pool.on('remove', forget);
  return () => {
    pool.removeListener('connect', keep);
    pool.removeListener('acquire', keep);
    pool.removeListener('remove', forget);
    for (const client of watched) client.removeListener('error', ignore);
  };
}

function ignore(): void {}

function adoptPool(pool: PoolLike, options: ResolvedOptions): Source {
  if (pool.listenerCount('error') === 0) {
    options.logger.warn(
      {},
      'the pool has no "error" listener except that of this engine: after the engine is stopped, a restart of the database would end ' +
        'this process; add pool.on("error", …)',
    );
  }
  const onError = (error: Error): void => options.logger.debug({ err: error }, 'an idle connection was lost');
  pool.on('error', onError);
  const unwatch = watch(pool);
  const settings: PoolSettings = pool.options ?? {};
  const address = describeSettings(settings);
  const reserved =
    pool.options === undefined ? undefined : openPool({ ...adopt(settings), ...RESERVED }, address, options);
  return {
    pool,
    reserved: reserved?.pool ?? pool,
    direct: options.directUrl === undefined ? adopt(settings) : connection(options.directUrl, options),
    url: address,
    embedded: undefined,
    dropOpening: (ms) => reserved?.dropOpening(ms),
    close: async () => {
      pool.removeListener('error', onError);
      unwatch();
      await reserved?.end();
    },
  };
}

function connection(url: string, options: ResolvedOptions): pg.ClientConfig {
  return {
    connectionString: url,
    application_name: options.applicationName,
    connectionTimeoutMillis: Math.min(options.connectTimeoutMs, LONGEST_TIMER_MS),
    ...KEEP_ALIVE,
  };
}

/** Probe the connection after 10 s of silence; the kernel's own default is two hours. */
const KEEP_ALIVE: pg.ClientConfig = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 };

/** The password of a pg.Pool is not enumerable, so a spread would lose it. */
function adopt(settings: PoolSettings): pg.ClientConfig {
  const password: unknown = Reflect.get(settings, 'password');
  return { ...settings, ...(password === undefined ? {} : { password: password as string }), ...KEEP_ALIVE };
}

function describeSettings(settings: PoolSettings): string {
  if (settings.connectionString !== undefined) {
    return maskUrl(settings.connectionString);
  }
  const user = settings.user === undefined ? '' : `${encodeURIComponent(settings.user)}@`;
  return `postgres://${user}${settings.host ?? 'localhost'}:${settings.port ?? 5432}/${settings.database ?? ''}`;
}
