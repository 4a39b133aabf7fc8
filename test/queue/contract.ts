import { describe } from 'vitest';
import { afterPromises } from './contract/after.ts';
import { attemptPromises } from './contract/attempts.ts';
import { batchPromises, noBatchPromises } from './contract/batch.ts';
import { batchesPromises } from './contract/batches.ts';
import { changePromises } from './contract/change.ts';
import { debouncePromises } from './contract/debounce.ts';
import { enqueuePromises } from './contract/enqueue.ts';
import { expiryPromises } from './contract/expires.ts';
import type { Fixture, Lacks } from './contract/fixture.ts';
import { flowPromises } from './contract/flow.ts';
import { keyPromises } from './contract/keys.ts';
import { oncePromises } from './contract/once.ts';
import { uniquePromises } from './contract/unique.ts';
import { workPromises } from './contract/work.ts';

/** The promises of a queue, whatever its engine: called once for each engine and each hold. @param hold  that of its workers */
export function queueContract(hold: Fixture['hold'], open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  describe('enqueue', () => enqueuePromises(open, lacks));
  describe('keys', () => keyPromises(open, lacks));
  describe('attempts', () => attemptPromises(open));
  describe('after', () => afterPromises(open));
  describe('flow', () => flowPromises(open));
  describe('unique', () => uniquePromises(hold, open));
  describe('changes by hand', () => changePromises(hold, open));
  describe('once', () => oncePromises(open));
  describe('batch handlers', () => (hold === 'lease' ? batchPromises(open, lacks) : noBatchPromises(open)));
  describe('workers', () => workPromises(open, lacks));
  if (hold === 'transaction') return;
  describe('batches', () => batchesPromises(open));
  describe('debounce', () => debouncePromises(open));
  describe('expiresAt', () => expiryPromises(open));
}
