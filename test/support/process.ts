import { inject } from 'vitest';
import { type Child, startChild } from './children/child-process.ts';
import { atTestEnd } from './together.ts';

export type { Child, Exit } from './children/child-process.ts';

/**
 * Starts `script`, a path from test/ such as `crash/worker.child.ts`, and kills it at the end of the test. To be called
 * inside a test.
 */
export function spawnChild(script: string, args: readonly string[] = [], env: NodeJS.ProcessEnv = {}): Child {
  const child = startChild(script, { folder: inject('children'), args, env });
  atTestEnd(() => child.kill());
  return child;
}
