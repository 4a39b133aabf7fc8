import { describe } from 'vitest';
import { attemptPromises } from './contract/attempts.ts';
import { enqueuePromises } from './contract/enqueue.ts';
import type { Fixture } from './contract/fixture.ts';
import { keyPromises } from './contract/keys.ts';
import { workPromises } from './contract/work.ts';

/** What a queue promises, whatever holds its jobs: run once for each engine and way to hold a unit. */
export function queueContract(open: () => Promise<Fixture>): void {
  describe('enqueue', () => enqueuePromises(open));
  describe('keys', () => keyPromises(open));
  describe('attempts', () => attemptPromises(open));
  describe('workers', () => workPromises(open));
}
