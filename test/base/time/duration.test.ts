import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { formatDuration, parseDuration } from '../../../src/base/time/duration.ts';

const at = { field: 'lease' };

describe('parseDuration', () => {
  test.each([
    ['250ms', 250],
    ['5s', 5000],
    ['1.5s', 1500],
    ['3m', 180_000],
    ['24h', 86_400_000],
    ['90d', 7_776_000_000],
    ['1.1s', 1100],
    ['5 s', 5000],
    [1500, 1500],
    [0, 0],
    ['0s', 0],
  ])('%j is %d ms', (value, ms) => {
    expect(parseDuration(value, at)).toBe(ms);
  });

  test('a positive duration never becomes 0', () => {
    expect(parseDuration('0.1ms', at)).toBe(1);
    expect(parseDuration(0.001, at)).toBe(1);
  });

  test.each(['', 's', '5', '5 minutes', '-5s', '1e3s', '5S', -1, Number.NaN, null, undefined, true, {}])(
    '%j is refused with the field and the value',
    (value) => {
      expect(() => parseDuration(value, at)).toThrow(InvalidInput);
      expect(() => parseDuration(value, at)).toThrow(
        expect.objectContaining({
          field: 'lease',
          message: expect.stringMatching(/^lease must be a duration such as '30s'/),
        }),
      );
    },
  );

  test('the message says the bounds and the value', () => {
    expect(() => parseDuration('10ms', { field: 'lease', min: 1000, max: 3_600_000 })).toThrow(
      `lease must be a duration such as '30s' or a number of milliseconds, from 1s to 1h, but was "10ms"`,
    );
  });

  test('Infinity is accepted only where asked for', () => {
    expect(() => parseDuration(Infinity, at)).toThrow(InvalidInput);
    expect(() => parseDuration('Infinity', at)).toThrow(InvalidInput);
    expect(parseDuration(Infinity, { ...at, infinite: true, max: 1000 })).toBe(Infinity);
    expect(parseDuration('Infinity', { ...at, infinite: true })).toBe(Infinity);
  });

  test('bounds count as allowed, what lies outside is refused', () => {
    fc.assert(
      fc.property(fc.nat(10_000), fc.nat(10_000), fc.nat(20_000), (a, b, ms) => {
        const bounds = { field: 'wait', min: Math.min(a, b), max: Math.max(a, b) };
        const inside = ms >= bounds.min && ms <= bounds.max;
        if (inside) expect(parseDuration(ms, bounds)).toBe(ms);
        else expect(() => parseDuration(ms, bounds)).toThrow(InvalidInput);
      }),
    );
  });
});

describe('formatDuration', () => {
  test.each([
    [0, '0ms'],
    [250, '250ms'],
    [1500, '1.5s'],
    [1234, '1.234s'],
    [90_000, '1.5m'],
    [180_000, '3m'],
    [86_400_000, '1d'],
    [3_725_250, '3725.25s'],
    [-1500, '-1.5s'],
    [Infinity, 'Infinity'],
  ])('%d is %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  test('parseDuration reads back, to the millisecond, what formatDuration wrote', () => {
    fc.assert(
      fc.property(fc.nat(Number.MAX_SAFE_INTEGER % 3_000_000_000_000), (ms) => {
        expect(parseDuration(formatDuration(ms), at)).toBe(ms);
      }),
      { numRuns: 2000 },
    );
  });
});
