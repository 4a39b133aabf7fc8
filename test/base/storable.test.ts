import { describe, expect, test } from 'vitest';
import { InvalidInput } from '../../src/base/errors.ts';
import { isStorable, requireJson, toJson, toStorable } from '../../src/base/storable.ts';

describe('what a database cannot hold', () => {
  test('is no text of its', () => {
    for (const text of ['', 'a', '\\u0000', '😀', '\ufffd']) expect([text, isStorable(text)]).toEqual([text, true]);
    for (const text of ['\0', 'a\0b', '\ud83d', '\ude00 ', '\ude00\ud83d'])
      expect([text, isStorable(text)]).toEqual([text, false]);
    expect(toStorable('a\0b\ud83dc')).toBe('a\\0b\ufffdc');
  });

  test.for<readonly [string, unknown, RegExp]>([
    ['U+0000', { a: ['x\0'] }, /the payload cannot hold U\+0000 or a lone surrogate/],
    ['U+0000 in a name', { 'a\0': 1 }, /cannot hold U\+0000/],
    ['a lone surrogate', 'a\ud83d', /a lone surrogate/],
    ['one behind a backslash', '\\\ud83d', /a lone surrogate/],
    ['a bigint', 5n, /cannot be written as JSON: .*bigint/],
    ['a function', () => 5, /cannot be written as JSON: it is a function/],
    ['a symbol', Symbol('s'), /it is a symbol/],
    ['what has no JSON', { toJSON: () => undefined }, /its toJSON\(\) gives undefined/],
    [
      'what cannot be read',
      {
        toJSON: () => {
          throw Object.create(null);
        },
      },
      /it cannot be read/,
    ],
    [
      'what is nested too deep',
      JSON.parse('['.repeat(50_000) + ']'.repeat(50_000)),
      /cannot be written as JSON: Maximum call stack/,
    ],
  ])('is refused: %s', ([, value, words]) => {
    let error: unknown;
    try {
      toJson(value, 'the payload', 'payload');
    } catch (cause) {
      error = cause;
    }
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field: 'payload', message: expect.stringMatching(words) });
  });

  test.for<readonly [unknown, string]>([
    [undefined, 'null'],
    ['\\u0000 \\\\u0000 \\ud83d 😀 \u0001', '"\\\\u0000 \\\\\\\\u0000 \\\\ud83d 😀 \\u0001"'],
    [{ a: Number.MAX_VALUE }, '{"a":1.7976931348623157e+308}'],
  ])('and all else is taken: %s', ([value, json]) => {
    expect(toJson(value, 'the payload')).toBe(json);
  });

  test('numbers that JSON.parse reads as Infinity are refused, however deep they stand', () => {
    for (const json of ['1e400', '-1e309', '{"a":[1,{"b":1e999}]}', `[${'9'.repeat(400)}]`]) {
      expect(() => requireJson(JSON.parse(json), 'the payload', 'payload')).toThrow(/beyond 1\.8e308/);
    }
    requireJson(JSON.parse('{"a":[1.7e308,1e-400,"1e400"]}'), 'the payload', 'payload');
  });
});
