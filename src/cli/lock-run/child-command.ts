import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { after } from '../../base/time/clock.ts';
import { EXIT, Failure, Interruption } from '../output/failure.ts';
import { ProcessGroup } from './process-group.ts';
import { relaySignals } from './relay-signals.ts';

/** How long processes may take to disappear after SIGKILL: they do no more work, even if the kernel still waits. */
const DYING_MS = 1000;

/**
 * A command that is run and supervised. Without a terminal it gets a process group of its own, and the whole group is
 * supervised: every process that the command starts is ended with it. At a terminal it stays in our group, because it could not
 * read from the terminal otherwise, and Ctrl-C reaches it by itself. There only the command itself is supervised.
 */
export class ChildCommand {
  /**
   * Settles once no process of its group is left: its exit code, or 128 plus the number of the signal that ended it.
   * @throws Failure if it cannot be started
   */
  readonly ended: Promise<number>;
  readonly #child: ChildProcess;
  readonly #group: ProcessGroup | undefined;
  readonly #killAfterMs: number;
  /** True: the whole group was asked to end. */
  #isAsked = false;
  #cancelKill: (() => void) | undefined;

  /**
   * @param killAfterMs  how long the command may take to end when it is asked to, and how long the processes may that it leaves
   */
  constructor(words: readonly string[], env: Readonly<Record<string, string>>, killAfterMs: number) {
    const [file = '', ...args] = words;
    const isGroup = process.stdin.isTTY !== true && process.platform !== 'win32';
    this.#killAfterMs = killAfterMs;
    this.#child = spawn(file, args, { stdio: 'inherit', detached: isGroup, env: { ...process.env, ...env } });
    const { pid } = this.#child;
    this.#group = isGroup && pid !== undefined ? new ProcessGroup(pid) : undefined;
    // The command must not outlive the lock: a second signal ends this process at once.
    const onExit = (): void => this.#send('SIGKILL');
    process.on('exit', onExit);
    const stopRelaying = relaySignals((signal) => this.#send(signal), isGroup);
    this.ended = this.#end(file).finally(() => {
      process.off('exit', onExit);
      stopRelaying();
      this.#cancelKill?.();
    });
  }

  /** Asks the command to end, and kills it if it does not. */
  end(): void {
    this.#ask();
    this.#cancelKill ??= after(this.#killAfterMs, () => this.#send('SIGKILL'));
  }

  /** Passes on a signal that we got. The command decides what to do about it. */
  passOn(reason: unknown): void {
    const isInterrupt = reason instanceof Interruption && reason.exit === EXIT.interrupted;
    if (!isInterrupt) this.#ask();
    else if (this.#group !== undefined) this.#send('SIGINT');
  }

  async #end(file: string): Promise<number> {
    const code = await new Promise<number>((resolve, reject) => {
      this.#child.once('error', (error: NodeJS.ErrnoException) => reject(startFailure(file, error)));
      this.#child.once('exit', (exit, signal) => resolve(exit ?? 128 + (signal ? constants.signals[signal] : 0)));
    });
    await this.#endRest();
    return code;
  }

  /** A shell may have died of a signal while the program that it ran still cleans up, or it may have left processes behind. */
  async #endRest(): Promise<void> {
    if (this.#group === undefined || this.#group.isGone) return;
    if (!this.#isAsked) this.#ask();
    if (await this.#group.gone(this.#killAfterMs)) return;
    this.#send('SIGKILL');
    await this.#group.gone(DYING_MS);
  }

  #ask(): void {
    this.#isAsked = true;
    this.#send('SIGTERM');
  }

  #send(signal: NodeJS.Signals): void {
    if (this.#group !== undefined) this.#group.send(signal);
    else this.#child.kill(signal);
  }
}

/** Uses the exit codes of shells. */
function startFailure(file: string, error: NodeJS.ErrnoException): Failure {
  const isMissing = error.code === 'ENOENT';
  return new Failure(`the command "${file}" cannot be run: ${isMissing ? 'there is none' : error.message}`, {
    exit: isMissing ? 127 : 126,
    next: 'check the words after --',
  });
}
