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

/** Recovery of a kept folder after a crash may take long, but then the server answers "starting up" meanwhile. */
const SILENCE_MS = 60_000;
/** Fast shutdown writes a checkpoint; past this we end at once, and the next start recovers. */
const FAST_MS = 15_000;
const IMMEDIATE_MS = 10_000;
const LOG_LINES = 20;

/** What one start of the server takes. */
export interface Launch extends Machinery {
  readonly cluster: Cluster;
  readonly port: number;
  readonly settings: Readonly<Record<string, string>>;
  readonly log: ((line: string) => void) | undefined;
}

/** One running server process. */
export interface Postmaster {
  readonly pid: number;
  /** False from the moment its end was noticed. */
  readonly isRunning: boolean;
  /** Ends it: `fast` breaks connections and writes a checkpoint, `immediate` is a crash on purpose. SIGKILL when it hangs. */
  end(mode: 'fast' | 'immediate'): Promise<void>;
}

/** Why this start failed, where the caller can do something about it. */
export interface StartObstacle {
  /** The port is taken; a killed server's last sessions hold its memory; another server has the data folder. */
  readonly obstacle: 'port' | 'memory' | 'folder';
  readonly error: ConnectionFailed;
}

const running = new Set<number>();
let isHooked = false;

/**
 * Starts the server and waits until it answers a real connection.
 * @throws ConnectionFailed  when it does not start for any other reason than an obstacle
 */
export async function launch(launching: Launch): Promise<Postmaster | StartObstacle> {
  const { binaries, account, cluster, watchdog } = launching;
  const output = serverLog(launching);
  const settings = Object.entries(launching.settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  // A session of its own: Ctrl-C in the terminal must reach us first, so that work can be settled before the server goes.
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

/** Connects until it works. Only our server knows the password, so one that took our port meanwhile does not count. */
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
      // A stranger on our port may take the connection and say nothing, while our server has long ended over it.
      const isConnected = await Promise.race([client.connect().then(() => true), ended.then(() => false)]);
      const closed = client.end().catch(() => {});
      if (isConnected) return await closed;
    } catch (error) {
      // 57P03: cannot connect now, as it is still starting.
      if (error instanceof Error && 'code' in error && error.code === '57P03') deadline = now() + SILENCE_MS;
      if (now() > deadline) throw error;
      await sleep(10);
    }
  }
  throw new Error('the server process ended');
}

/** The server says why it ended in its log alone; the messages are English, as we set its locale. */
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
 * The server writes to a file, as a pipe that we read too slowly (a blocked event loop, SIGSTOP) would block every session
 * that logs. Only who asks for the lines gets the pipe.
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

/** A normal exit of this process tells its servers; the watchdog does the rest, and all of it after SIGKILL. */
function track(pid: number): void {
  if (pid > 0) running.add(pid);
  if (isHooked) return;
  isHooked = true;
  process.on('exit', () => {
    for (const each of running) {
      try {
        process.kill(each, 'SIGINT');
      } catch {
        // Gone already.
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
