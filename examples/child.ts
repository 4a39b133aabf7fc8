import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export interface ChildOptions {
  readonly env: Readonly<Record<string, string>>;
  /** What it tells this process: see `tellParent`. */
  readonly onMessage?: (message: object) => void;
  /** Each line it writes, to either stream. */
  readonly onLine?: (line: string) => void;
}

/** How long a child may take to get ready, and to end when asked to. */
// Twenty of them start on two cores that do other things, too.
const READY_MS = 60_000;
const STOP_MS = 10_000;

/** A Node process of an example. It ends when this process ends, however that happens: its channel closes then. */
export class Child {
  readonly pid: number;
  /** The message with `ready: true`; rejects with its last lines when it ends before. */
  readonly ready: Promise<object>;
  readonly exited: Promise<unknown>;
  readonly #process: ChildProcess;
  readonly #lines: string[] = [];

  constructor(script: URL, { env, onMessage, onLine }: ChildOptions) {
    const path = fileURLToPath(script);
    // A process group of its own: Ctrl-C is meant for us, who then ask it to end.
    const child = spawn(process.execPath, [path], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      detached: true,
    });
    this.#process = child;
    this.pid = child.pid ?? 0;
    this.exited = once(child, 'exit');
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.#lines.push(line);
        if (this.#lines.length > 20) this.#lines.shift();
        onLine?.(line);
      });
    }
    this.ready = this.#becomeReady(path);
    child.on('message', (message) => {
      if (typeof message === 'object' && message !== null) onMessage?.(message);
    });
  }

  get isRunning(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Somebody asked it to end, and it did: us, a terminal, or whatever stops all processes of a service at once. */
  get wasTold(): boolean {
    const { exitCode, signalCode } = this.#process;
    return exitCode === 0 || ['SIGINT', 'SIGTERM', 'SIGHUP'].includes(signalCode ?? '');
  }

  /** How it ended, with the last that it wrote. */
  get lastWords(): string {
    const { exitCode, signalCode } = this.#process;
    return [signalCode ?? `code ${exitCode}`, ...this.#lines.slice(-5)].join('\n');
  }

  /** SIGKILL: it gets no chance to tidy up. Resolves when it is gone. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.exited;
  }

  /** Asks it to end; after 10 s it is not asked any more. */
  async stop(): Promise<void> {
    if (!this.isRunning) return;
    this.#process.kill('SIGTERM');
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), STOP_MS);
    await this.exited;
    clearTimeout(timer);
  }

  #becomeReady(path: string): Promise<object> {
    const ready = new Promise<object>((resolve, reject) => {
      const fail = (what: string): void => reject(new Error([`${path} ${what}`, ...this.#lines].join('\n')));
      const timer = setTimeout(() => fail(`was not ready within ${READY_MS} ms`), READY_MS);
      this.#process.on('message', (message) => {
        if (typeof message !== 'object' || message === null || !('ready' in message)) return;
        clearTimeout(timer);
        resolve(message);
      });
      // 'close' comes after the last line was read, 'exit' may come before it.
      this.#process.once('close', (code, signal) => {
        clearTimeout(timer);
        fail(`ended with ${signal ?? `code ${code}`} before it was ready`);
      });
      this.#process.once('error', reject);
    });
    // A caller that awaits it receives the error; a child that is killed before it is ready may have no such caller.
    ready.catch(() => {});
    return ready;
  }
}
