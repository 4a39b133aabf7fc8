import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { until } from './eventually.ts';

/** A PgBouncer in transaction mode before a database. */
export interface Bouncer {
  /** The database's URL by way of the bouncer. */
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts one on a free port, or gives undefined when there is no `pgbouncer` to start: `apt-get install pgbouncer`. */
export async function startBouncer(databaseUrl: string): Promise<Bouncer | undefined> {
  const target = new URL(databaseUrl);
  const folder = await mkdtemp(join(tmpdir(), 'pawl-bouncer-'));
  await chmod(folder, 0o755);
  const port = await freePort();
  const config = join(folder, 'pgbouncer.ini');
  const login = `user=${target.username} password=${decodeURIComponent(target.password)}`;
  await writeFile(
    config,
    `[databases]
* = host=${target.hostname} port=${target.port || 5432} ${login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`,
    { mode: 0o644 },
  );
  // It does not run as root.
  const account = process.geteuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};
  const child = spawn('pgbouncer', [config], { stdio: 'ignore', ...account });
  const failed = once(child, 'error').then(() => 'failed' as const);
  const clear = (): Promise<void> => rm(folder, { recursive: true, force: true });
  if ((await Promise.race([failed, once(child, 'spawn')])) === 'failed') {
    await clear();
    return undefined;
  }
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  await until('the bouncer answers', () => answers(url.href));
  return {
    url: url.href,
    stop: async () => {
      if (child.exitCode === null) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
      await clear();
    },
  };
}

async function answers(connectionString: string): Promise<boolean> {
  const client = new pg.Client({ connectionString });
  client.on('error', () => {});
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => {});
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}
