import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { EXIT, Failure, Interrupted } from './failure.ts';

/**
 * A command that is run and looked after. Without a terminal it gets a process group of its own, so that whatever it starts
 * is ended with it; at a terminal it stays in ours, or it could not read from there, and Ctrl-C reaches it by itself.
 */
export class Charge {
  /** Its exit code, or 128 plus the number of the signal that ended it. @throws Failure when it cannot be started */
  readonly ended: Promise<number>;
  readonly #child: ChildProcess;
  readonly #isGroup: boolean;
  readonly #killAfterMs: number;
  #killer: NodeJS.Timeout | undefined;

  /** @param killAfterMs  how long it may take to end when it is told to */
  constructor(words: readonly string[], env: Readonly<Record<string, string>>, killAfterMs: number) {
    const [file = '', ...args] = words;
    this.#isGroup = process.stdin.isTTY !== true && process.platform !== 'win32';
    this.#killAfterMs = killAfterMs;
    this.#child = spawn(file, args, {
      stdio: 'inherit',
      detached: this.#isGroup,
      env: { ...process.env, ...env },
    });
    // It must not outlive the lock: a second signal ends this process at once, and so does a terminal that is closed.
    const onExit = (): void => this.#send('SIGKILL');
    const onHangUp = (): void => this.#send('SIGHUP');
    process.on('exit', onExit);
    process.on('SIGHUP', onHangUp);
    this.ended = new Promise<number>((resolve, reject) => {
      this.#child.once('error', (error: NodeJS.ErrnoException) => reject(startFailure(file, error)));
      this.#child.once('exit', (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)));
    }).finally(() => {
      process.off('exit', onExit);
      process.off('SIGHUP', onHangUp);
      if (this.#killer === undefined) return;
      clearTimeout(this.#killer);
      // What it started may have stayed behind.
      if (this.#isGroup) this.#kill('SIGKILL');
    });
  }

  /** Asks it to end, and ends it if it does not. */
  end(): void {
    this.#send('SIGTERM');
    this.#killer ??= setTimeout(() => this.#send('SIGKILL'), this.#killAfterMs);
  }

  /** A signal that we got. What it does about it is its own affair. */
  passOn(reason: unknown): void {
    const isInterrupt = reason instanceof Interrupted && reason.exit === EXIT.interrupted;
    if (!isInterrupt) this.#send('SIGTERM');
    else if (this.#isGroup) this.#send('SIGINT');
  }

  #send(signal: NodeJS.Signals): void {
    const { exitCode, signalCode } = this.#child;
    if (exitCode === null && signalCode === null) this.#kill(signal);
  }

  #kill(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(this.#isGroup ? -pid : pid, signal);
    } catch (error) {
      // Nothing is left of it.
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

/** With the exit codes of shells. */
function startFailure(file: string, error: NodeJS.ErrnoException): Failure {
  const isMissing = error.code === 'ENOENT';
  return new Failure(`the command "${file}" cannot be run: ${isMissing ? 'there is none' : error.message}`, {
    exit: isMissing ? 127 : 126,
    next: 'check the words after --',
  });
}
