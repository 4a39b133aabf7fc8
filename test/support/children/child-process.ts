import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** A Node process that runs a TypeScript script of the tests. */
export interface Child {
  readonly pid: number;
  /** The next line of JSON on its standard output, in order, each once; other lines are passed over. Fails when it ends first. */
  message<T = unknown>(): Promise<T>;
  /** Writes a line of JSON to its standard input. */
  send(message: unknown): void;
  /** SIGKILL by default. Resolves when it is gone. */
  kill(signal?: NodeJS.Signals): Promise<Exit>;
  /** SIGSTOP: it stands still, timers and all, with its connections open. */
  pause(): void;
  resume(): void;
  readonly exited: Promise<Exit>;
  /** What it wrote to standard error so far. */
  stderr(): string;
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** What a script is started with. */
export interface ChildOptions {
  /** Where the scripts stand that were built: see `buildChildren`. */
  readonly folder: string;
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
}

/** Starts `script`, a path from test/ such as `crash/worker.child.ts`. It is the caller's to end. */
export function startChild(script: string, { folder, args = [], env = {} }: ChildOptions): Child {
  const path = join(folder, script.replace(/\.ts$/, '.mjs'));
  const child = spawn(process.execPath, [path, ...args], {
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit').then(([code, signal]): Exit => ({ code, signal }));
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  child.stdin.on('error', () => {});
  const messages = jsonLines(child);
  return {
    pid: child.pid ?? 0,
    message: async <T>() => {
      const { value, done } = await messages.next();
      if (done) throw new Error(`${script} ended without a message (${JSON.stringify(await exited)})\n${errors}`);
      return value as T;
    },
    send: (message) => void child.stdin.write(`${JSON.stringify(message)}\n`),
    kill: (signal = 'SIGKILL') => {
      child.kill(signal);
      return exited;
    },
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    exited,
    stderr: () => errors,
  };
}

async function* jsonLines({ stdout }: ChildProcess): AsyncGenerator<unknown, void> {
  if (stdout === null) return;
  for await (const line of createInterface({ input: stdout })) {
    if (/^[[{]/.test(line)) yield JSON.parse(line);
  }
}
