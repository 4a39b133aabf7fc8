import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';
import { cleanEnvironment, type PawlExit, type PawlOptions, pawl } from './pawl.ts';

/** What the process is told to run. */
export interface PawlOutput {
  readonly words: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
}

/** Next to the published command, and all of it except the last line. */
const COMMAND_LINE = fileURLToPath(new URL('../../dist/cli/command-line.js', import.meta.url));

/**
 * Runs a command to its end: the first of its name in a run in a process of its own, as it is published, and those after it in one
 * that has Node and Pawl loaded, which is nine tenths of what a short command takes. For what reads no stdin, starts no program and
 * needs no signal.
 */
export async function warmPawl(args: readonly string[], options: PawlOptions = {}): Promise<PawlExit> {
  const [name = ''] = args;
  if (options.input !== undefined || options.main !== undefined || isFirst(name)) return pawl(args, options);
  return tell({ words: args, env: cleanEnvironment(options), ...(options.cwd !== undefined && { cwd: options.cwd }) });
}

/** Of all workers of the run: they share the folder. */
function isFirst(name: string): boolean {
  try {
    mkdirSync(join(inject('children'), `first ${encodeURIComponent(name)}`));
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

let warm: Promise<Warm> | undefined;
let before: Promise<unknown> = Promise.resolve();

interface Warm {
  readonly child: ChildProcess;
  /** Rejects when it ends before its parent does. */
  readonly ended: Promise<never>;
}

/** One after the other: a process has one environment, one folder and one output. */
function tell(told: PawlOutput): Promise<PawlExit> {
  const answer = before.then(async () => {
    const { child, ended } = await (warm ??= start());
    const said = once(child, 'message');
    child.send(told);
    const [outcome]: PawlExit[] = await Promise.race([said, ended]);
    if (outcome === undefined) throw new Error(`${JSON.stringify(told.words)} had no outcome`);
    return outcome;
  });
  before = answer.catch(() => {
    warm = undefined;
  });
  return answer;
}

/** It lives as long as this process, and does not keep that alive. */
async function start(): Promise<Warm> {
  const child = fork(join(inject('children'), 'cli/warm-pawl.child.mjs'), [COMMAND_LINE], {
    env: cleanEnvironment({}),
    execArgv: [],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let errors = '';
  const stderr = child.stderr as Socket;
  stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const ended = once(child, 'exit').then((exit): never => {
    throw new Error(`the process of many commands ended: ${JSON.stringify(exit)}\n${errors}`);
  });
  ended.catch(() => {});
  await Promise.race([once(child, 'message'), ended]);
  child.unref();
  child.channel?.unref();
  stderr.unref();
  return { child, ended };
}
