import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { ConnectionFailed } from '../../../base/errors.ts';
import { now } from '../../../base/time/clock.ts';
import { identity } from './account.ts';
import { type Cluster, type Machinery, SERVER_ENV } from './cluster.ts';

/** The recovery of a kept folder after a crash may take long, but the server answers "starting up" meanwhile. */
const SILENCE_MS = 60_000;
/** Fast shutdown writes a checkpoint. After this time the server is ended at once, and the next start recovers. */
const FAST_MS = 15_000;
const IMMEDIATE_MS = 10_000;
const LOG_LINES = 20;

/** What one start of the server needs. */
export interface Launch extends Machinery {
  readonly cluster: Cluster;
  readonly port: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly log: ((line: string) => void) | undefined;
}

/** One running server process. */
export interface Postmaster {
  readonly pid: number;
  /** False once its end was noticed. */
  readonly isRunning: boolean;
  /**
   * Ends it: `fast` breaks connections and writes a checkpoint, `immediate` is a crash on purpose. SIGKILL if the process
   * hangs.
   */
  end(mode: 'fast' | 'immediate'): Promise<void>;
}

/** The reason why this start failed, if the caller can do something about it. */
export interface StartObstacle {
  /** The port is taken; the last sessions of a killed server hold its memory; another server has the data folder. */
  readonly obstacle: 'port' | 'memory' | 'folder';
  readonly error: ConnectionFailed;
}

const running = new Set<number>();
let isHooked = false;

/**
 * Starts the server and waits until it answers a real connection.
 * @throws ConnectionFailed  the server does not start, for any other reason than an obstacle
 */
export async function launch(launching: Launch): Promise<Postmaster | StartObstacle> {
  const { binaries, account, cluster, watchdog } = launching;
  const output = serverLog(launching);
  const settings = Object.entries(launching.settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  // A session of its own: Ctrl-C in the terminal must reach this process first, so that it can settle its work before the
  // server ends.
  const child = spawn(binaries.postgres, ['-D', cluster.dataDir, ...settings], {
    cwd: '/',
    env: SERVER_ENV,
    detached: true,
    stdio: ['ignore', 'ignore', output.stdio],
    ...identity(account),
  });
  const pid = child.pid ?? 0;
  watchdog.watch(child.pid);
  track(pid);
  let isRunning = true;
  const ended = new Promise<void>((done) => {
    const finish = (): void => {
      isRunning = false;
      running.delete(pid);
      watchdog.watch(undefined);
      done();
    };
    child.once('exit', finish);
    child.once('error', finish);
  });
  child.unref();
  output.follow(child.stderr);
  const master: Postmaster = {
    pid,
    get isRunning() {
      return isRunning;
    },
    end: async (mode) => {
      child.ref();
      const steps = [['SIGINT', FAST_MS] as const, ['SIGQUIT', IMMEDIATE_MS] as const].slice(mode === 'fast' ? 0 : 1);
      for (const [signal, ms] of steps) {
        child.kill(signal);
        if (await within(ended, ms)) return;
      }
      child.kill('SIGKILL');
      await ended;
    },
  };
  try {
    await untilAnswers(launching, () => isRunning, ended);
  } catch (error) {
    await master.end('immediate');
    return startFailure(error, await output.lastLines());
  }
  return master;
}

/**
 * Connects until it works. Only our server knows the password, so another program that took our port meanwhile does not count.
 */
async function untilAnswers({ cluster, port }: Launch, isRunning: () => boolean, ended: Promise<void>): Promise<void> {
  let deadline = now() + SILENCE_MS;
  while (isRunning()) {
    const client = new pg.Client({
      host: '127.0.0.1',
      port,
      user: 'postgres',
      password: cluster.password,
      database: 'postgres',
      connectionTimeoutMillis: 5000,
    });
    client.on('error', () => {});
    try {
      // Another program on our port may accept the connection and say nothing, long after our server has ended.
      const isConnected = await Promise.race([client.connect().then(() => true), ended.then(() => false)]);
      const closed = client.end().catch(() => {});
      if (isConnected) return await closed;
    } catch (error) {
      // 57P03: the server cannot accept a connection now, because it is still starting.
      if (error instanceof Error && 'code' in error && error.code === '57P03') deadline = now() + SILENCE_MS;
      if (now() > deadline) throw error;
      await sleep(10);
    }
  }
  throw new Error('the server process ended');
}

/** Only the log says why the server ended. Its messages are English, because we set the locale. */
const OBSTACLES = [
  ['port', /could not bind|could not create any TCP/],
  ['memory', /pre-existing shared memory block/],
  ['folder', /lock file "postmaster.pid" already exists/],
] as const;

function startFailure(cause: unknown, lines: string[]): StartObstacle {
  const text = lines.join('\n  ');
  const message = `Postgres did not start: ${cause instanceof Error ? cause.message : String(cause)}\n  ${text}`;
  const error = new ConnectionFailed(message, { cause });
  const obstacle = OBSTACLES.find(([, pattern]) => pattern.test(text))?.[0];
  if (obstacle === undefined) throw error;
  return { obstacle, error };
}

/**
 * The server writes to a file. If it wrote to a pipe, and we read too slowly (a blocked event loop, SIGSTOP), the pipe would
 * block every session that logs. Only a caller that asks for the lines gets the pipe.
 */
function serverLog({ runDir, log }: Launch): ServerLog {
  if (log === undefined) {
    const path = join(runDir, 'server.log');
    const file = openSync(path, 'w', 0o600);
    const lastLines = async (): Promise<string[]> =>
      (await readFile(path, 'utf8')).trimEnd().split('\n').slice(-LOG_LINES);
    return { stdio: file, follow: () => closeSync(file), lastLines };
  }
  const lines: string[] = [];
  let ended: Promise<unknown> = Promise.resolve();
  const follow = (output: NodeJS.ReadableStream | null): void => {
    if (output === null) return;
    (output as Socket).unref();
    const reader = createInterface({ input: output });
    ended = once(reader, 'close');
    reader.on('line', (line) => {
      lines.push(line);
      if (lines.length > LOG_LINES) lines.shift();
      log(line);
    });
  };
  return { stdio: 'pipe', follow, lastLines: async () => (await within(ended, 1000), lines) };
}

interface ServerLog {
  readonly stdio: number | 'pipe';
  follow(output: NodeJS.ReadableStream | null): void;
  lastLines(): Promise<string[]>;
}

/**
 * At a normal exit this process signals its servers, and the watchdog does the rest. After SIGKILL the watchdog does
 * everything.
 */
function track(pid: number): void {
  if (pid > 0) running.add(pid);
  if (isHooked) return;
  isHooked = true;
  process.on('exit', () => {
    for (const each of running) {
      try {
        process.kill(each, 'SIGINT');
      } catch {
        // It is gone already.
      }
    }
  });
}

async function within(promise: Promise<unknown>, ms: number): Promise<boolean> {
  const timer = new AbortController();
  const late = sleep(ms, false, { signal: timer.signal }).catch(() => false);
  const isDone = await Promise.race([promise.then(() => true), late]);
  timer.abort();
  return isDone;
}
