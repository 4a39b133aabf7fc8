import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../../src/engine/postgres/embedded/index.ts';
import { until } from '../eventually.ts';
import { memoryFolder } from '../memory.ts';
import { startTestServer } from './embedded.ts';

const run = promisify(execFile);

/** A server that follows another one, asynchronously. */
export interface Standby {
  readonly server: EmbeddedPostgres;
  /** Waits until it has all that the primary has. */
  caughtUp(): Promise<void>;
  /** From now on it hears nothing of the primary. */
  cut(): Promise<void>;
  /** It becomes a primary itself, with what it has. */
  promote(): Promise<void>;
}

/** Copies a running server, and starts the copy as its standby. */
export async function startStandby(primary: EmbeddedPostgres, settings: Record<string, string> = {}): Promise<Standby> {
  const folder = await mkdtemp(join(memoryFolder(), 'pawl-standby-'));
  try {
    // The server may run under another account than the tests.
    await chmod(folder, 0o755);
    const made = join(folder, 'data');
    await copyRunning(primary, made);
    await writeFile(join(made, 'standby.signal'), '', { mode: 0o644 });
    const { hostname, port, username, password } = new URL(primary.url);
    const from = `host=${hostname} port=${port} user=${username} password=${password}`;
    // By the file and not by an argument, so that it can be changed while the server runs.
    await writeFile(join(made, 'postgresql.auto.conf'), `primary_conninfo = '${from}'\n`, { mode: 0o666 });
    await chmod(join(made, 'postgresql.auto.conf'), 0o666);
    return standby(primary, await startTestServer(settings, made));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function standby(primary: EmbeddedPostgres, server: EmbeddedPostgres): Standby {
  const stays = async (): Promise<boolean> =>
    (await ask(server, 'select count(*)::int as n from pg_stat_wal_receiver')) === 0;
  return {
    server,
    caughtUp: async () => {
      const end = await ask(primary, 'select pg_current_wal_flush_lsn()::text as n');
      await until('the standby has everything', async () => {
        return (await ask(server, `select pg_last_wal_replay_lsn() >= '${String(end)}'::pg_lsn as n`)) === true;
      });
    },
    cut: async () => {
      await ask(server, "alter system set primary_conninfo = ''");
      await ask(server, 'select pg_reload_conf() as n');
      await until('the standby hears nothing', stays);
    },
    promote: async () => {
      await ask(server, 'select pg_promote() as n');
      await until('it is a primary', async () => (await ask(server, 'select pg_is_in_recovery() as n')) === false);
    },
  };
}

/** As pg_basebackup does it, which is not there on every machine. */
export async function copyRunning(primary: EmbeddedPostgres, made: string): Promise<void> {
  await using client = await connect(primary);
  const { rows } = await client.query<{ n: number }>("select current_setting('server_version_num')::int as n");
  const [start, stop] =
    (rows[0]?.n ?? 0) >= 150_000
      ? ["pg_backup_start('standby', true)", 'pg_backup_stop()']
      : ["pg_start_backup('standby', true, false)", 'pg_stop_backup(false)'];
  await client.query(`select ${start}`);
  await run('cp', ['-a', primary.dataDir, made]).catch(unlessGone);
  const { rows: labels } = await client.query<{ label: string }>(`select labelfile as label from ${stop}`);
  await writeFile(join(made, 'backup_label'), labels[0]?.label ?? '', { mode: 0o644 });
  await unlink(join(made, 'postmaster.pid'));
}

/** Of a server that runs, a file may be renamed or removed while it is copied. Its log has what became of it. */
function unlessGone(error: Error & { readonly stderr?: string }): void {
  const lines = error.stderr?.trim().split('\n') ?? [];
  if (lines.length === 0 || !lines.every((line) => line.endsWith('No such file or directory'))) throw error;
}

interface Client extends AsyncDisposable {
  query<Row extends object>(text: string): Promise<{ rows: Row[] }>;
}

async function connect(server: EmbeddedPostgres): Promise<Client> {
  const client = new pg.Client({ connectionString: server.url });
  client.on('error', () => {});
  await client.connect();
  return { query: (text) => client.query(text), [Symbol.asyncDispose]: () => client.end() };
}

/** @returns the column "n" of the first row */
export async function ask(server: EmbeddedPostgres, text: string): Promise<unknown> {
  await using client = await connect(server);
  const { rows } = await client.query<{ n: unknown }>(text);
  return rows[0]?.n;
}
