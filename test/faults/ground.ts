import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../src/engine/postgres/embedded/index.ts';
import { memoryFolder } from '../support/memory.ts';
import { startTestServer } from '../support/servers/embedded.ts';
import { logInCheaply } from '../support/servers/login.ts';
import { makeTemplate, TEMPLATE } from '../support/servers/template.ts';

export const SETTINGS = {
  // Faults kill processes, also those of the server, but never the machine.
  fsync: 'off',
  full_page_writes: 'off',
  max_connections: '400',
  autovacuum: 'off',
  // The order of commits: `pg_xact_commit_timestamp(xmin)` of every row.
  track_commit_timestamp: 'on',
};

export interface GroundOptions {
  /** The folder of the built scripts of child processes. */
  readonly children: string;
  /** The data folder of a stopped server, to be copied. */
  readonly cluster: string;
}

/** The server and the scripts that all schedules of a run share. */
export class Ground implements AsyncDisposable {
  readonly children: string;
  readonly folder: string;
  readonly #cluster: string;
  readonly #server: EmbeddedPostgres;

  static async open({ children, cluster }: GroundOptions): Promise<Ground> {
    const folder = await mkdtemp(join(memoryFolder(), 'pawl-faults-'));
    return new Ground(children, cluster, folder, await startServer(cluster));
  }

  private constructor(children: string, cluster: string, folder: string, server: EmbeddedPostgres) {
    this.children = children;
    this.folder = folder;
    this.#cluster = cluster;
    this.#server = server;
  }

  /** A migrated database; on a server of its own if the schedule restarts the server. */
  async database(hasOwnServer: boolean): Promise<OwnDatabase> {
    return this.#databaseOn(hasOwnServer ? await startServer(this.#cluster) : this.#server);
  }

  /**
   * A migrated database on a server that initdb creates. All other servers are copies of one folder, so these servers and their
   * databases have one identity.
   */
  async stranger(): Promise<OwnDatabase> {
    return this.#databaseOn(await startServer(''));
  }

  async #databaseOn(server: EmbeddedPostgres): Promise<OwnDatabase> {
    const name = `faults_${randomBytes(4).toString('hex')}`;
    await asAdmin(server, (admin) => admin.query(`create database "${name}" template "${TEMPLATE}"`));
    const drop =
      server !== this.#server
        ? () => server.stop()
        : () => asAdmin(server, (admin) => admin.query(`drop database "${name}" with (force)`)).then(() => {});
    return { url: at(server, name), server, drop };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

export interface OwnDatabase {
  readonly url: string;
  readonly server: EmbeddedPostgres;
  drop(): Promise<void>;
}

async function startServer(cluster: string): Promise<EmbeddedPostgres> {
  const server = await startTestServer(SETTINGS, cluster);
  await logInCheaply(server.url);
  if (cluster === '') await makeTemplate(server.url, TEMPLATE);
  return server;
}

function at(server: EmbeddedPostgres, database: string): string {
  const url = new URL(server.url);
  url.pathname = `/${database}`;
  return url.href;
}

async function asAdmin<T>(server: EmbeddedPostgres, work: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  try {
    return await work(admin);
  } finally {
    await admin.end();
  }
}
