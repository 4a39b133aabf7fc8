import { describe } from 'vitest';
import { attemptPromises } from './contract/attempts.ts';
import { enqueuePromises } from './contract/enqueue.ts';
import type { Fixture, Lacks } from './contract/fixture.ts';
import { keyPromises } from './contract/keys.ts';
import { oncePromises } from './contract/once.ts';
import { workPromises } from './contract/work.ts';

/** The promises of a queue, whatever its engine: called once for each engine and each hold. */
export function queueContract(open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  describe('enqueue', () => enqueuePromises(open, lacks));
  describe('keys', () => keyPromises(open, lacks));
  describe('attempts', () => attemptPromises(open));
  describe('once', () => oncePromises(open));
  describe('workers', () => workPromises(open, lacks));
}
