import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { until } from '../support/eventually.ts';

/** The built command, as it is published. */
export const MAIN: string = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

/** How a command ended. */
export interface PawlExit {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly pid: number;
  readonly ended: Promise<PawlExit>;
  stdout(): string;
  stderr(): string;
  signal(name: NodeJS.Signals): void;
  /** Waits until it has written something on stderr. */
  said(pattern: RegExp): Promise<void>;
}

export interface PawlOptions {
  /** Database, as PAWL_URL. */
  readonly url?: string;
  readonly env?: NodeJS.ProcessEnv;
  /**
   * What stdin has; null: nothing, and it stays open. Each text of a list is written when the command has read nearly all of those
   * before it.
   */
  readonly input?: string | readonly string[] | null;
  readonly cwd?: string;
  /** Another path to the same file. */
  readonly main?: string;
}

/** Runs a command to its end. */
export function pawl(args: readonly string[], options: PawlOptions = {}): Promise<PawlExit> {
  return startPawl(args, options).ended;
}

/** Starts a command, in a clean environment, and kills it at the end of the test if it still runs. */
export function startPawl(args: readonly string[], options: PawlOptions = {}): Running {
  const { input, cwd, main = MAIN } = options;
  const child = spawn(process.execPath, [main, ...args], {
    env: cleanEnvironment(options),
    ...(cwd === undefined ? {} : { cwd }),
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  child.stdin.on('error', () => {});
  if (input !== null) void feed(child.stdin, [input ?? ''].flat());
  const ended = once(child, 'close').then(([code]): PawlExit => ({ code, stdout, stderr }));
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    pid: child.pid ?? 0,
    ended,
    stdout: () => stdout,
    stderr: () => stderr,
    signal: (name) => void child.kill(name),
    said: async (pattern) => {
      await until(`it said ${pattern}`, () => pattern.test(stderr)).catch((error: unknown) => {
        throw new Error(`it did not come; it printed: ${stderr}`, { cause: error });
      });
    },
  };
}

async function feed(stdin: Writable, texts: readonly string[]): Promise<void> {
  for (const text of texts) await new Promise<void>((resolve) => stdin.write(text, () => resolve()));
  stdin.end();
}

/** What the command sees of ours, and what it is given. */
export function cleanEnvironment({ url, env }: PawlOptions): NodeJS.ProcessEnv {
  const { PATH, HOME, TMPDIR } = process.env;
  return { PATH, HOME, TMPDIR, ...(url === undefined ? {} : { PAWL_URL: url }), ...env };
}

/** A URL of a server that accepts connections and never answers. */
export async function silentServer(): Promise<{ url: string; called: Promise<unknown> }> {
  const server = createServer();
  const called = once(server, 'connection').then(([socket]) => socket.on('error', () => {}));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  return { url: `postgres://me:secret@127.0.0.1:${port}/app`, called };
}
