import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkOptions } from '../../../src/base/options/options.ts';
import { BACKOFF, type Backoff, backoffShape, delay } from '../../../src/base/time/backoff.ts';

const exact: Backoff = { ...BACKOFF, jitter: 0 };

function read(backoff?: unknown): Backoff {
  return checkOptions('createQueue', { backoff }, { backoff: backoffShape() }).backoff;
}

const policies = fc
  .record({
    kind: fc.constantFrom('fixed' as const, 'linear' as const, 'exponential' as const),
    a: fc.integer({ min: 1, max: 100_000_000 }),
    b: fc.integer({ min: 1, max: 100_000_000 }),
    factor: fc.double({ min: 1, max: 100, noNaN: true }),
    jitter: fc.double({ min: 0, max: 1, noNaN: true }),
  })
  .map(({ a, b, ...rest }): Backoff => ({ ...rest, min: Math.min(a, b), max: Math.max(a, b) }));
const randoms = fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true });

describe('delay', () => {
  test.each<[Backoff['kind'], number[]]>([
    ['fixed', [1000, 1000, 1000, 1000]],
    ['linear', [1000, 2000, 3000, 4000]],
    ['exponential', [1000, 2000, 4000, 8000]],
  ])('%s back-off grows as its name says', (kind, expected) => {
    expect([1, 2, 3, 4].map((attempt) => delay({ ...exact, kind }, attempt, 0.7))).toEqual(expected);
  });

  test('no wait is longer than max, however many attempts there were', () => {
    for (const attempt of [13, 14, 1000, 1e9]) expect(delay(exact, attempt, 0)).toBe(3_600_000);
  });

  test('every wait is within its bounds: never over max, never shortened by more than the jitter', () => {
    fc.assert(
      fc.property(policies, fc.integer({ min: 1, max: 100_000 }), randoms, (policy, attempt, random) => {
        const whole = delay({ ...policy, jitter: 0 }, attempt, random);
        const wait = delay(policy, attempt, random);
        expect(wait).toBeLessThanOrEqual(Math.min(whole, policy.max));
        expect(wait).toBeGreaterThanOrEqual(Math.floor(whole * (1 - policy.jitter)));
        expect(whole).toBeGreaterThanOrEqual(policy.min);
        expect(Number.isSafeInteger(wait)).toBe(true);
      }),
    );
  });

  test('without jitter no wait is shorter than the one before', () => {
    fc.assert(
      fc.property(policies, fc.integer({ min: 1, max: 1000 }), (policy, attempt) => {
        const still = { ...policy, jitter: 0 };
        expect(delay(still, attempt + 1, 0)).toBeGreaterThanOrEqual(delay(still, attempt, 0));
      }),
    );
  });
});

describe('backoffShape', () => {
  test('a kind alone, an object, or nothing becomes a complete policy', () => {
    expect(read()).toEqual(BACKOFF);
    expect(read('linear')).toEqual({ ...BACKOFF, kind: 'linear' });
    expect(read('fixed')).toEqual({ ...BACKOFF, kind: 'fixed', jitter: 0 });
    expect(read({ kind: 'linear', min: '5s', max: '1m', jitter: 0 })).toEqual({
      kind: 'linear',
      min: 5000,
      max: 60_000,
      factor: 2,
      jitter: 0,
    });
    expect(Object.isFrozen(read({ factor: 3 }))).toBe(true);
  });

  test('a min above the default max lifts it', () => {
    expect(read({ min: '2h' })).toMatchObject({ min: 7_200_000, max: 7_200_000 });
  });

  test('a call can have defaults of its own', () => {
    const { backoff } = checkOptions('f', {}, { backoff: backoffShape({ min: 50, max: 100 }) });
    expect(backoff).toEqual({ ...BACKOFF, min: 50, max: 100 });
  });

  test.each([
    [
      'exponentail',
      'option "backoff" for createQueue must be one of "fixed", "linear", "exponential", but was "exponentail"',
    ],
    [5, 'option "backoff" for createQueue must be "fixed", "linear", "exponential" or an object, but was 5'],
    [{ min: '2s', max: '1s' }, 'option "backoff.max" for createQueue (1s) must not be less than min (2s)'],
    [{ jiter: 1 }, 'unknown option "backoff.jiter" for createQueue; did you mean "backoff.jitter"?'],
    [{ factor: 0.5 }, 'option "backoff.factor" for createQueue must be a number from 1 to 100, but was 0.5'],
  ])('%j is refused', (value, message) => {
    expect(() => read(value)).toThrow(message);
  });
});
