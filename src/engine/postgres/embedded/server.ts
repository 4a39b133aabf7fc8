import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Conflict, InvalidInput, Stopped } from '../../../base/errors.ts';
import { now } from '../../../base/time/clock.ts';
import { type Launch, launch, type Postmaster } from './postmaster.ts';

/** Default settings, which the caller's settings may change. */
const SETTINGS = { max_connections: '200', timezone: 'UTC', log_timezone: 'UTC' };
/** How long to wait for a port that another program took, or for the last sessions of a killed server. */
const PATIENCE_MS = 10_000;

/** A running Postgres of our own. */
export interface EmbeddedPostgres extends AsyncDisposable {
  /** `postgres://…` of the superuser, with its password. It stays the same while this server lives, restarts included. */
  readonly url: string;
  readonly port: number;
  /** Of the server process; another one after each `restart`. */
  readonly pid: number;
  readonly dataDir: string;
  /** True: `stop` removes the data. */
  readonly temporary: boolean;
  /** Stops and starts again on the same port. `immediate` stops without a checkpoint, like a crash. */
  restart(mode?: 'fast' | 'immediate'): Promise<void>;
  /** Ends the server, breaking its connections, and removes temporary data. Safe to call twice. */
  stop(): Promise<void>;
}

interface ServerOptions {
  readonly launching: Omit<Launch, 'port'>;
  /** Undefined: a free one. */
  readonly port: number | undefined;
  readonly temporary: boolean;
  /** Removes the remains of the run once the server has ended. */
  readonly clear: () => Promise<void>;
}

/** The server across its restarts; each restart starts a new process. */
export class EmbeddedServer implements EmbeddedPostgres {
  readonly url: string;
  readonly port: number;
  readonly dataDir: string;
  readonly temporary: boolean;
  readonly #launching: Launch;
  readonly #clear: () => Promise<void>;
  #master: Postmaster;
  #turn: Promise<void> = Promise.resolve();
  #stopping: Promise<void> | undefined;

  static async start(options: ServerOptions): Promise<EmbeddedServer> {
    const { launching, port } = options;
    const deadline = now() + PATIENCE_MS;
    for (;;) {
      // Another program may take a free port before Postgres does. Then try another port.
      const at = { ...launching, port: port ?? (await freePort()) };
      const master = await launchPatiently(at, { waitForPort: false });
      if (master !== undefined) return new EmbeddedServer(options, at, master);
      if (port !== undefined || now() >= deadline) {
        throw new InvalidInput(`port ${at.port} is taken; name another, or leave it out`, { field: 'port' });
      }
    }
  }

  private constructor({ temporary, clear }: ServerOptions, launching: Launch, master: Postmaster) {
    this.port = launching.port;
    this.url = `postgres://postgres:${launching.cluster.password}@127.0.0.1:${launching.port}/postgres`;
    this.dataDir = launching.cluster.dataDir;
    this.temporary = temporary;
    this.#launching = launching;
    this.#master = master;
    this.#clear = clear;
  }

  get pid(): number {
    return this.#master.pid;
  }

  restart(mode: 'fast' | 'immediate' = 'fast'): Promise<void> {
    if (this.#stopping) return Promise.reject(new Stopped('the embedded Postgres was stopped; start another one'));
    return this.#inTurn(async () => {
      await this.#master.end(mode);
      const master = await launchPatiently(this.#launching, { waitForPort: true });
      if (master === undefined) {
        throw new Conflict(
          `port ${this.port} was taken by another program during the restart; stop that one and restart again`,
        );
      }
      this.#master = master;
    });
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#inTurn(async () => {
      await this.#master.end('fast');
      await this.#clear();
    });
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #inTurn(step: () => Promise<void>): Promise<void> {
    const result = this.#turn.then(step);
    this.#turn = result.catch(() => {});
    return result;
  }
}

/** Launches, and waits until the last sessions of a killed server are gone; undefined if the port is taken. */
async function launchPatiently(
  launching: Launch,
  { waitForPort }: { waitForPort: boolean },
): Promise<Postmaster | undefined> {
  const settings = {
    ...SETTINGS,
    ...launching.settings,
    listen_addresses: '127.0.0.1',
    port: String(launching.port),
    unix_socket_directories: '',
  };
  const deadline = now() + PATIENCE_MS;
  for (;;) {
    const launched = await launch({ ...launching, settings });
    if ('pid' in launched) return launched;
    const isLate = now() >= deadline;
    if (launched.obstacle === 'port' && (isLate || !waitForPort)) return undefined;
    if (launched.obstacle === 'folder') {
      const message = `data folder "${launching.cluster.dataDir}" is in use by another Postgres; stop that one, or name another folder`;
      throw new Conflict(message, { cause: launched.error });
    }
    if (isLate) throw launched.error;
    await sleep(100);
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0));
    });
  });
}
