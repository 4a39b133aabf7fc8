import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chown,
  copyFile,
  lchown,
  mkdir,
  readdir,
  readFile,
  readlink,
  realpath,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Conflict, ConnectionFailed, InvalidInput } from '../../../base/errors.ts';
import { type Account, canEnter, identity } from './account.ts';
import type { Binaries } from './binaries.ts';
import type { Watchdog } from './watchdog.ts';

const run = promisify(execFile);

/**
 * Lies next to Postgres' own files, and only the server's account can read it. Written last, so it also says that the folder is
 * complete.
 */
const PASSWORD_FILE = 'pawl.password';

/** The environment of the programs: no PGPORT or PGDATA of the user's shell, messages in English, no time zone search. */
export const SERVER_ENV: NodeJS.ProcessEnv = {
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  TZ: 'UTC',
  LC_ALL: 'C',
};

/** A data folder, ready for a server. */
export interface Cluster {
  readonly dataDir: string;
  /** Of the superuser `postgres`. */
  readonly password: string;
}

/** What the code needs to make or open a data folder. */
export interface Machinery {
  readonly binaries: Binaries;
  readonly account: Account | undefined;
  readonly watchdog: Watchdog;
  /** A folder of this run alone, which the account can enter; removed at the end. */
  readonly runDir: string;
  /** A data folder that is copied instead of running initdb. */
  readonly made?: string | undefined;
}

/** Makes a data folder inside the run's folder; it is removed with that folder. */
export async function temporaryCluster(machinery: Machinery): Promise<Cluster> {
  const dataDir = join(machinery.runDir, 'data');
  await makeFolder(dataDir, machinery.account);
  return initialise(dataDir, machinery, ['--no-sync']);
}

/**
 * Opens a data folder that is kept, and makes it first if it is missing or empty.
 * @throws InvalidInput  it holds something else or another major version, or the account cannot enter it
 * @throws Conflict      a running server has it
 */
export async function keptCluster(data: string, machinery: Machinery): Promise<Cluster> {
  const dataDir = resolve(data);
  await makeFolder(dataDir, machinery.account);
  if (!(await canEnter(dataDir, machinery.account))) throw notEntered(dataDir, machinery.account);
  const entries = await readdir(dataDir);
  if (entries.length === 0) return initialise(dataDir, machinery, []);
  await refuseOtherVersion(dataDir, machinery.binaries);
  await refuseRunning(dataDir);
  const password = await readFile(join(dataDir, PASSWORD_FILE), 'utf8').catch(() => '');
  if (password !== '') return { dataDir, password };
  throw new InvalidInput(
    `data folder "${dataDir}" was not made by Pawl, or its first start was interrupted: remove it if you do not need its data, ` +
      'else start a Postgres of your own on it and give its URL',
    { field: 'data' },
  );
}

/** Runs initdb: 0.4 s of processor time, most of which Postgres spends on its catalog. */
async function initialise(dataDir: string, machinery: Machinery, extra: string[]): Promise<Cluster> {
  const { binaries, account, watchdog, runDir, made } = machinery;
  if (made !== undefined) return copyOf(made, dataDir, account);
  const password = randomBytes(18).toString('base64url');
  const passwordFile = join(runDir, 'password');
  await writeFile(passwordFile, password, { mode: 0o600 });
  if (account) await chown(passwordFile, account.uid, account.gid);
  const common = ['-D', dataDir, '-U', 'postgres', '-E', 'UTF8', '-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
  const initdb = async (locale: string[]): Promise<void> => {
    const running = run(binaries.initdb, [...common, '--no-instructions', ...locale, ...extra], {
      cwd: '/',
      env: SERVER_ENV,
      ...identity(account),
    });
    watchdog.watch(running.child.pid);
    await running.finally(() => watchdog.watch(undefined));
  };
  // From 17 on, Postgres itself brings C.UTF-8. Older versions need that of the C library, which macOS and old glibc lack.
  const builtin = binaries.major >= 17 ? ['--locale-provider=builtin', '--builtin-locale=C.UTF-8'] : [];
  try {
    await initdb([...builtin, '--locale=C.UTF-8']).catch(async (error: unknown) => {
      if (!/invalid locale/.test(messageOf(error))) throw error;
      await initdb([...builtin, '--locale=C']);
    });
  } catch (error) {
    throw new ConnectionFailed(
      `initdb could not create the data folder "${dataDir}"; solve the problem that it reports, or name another folder: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
  await keepPassword(passwordFile, join(dataDir, PASSWORD_FILE), account);
  return { dataDir, password };
}

/**
 * Copies a data folder and its password: 0.05 s of processor time. Node's own copying takes a second for the thousand files.
 */
async function copyOf(made: string, dataDir: string, account: Account | undefined): Promise<Cluster> {
  await run('cp', ['-R', '-P', '-p', `${made}/.`, dataDir], { cwd: '/', ...identity(account) });
  return { dataDir, password: await readFile(join(dataDir, PASSWORD_FILE), 'utf8') };
}

async function keepPassword(from: string, to: string, account: Account | undefined): Promise<void> {
  await copyFile(from, to);
  if (account) await chown(to, account.uid, account.gid);
  await rm(from);
}

/**
 * Makes the folder, owned by the account. If root owns a data folder (a copy made with cp, for example), gives the folder to
 * the account with all that is in it.
 */
async function makeFolder(folder: string, account: Account | undefined): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if (account === undefined || (await stat(folder)).uid === account.uid) return;
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  if (entries.length > 0 && !entries.some((entry) => entry.name === 'PG_VERSION' && entry.parentPath === folder))
    return;
  for (const entry of entries) await lchown(join(entry.parentPath, entry.name), account.uid, account.gid);
  await chown(folder, account.uid, account.gid);
}

async function refuseOtherVersion(dataDir: string, binaries: Binaries): Promise<void> {
  const version = (await readFile(join(dataDir, 'PG_VERSION'), 'utf8').catch(() => '')).trim();
  if (version === '') {
    throw new InvalidInput(`folder "${dataDir}" is not empty and not a Postgres data folder; name another one`, {
      field: 'data',
    });
  }
  if (version === String(binaries.major)) return;
  throw new InvalidInput(
    `data folder "${dataDir}" was made by Postgres ${version}, and Postgres ${binaries.version} (${binaries.postgres}) ` +
      'cannot open it; upgrade it with pg_upgrade, name another folder, or give the URL of a database',
    { field: 'data' },
  );
}

/**
 * If Postgres is killed, it leaves postmaster.pid behind. At its next start it takes the file over if no process has that pid.
 * After a restart of a container, some other process often has the pid, and Postgres would refuse for ever. So this function
 * checks what that process is.
 */
async function refuseRunning(dataDir: string): Promise<void> {
  const file = join(dataDir, 'postmaster.pid');
  const pid = Number.parseInt(await readFile(file, 'utf8').catch(() => ''), 10);
  if (!(pid > 0) || !isAlive(pid)) return;
  if (!(await servesFolder(pid, dataDir))) return rm(file, { force: true });
  throw new Conflict(
    `data folder "${dataDir}" is in use by the Postgres with pid ${pid}; stop that one, or name another folder`,
  );
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** A postmaster's working folder is its data folder. If there is no /proc to show that, the name of the program must do. */
async function servesFolder(pid: number, dataDir: string): Promise<boolean> {
  if (process.platform === 'linux') {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
    return cwd === (await realpath(dataDir));
  }
  const { stdout } = await run('ps', ['-o', 'comm=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
  return /postgres|postmaster/.test(stdout);
}

function notEntered(dataDir: string, account: Account | undefined): InvalidInput {
  const who =
    account === undefined ? 'you' : `account "${account.name}", which runs Postgres because Postgres refuses root,`;
  return new InvalidInput(`${who} cannot enter the data folder "${dataDir}"; name another folder`, {
    field: 'data',
  });
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return 'stderr' in error && typeof error.stderr === 'string' && error.stderr ? error.stderr.trim() : error.message;
}
