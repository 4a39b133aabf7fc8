import fc from 'fast-check';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import {
  bool,
  type Check,
  checkOptions,
  contradiction,
  custom,
  duration,
  func,
  integer,
  list,
  number,
  object,
  oneOf,
  optional,
  record,
  signal,
  suggest,
  text,
} from '../../../src/base/options/options.ts';
import { refusal } from '../../../src/base/options/refusal.ts';

const shape = {
  shards: integer({ min: 1, max: 1024, default: 1 }),
  hold: oneOf(['lease', 'transaction'], { default: 'lease' }),
  lease: duration({ min: '1s', max: '1h', default: '30s' }),
  retry: object({ attempts: integer({ min: 1, default: 5 }), jitter: number({ min: 0, max: 1, default: 0.5 }) }),
  namespace: optional(text({ min: 1, max: 20 })),
  paused: bool({ default: false }),
  onError: optional(func<(error: unknown) => void>()),
  signal,
};

function check(value?: unknown) {
  return checkOptions('createQueue', value, shape);
}

function refused(value: unknown, of: Check<unknown>): { message: string; field: string | undefined } {
  try {
    checkOptions('f', { x: value }, { x: of });
  } catch (error) {
    if (error instanceof InvalidInput) return { message: error.message, field: error.field };
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('checkOptions', () => {
  test('left-out options get their defaults, and the result is complete and frozen', () => {
    const options = check();
    expect(options).toEqual({
      shards: 1,
      hold: 'lease',
      lease: 30_000,
      retry: { attempts: 5, jitter: 0.5 },
      namespace: undefined,
      paused: false,
      onError: undefined,
      signal: undefined,
    });
    expect(Object.keys(options)).toEqual(Object.keys(shape));
    expect(Object.isFrozen(options)).toBe(true);
    expect(Object.isFrozen(options.retry)).toBe(true);
  });

  test('the type of the result follows from the table', () => {
    const options = check();
    expectTypeOf(options.hold).toEqualTypeOf<'lease' | 'transaction'>();
    expectTypeOf(options.lease).toEqualTypeOf<number>();
    expectTypeOf(options.retry).toEqualTypeOf<{ readonly attempts: number; readonly jitter: number }>();
    expectTypeOf(options.namespace).toEqualTypeOf<string | undefined>();
    expectTypeOf(options.onError).toEqualTypeOf<((error: unknown) => void) | undefined>();
    expectTypeOf(options.signal).toEqualTypeOf<AbortSignal | undefined>();
    expect(options.hold).toBe('lease');
  });

  test('an undefined option counts as left out', () => {
    expect(check({ shards: undefined, retry: undefined }).shards).toBe(1);
  });

  test('given options are read, durations as milliseconds', () => {
    const abort = new AbortController();
    const options = check({ lease: '1.5m', retry: { attempts: 2 }, signal: abort.signal, hold: 'transaction' });
    expect(options).toMatchObject({ lease: 90_000, retry: { attempts: 2, jitter: 0.5 }, hold: 'transaction' });
    expect(options.signal).toBe(abort.signal);
  });

  test('an unknown option is refused with a suggestion', () => {
    const misspelt = () => check({ retires: 3 });
    expect(misspelt).toThrow('unknown option "retires" for createQueue; did you mean "retry"?');
    expect(misspelt).toThrow(expect.objectContaining({ code: 'invalid_input', field: 'retires' }));
    expect(() => check({ retry: { atempts: 3 } })).toThrow(
      'unknown option "retry.atempts" for createQueue; did you mean "retry.attempts"?',
    );
  });

  test('an option that another library has is answered with what it is called here, and else with the list of all', () => {
    const table = { attempts: integer({ default: 1 }), delay: duration({ default: 0 }), after: text({ default: '' }) };
    expect(() => checkOptions('f', { startAfter: 1 }, table)).toThrow(
      'unknown option "startAfter" for f; did you mean "delay"?',
    );
    expect(() => checkOptions('f', { retryLimit: 1 }, table)).toThrow('did you mean "attempts"?');
    expect(() => checkOptions('f', { singletonKey: 1 }, table)).toThrow('accepted are attempts, delay, after');
  });

  test('an unknown option that resembles none is refused with the list of all', () => {
    expect(() => checkOptions('f', { zzzzzz: 1 }, { a: bool({ default: true }), b: bool({ default: true }) })).toThrow(
      'unknown option "zzzzzz" for f; accepted are a, b',
    );
    expect(() => checkOptions('f', { a: 1 }, {})).toThrow('unknown option "a" for f; it takes none');
  });

  test('no unknown key is ever accepted', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.jsonValue(), (key, value) => {
        fc.pre(!Object.hasOwn(shape, key));
        const options = Object.fromEntries([[key, value]]);
        expect(() => check(options)).toThrow(expect.objectContaining({ code: 'invalid_input', field: key }));
      }),
      {
        examples: [
          ['__proto__', 1],
          ['constructor', 1],
          ['toString', 1],
        ],
      },
    );
  });

  test.each([[3], ['x'], [[]], [() => 1], [true]])('%s is refused where options belong', (value) => {
    expect(() => check(value)).toThrow(/^the options of createQueue must be an object, but was /);
  });

  test('a required option that is left out is named', () => {
    expect(() => checkOptions('f', {}, { retry: object({ attempts: integer({ min: 1 }) }) })).toThrow(
      'option "retry.attempts" for f is required; give a whole number of 1 or more',
    );
  });
});

describe('kinds', () => {
  test('integer', () => {
    const kind = integer({ min: 1, max: 100 });
    expect(refused(0, kind)).toEqual({
      message: 'option "x" for f must be a whole number from 1 to 100, but was 0',
      field: 'x',
    });
    for (const value of [1.5, '5', Number.NaN, Infinity, null, 2 ** 60, 101])
      expect(refused(value, kind).field).toBe('x');
  });

  test('number', () => {
    expect(refused(Infinity, number({ max: 5 })).message).toContain('a number of at most 5, but was Infinity');
    expect(refused('1', number()).message).toContain('must be a number, but was "1"');
  });

  test('oneOf', () => {
    expect(refused('lesae', shape.hold).message).toBe(
      'option "x" for f must be one of "lease", "transaction", but was "lesae"',
    );
  });

  test('text has a length and is storable in a database', () => {
    expect(refused('', text({ min: 1, max: 5 })).message).toContain('a string of 1 to 5 characters, but was ""');
    expect(refused('', text({ min: 1 })).message).toContain('a string that is not empty');
    expect(refused(7, text()).message).toContain('a string, but was 7');
    expect(refused('a\0b', text()).message).toContain('text without U+0000 and lone surrogates, but was "a\\u0000b"');
    expect(refused('\ud83d', text()).message).toContain('lone surrogates');
    expect(checkOptions('f', { x: '😀' }, { x: text() }).x).toBe('😀');
    expect(refused('A', text({ pattern: [/^[a-z]+$/, 'lower-case letters'] })).message).toContain(
      'must be lower-case letters, but was "A"',
    );
  });

  test('a secret text never stands in a message', () => {
    expect(refused('hunter2', text({ min: 16, secret: true })).message).not.toContain('hunter2');
    expect(refused('hunter2\0', text({ secret: true })).message).not.toContain('hunter2');
  });

  test('duration', () => {
    expect(refused('10ms', duration({ min: '1s', max: '1h' }))).toEqual({
      message: `option "x" for f must be a duration such as '30s' or a number of milliseconds, from 1s to 1h, but was "10ms"`,
      field: 'x',
    });
    expect(checkOptions('f', { x: Infinity }, { x: duration({ infinite: true }) }).x).toBe(Infinity);
  });

  test('func, bool and signal', () => {
    expect(refused(1, func()).message).toContain('a function, but was 1');
    expect(refused('yes', bool()).message).toContain('true or false, but was "yes"');
    expect(refused({ aborted: false }, signal).message).toContain('an AbortSignal, but was an object {aborted}');
    expect(refused(new AbortController(), signal).field).toBe('x');
  });

  test('list and record name the item that was refused', () => {
    expect(refused(['a', 1], list(text())).field).toBe('x.1');
    expect(refused([], list(text(), { min: 1 })).message).toContain(
      'an array of 1 or more items, but was an empty array',
    );
    expect(refused({ a: 'no' }, record(integer())).field).toBe('x.a');
    expect(refused([], record(integer())).message).toContain('an object, but was an empty array');
  });

  test('a record holds its own keys and nothing else', () => {
    const { x } = checkOptions('f', { x: JSON.parse('{"__proto__": 1, "b": 2}') }, { x: record(integer()) });
    expect(Object.keys(x)).toEqual(['__proto__', 'b']);
    expect(x.constructor).toBeUndefined();
    expect(Object.isFrozen(x)).toBe(true);
  });

  test('custom kinds and contradictions speak like the others', () => {
    const even = custom('an even number', (value, place) => {
      if (typeof value !== 'number' || value % 2 !== 0) throw refusal(place, value, 'an even number');
      return value / 2;
    });
    expect(refused(3, even).message).toBe('option "x" for f must be an even number, but was 3');
    expect(checkOptions('f', { x: 4 }, { x: even }).x).toBe(2);
    expect(contradiction({ field: 'max', what: 'f' }, 'must not be less than min').message).toBe(
      'option "max" for f must not be less than min',
    );
  });

  test('a default is checked like a given value', () => {
    expect(() => checkOptions('f', {}, { x: integer({ min: 1, default: 0 }) })).toThrow(InvalidInput);
  });
});

describe('suggest', () => {
  test.each([
    ['retires', 'retry'],
    ['maxAttempts', 'attempts'],
    ['LEASE', 'lease'],
    ['leaes', 'lease'],
    ['xyz', undefined],
    ['', undefined],
  ])('%j suggests %j', (word, expected) => {
    expect(suggest(word, ['retry', 'attempts', 'lease', 'shards'])).toBe(expected);
  });

  test('a word with one slip leads back to itself', () => {
    const words = ['concurrency', 'priority', 'namespace', 'heartbeat'];
    fc.assert(
      fc.property(
        fc.constantFrom(...words),
        fc.nat(),
        fc.string({ minLength: 1, maxLength: 1 }),
        (word, seed, letter) => {
          const at = seed % word.length;
          expect(suggest(word.slice(0, at) + letter + word.slice(at), words)).toBe(word);
          expect(suggest(word.slice(0, at) + word.slice(at + 1), words)).toBe(word);
        },
      ),
    );
  });
});
