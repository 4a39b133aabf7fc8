import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { type Account, identity } from './account.ts';

/**
 * Reads the pid of the program to end from stdin: a line each time it changes, an empty one if none runs. End of file means
 * that the process at the other end is gone, for any reason. Then the script ends the program and removes the folder. INT is
 * Postgres' fast shutdown, QUIT its immediate one.
 */
const SCRIPT = `
trap '' HUP INT TERM
pid=
while read -r line; do pid=$line; done
gone() { [ -z "$pid" ] || ! kill -0 "$pid" 2>/dev/null; }
for signal in INT QUIT KILL; do
  gone || kill -$signal "$pid" 2>/dev/null
  tries=0
  until gone || [ $tries -ge 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
tries=0
until rm -rf "$0" 2>/dev/null || [ $tries -ge 50 ]; do sleep 0.1; tries=$((tries + 1)); done
`;

/** A small shell that outlives this process, so that a server does not outlive it for long. */
export interface Watchdog {
  /** Says which program to end when this process dies; undefined if there is none. */
  watch(pid: number | undefined): void;
  /** Ends the watchdog: when this resolves, the watchdog has removed the folder and is gone. */
  dismiss(): Promise<void>;
}

/**
 * Starts a watchdog. Once this process is gone, even by SIGKILL, the watchdog ends the watched program and removes `folder`. It
 * runs as the server's account, so it can end and remove only what belongs to that account.
 */
export function startWatchdog(folder: string, account: Account | undefined): Watchdog {
  // A session of its own: Ctrl-C in the terminal signals the whole foreground group, and must not end the watchdog.
  const shell = spawn('/bin/sh', ['-c', SCRIPT, folder], {
    cwd: '/',
    env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin' },
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    ...identity(account),
  });
  const ended = shell.pid === undefined ? Promise.resolve() : once(shell, 'exit');
  // Without a shell, or with one killed by hand, the server still ends with `stop()` and with a normal exit.
  shell.on('error', () => {});
  shell.stdin.on('error', () => {});
  shell.unref();
  unrefInput(shell);
  return {
    watch: (pid) => void shell.stdin.write(`${pid ?? ''}\n`),
    dismiss: async () => {
      shell.ref();
      shell.stdin.end('\n');
      await ended;
    },
  };
}

/** In Bun, the input of a child process has no `unref`. */
function unrefInput(shell: ChildProcess): void {
  (shell.stdin as Partial<Socket>).unref?.();
}
