import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../../examples/free-port.ts';
import { until } from '../eventually.ts';

/** PgBouncer in transaction mode before a database. */
export interface Pooler {
  readonly url: string;
  stop(): Promise<void>;
}

/** Whether PgBouncer is installed here. */
export const hasPooler: boolean = spawnSync('pgbouncer', ['--version']).status === 0;

/** Starts one with so many server connections. It does not keep prepared statements, as before version 1.21. */
export async function startPooler(databaseUrl: string, poolSize: number): Promise<Pooler> {
  const target = new URL(databaseUrl);
  const folder = await mkdtemp(join(tmpdir(), 'pawl-pooler-'));
  await chmod(folder, 0o755);
  const port = await freePort();
  const [user, password] = [decodeURIComponent(target.username), decodeURIComponent(target.password)];
  await writeFile(join(folder, 'users'), `"${user}" "${password}"\n`);
  await writeFile(
    join(folder, 'pgbouncer.ini'),
    `[databases]
* = host=${target.hostname} port=${target.port || 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = plain
auth_file = ${join(folder, 'users')}
pool_mode = transaction
default_pool_size = ${poolSize}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`,
  );
  // It refuses to run as root.
  const as = process.geteuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn('pgbouncer', [...as, join(folder, 'pgbouncer.ini')], { stdio: 'ignore' });
  const exited = once(child, 'exit');
  await until('the pooler listens', () => canDial(port));
  const url = new URL(databaseUrl);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return {
    url: url.href,
    stop: async () => {
      child.kill('SIGKILL');
      await exited;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function canDial(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = dial(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}
