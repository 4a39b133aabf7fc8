import { expect, test } from 'vitest';
import { ClaimReconciler } from '../../../src/base/handoff/claim-reconciler.ts';
import { DirectHandoff } from '../../../src/base/handoff/direct-handoff.ts';
import type { Handoff } from '../../../src/base/handoff/handoff.ts';

function looks(): ClaimReconciler<Handoff> {
  const none = (): void => {};
  const offers = new DirectHandoff<Handoff>({
    name: 'test',
    store: {
      offer: async () => {},
      withdraw: async () => [],
      listenForHandoffs: async () => ({ stop: async () => {} }) as never,
    },
    worker: () => 1,
    isFree: () => false,
    isAsleep: () => true,
    onHandoff: none,
    onError: none,
  });
  return new ClaimReconciler({ name: 'test', handoff: offers, leaseMs: 1000, pollMs: 1000, accept: none, wake: none });
}

test('after a lost answer half as much is asked for, and more only after answers that brought all that was asked for', () => {
  const some = looks();
  expect(some.limit(40)).toBe(40);
  some.noteLostAnswer();
  expect(some.limit(40)).toBe(20);
  some.noteLostAnswer();
  // Empty answers, and those that found a little next to what is locked, say nothing about how long 20 would take.
  for (let n = 0; n < 100; n += 1) {
    expect(some.limit(40)).toBe(10);
    some.noteAnswer(n % 10);
  }
  for (let n = 0; n < 20; n += 1) some.noteAnswer(some.limit(40));
  expect(some.limit(40)).toBe(40);
});
