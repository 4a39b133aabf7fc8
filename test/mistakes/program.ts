import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { atTestEnd } from '../support/together.ts';

/** The end of a program. */
export interface ProgramEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running program that uses the built package. */
export interface Program {
  readonly ended: Promise<ProgramEnd>;
  isRunning(): boolean;
  /** The text that it has written to standard error so far. */
  stderr(): string;
}

/** Runs `source`, an ES module; it is stopped at the end of the test. Needs `dist/`: `npm run build`. */
export function startProgram(source: string, env: NodeJS.ProcessEnv = {}): Program {
  const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (part: string) => {
    stderr += part;
  });
  const code = new Promise<number | null>((resolve) => child.once('close', resolve));
  const stdout = text(child.stdout);
  const ended = Promise.all([code, stdout]).then(([code, stdout]) => ({ code, stdout, stderr }));
  atTestEnd(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return { ended, isRunning: () => child.exitCode === null && child.signalCode === null, stderr: () => stderr };
}

/** A URL at which no server answers. */
export const NOBODY = 'postgres://app:secret@127.0.0.1:1/app';
