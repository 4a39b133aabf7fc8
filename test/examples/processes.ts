import { onTestFinished } from 'vitest';
import type { Child as ChildClass } from '../../examples/child.ts';
import type * as Token from '../../examples/spreadsheets/token.ts';
import type * as Workbook from '../../examples/spreadsheets/workbook.ts';

// What is tested is what a user runs: the compiled examples, which import the compiled library by its name.
const DIST = new URL('../../dist-examples/', import.meta.url);

/** A module of the compiled examples. */
export async function compiled<T>(path: string): Promise<T> {
  const module: T = await import(new URL(path, DIST).href);
  return module;
}

const { Child } = await compiled<{ Child: typeof ChildClass }>('child.js');
const token = await compiled<typeof Token>('spreadsheets/token.js');
const workbook = await compiled<typeof Workbook>('spreadsheets/workbook.js');
export const signToken: typeof Token.signToken = token.signToken;
export const readWorkbook: typeof Workbook.readWorkbook = workbook.readWorkbook;

export const SECRET = 'a secret of the tests, long enough to be one';

/** Starts a process of the example, and waits until it is ready. It is killed at the end of the test or the file. */
export async function start(script: string, env: Readonly<Record<string, string>>): Promise<RunningProgram> {
  const child = new Child(new URL(script, DIST), { env: { SPREADSHEETS_SECRET: SECRET, PORT: '0', ...env } });
  const ready = await child.ready;
  return { child, url: 'url' in ready ? String(ready.url) : '' };
}

export interface RunningProgram {
  readonly child: ChildClass;
  readonly url: string;
}

/** The same, for one test. */
export async function startHere(script: string, env: Readonly<Record<string, string>>): Promise<RunningProgram> {
  const started = await start(script, env);
  onTestFinished(() => started.child.kill());
  return started;
}
