import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/** A session that is still open after this time is terminated. */
const SESSIONS_END_MS = 5000;

/** The Postgres server that all sides share. */
export class Server implements AsyncDisposable {
  readonly version: string;
  /** The id of its main process; undefined if the server is not the embedded one, or the machine has no /proc. */
  readonly pid: number | undefined;
  private readonly url: string;
  private readonly admin: pg.Client;
  private readonly stop: () => Promise<void>;
  private created = 0;
  private readonly templates: Map<string, string> = new Map();

  private constructor(
    url: string,
    version: string,
    pid: number | undefined,
    admin: pg.Client,
    stop: () => Promise<void>,
  ) {
    this.url = url;
    this.version = version;
    this.pid = pid;
    this.admin = admin;
    this.stop = stop;
  }

  /**
   * Starts the embedded server, or uses the server of BENCH_DATABASE_URL. That URL may name any database of the server. Its role must be
   * allowed to create databases and run checkpoints. Refuses a server that does not write durably: its figures would mean nothing.
   */
  static async start(): Promise<Server> {
    const given = process.env.BENCH_DATABASE_URL;
    const found =
      given === undefined ? await startEmbedded() : { url: given, dataDir: undefined, stop: async () => {} };
    const { url, dataDir } = found;
    const stop = (): Promise<void> => found.stop();
    try {
      const admin = new pg.Client(url);
      await admin.connect();
      await refuseUnlessDurable(admin);
      const { rows } = await admin.query<{ server_version: string }>('show server_version');
      const pid = dataDir === undefined || !existsSync('/proc/self/stat') ? undefined : await mainProcess(dataDir);
      return new Server(url, rows[0]?.server_version ?? 'unknown', pid, admin, stop);
    } catch (error) {
      await stop();
      throw error;
    }
  }

  /** Creates a database and returns its URL. It is empty, or a copy of `template`, which must have no connections. */
  async createDatabase(template = 'template1'): Promise<string> {
    const name = `pawl_bench_${process.pid}_${++this.created}`;
    await this.admin.query(`create database ${name} template ${template}`);
    const url = new URL(this.url);
    url.pathname = `/${name}`;
    return url.href;
  }

  /**
   * Drops a database after its sides have closed their connections. Waits until the server has ended the sessions, because a driver
   * reports the end earlier, and a session that the server terminates raises an error in the side.
   */
  async dropDatabase(url: string): Promise<void> {
    const name = await this.left(url);
    await this.admin.query(`drop database ${name} with (force)`);
  }

  /** Waits until a database has no connections. @returns its name */
  private async left(url: string): Promise<string> {
    const name = new URL(url).pathname.slice(1);
    const deadline = performance.now() + SESSIONS_END_MS;
    while ((await this.sessions(name)) > 0 && performance.now() < deadline) await sleep(5);
    return name;
  }

  private async sessions(database: string): Promise<number> {
    const { rows } = await this.admin.query<{ n: string }>(
      `select count(*) as n from pg_stat_activity where datname = $1 and backend_type = 'client backend'`,
      [database],
    );
    return Number(rows[0]?.n);
  }

  /**
   * Runs `fn` with a new database, then drops the database. It is empty, or a copy of a template that `prepare` fills, once for each
   * name. A copy of a schema takes a fifth of the time that its migrations take.
   */
  async withDatabase<T>(fn: (url: string) => Promise<T>, prepared?: Preparation): Promise<T> {
    const url = await this.createDatabase(prepared && (await this.templateOf(prepared)));
    try {
      return await fn(url);
    } finally {
      await this.dropDatabase(url);
    }
  }

  private async templateOf({ name, prepare }: Preparation): Promise<string> {
    const known = this.templates.get(name);
    if (known !== undefined) return known;
    const url = await this.createDatabase();
    await prepare(url);
    // After this vacuum, the vacuums of the copies can skip the catalog.
    await vacuum(url);
    const template = await this.left(url);
    this.templates.set(name, template);
    return template;
  }

  /** Writes out all dirty pages, so that no measurement pays for the one before it. */
  async checkpoint(): Promise<void> {
    await this.admin.query('checkpoint');
  }

  /** Bytes of WAL written so far by the whole server. */
  async walBytes(): Promise<number> {
    const { rows } = await this.admin.query<{ bytes: string }>(
      `select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as bytes`,
    );
    return Number(rows[0]?.bytes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const template of this.templates.values()) await this.admin.query(`drop database ${template} with (force)`);
    await this.admin.end();
    await this.stop();
  }
}

/** How to fill the template of a name. */
interface Preparation {
  readonly name: string;
  readonly prepare: (url: string) => Promise<void>;
}

interface EmbeddedServer {
  readonly url: string;
  readonly dataDir: string;
  stop(): Promise<void>;
}

// The package has the binaries, so its build starts them. The server commits durably by default. The default of 1 GB of WAL
// would force checkpoints in the middle of a measurement.
async function startEmbedded(): Promise<EmbeddedServer> {
  const built = new URL('../../dist/engine/postgres/embedded/index.js', import.meta.url);
  const { startEmbedded: start } = (await import(built.href)) as {
    startEmbedded: (options: { settings: Record<string, string> }) => Promise<EmbeddedServer>;
  };
  return start({ settings: { max_wal_size: '8GB' } });
}

/** The id of the server's main process, which is the first line of the server's lock file. */
async function mainProcess(dataDir: string): Promise<number> {
  return Number.parseInt(await readFile(join(dataDir, 'postmaster.pid'), 'utf8'), 10);
}

async function refuseUnlessDurable(admin: pg.Client): Promise<void> {
  for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes']) {
    const { rows } = await admin.query<{ value: string }>('select current_setting($1) as value', [setting]);
    if (rows[0]?.value !== 'on') {
      throw new Error(`the server has ${setting} = ${rows[0]?.value}; benches run only with it on`);
    }
  }
}

/** Updates the planner's statistics and the visibility map, as autovacuum does for tables that live longer. */
export async function vacuum(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  await client.query('vacuum (analyze)');
  await client.end();
}
