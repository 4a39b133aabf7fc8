import { fileURLToPath } from 'node:url';
import { runInNewContext } from 'node:vm';
import { describe, expect, test } from 'vitest';
import { describeThrown } from '../../src/base/error-text.ts';

function circular(): object {
  const thrown: Record<string, unknown> = { message: 'mhmm', code: 'E1' };
  thrown['me'] = thrown;
  return thrown;
}

function causingItself(): Error {
  const error = new Error('round');
  error.cause = new Error('and', { cause: error });
  return error;
}

function unreadable(name: string): Error {
  const get = (): never => {
    throw new Error('no');
  };
  return Object.defineProperty(new Error('plain'), name, { get, enumerable: true });
}

function withStack(stack: string): Error {
  return Object.assign(new Error('plain'), { stack });
}

/** Its stack was read, and so made, when it had another message. */
const changed = Object.assign(new Error('after'), { stack: 'Error: before\n    at somewhere' });

const database = Object.assign(new Error('duplicate key'), { code: '23505', detail: 'Key (id)=(1) already exists.' });

describe('what was thrown is kept', () => {
  test.for<readonly [string, unknown, RegExp]>([
    ['undefined', undefined, /^undefined was thrown$/],
    ['null', null, /^null was thrown$/],
    ['an empty text', '', /^'' was thrown$/],
    ['a text', 'just text', /^just text$/],
    ['a number', 42, /^42 was thrown$/],
    ['a bigint', 42n, /^42n was thrown$/],
    ['a symbol', Symbol('s'), /^Symbol\(s\) was thrown$/],
    ['a function', Math.max, /^\[Function: max\] was thrown$/],
    ['an object', { code: 7, of: ['a'] }, /^\{"code":7,"of":\["a"\]\} was thrown$/],
    ['an object without a prototype', Object.create(null), /null prototype.*was thrown/],
    ['an object that JSON leaves empty', new Map([['a', 1]]), /Map.*'a' => 1.*was thrown/],
    ['a circle', circular(), /message: 'mhmm', code: 'E1', me: \[Circular/],
    ['an error', new Error('out of paper'), /^Error: out of paper\n {4}at /],
    ['an error of another realm', runInNewContext(`new TypeError('elsewhere')`), /^TypeError: elsewhere/],
    ['an error without a stack', Object.assign(new Error('plain'), { stack: undefined }), /^Error: plain$/],
    [
      'a stack that is a frame only',
      withStack('    at run (node:vm:1:1)'),
      /^Error: plain\n {4}at run \(node:vm:1:1\)$/,
    ],
    [
      'a stack that begins with a frame',
      withStack('\n    at (node:vm:1:1)'),
      /^Error: plain\n\n {4}at \(node:vm:1:1\)$/,
    ],
    ['an error whose message was changed', changed, /^Error: after\nError: before\n {4}at /],
    [
      'code and detail',
      database,
      /duplicate key[^]*\n {2}code: '23505'\n {2}detail: 'Key \(id\)=\(1\) already exists\.'$/,
    ],
    ['a getter that throws', unreadable('odd'), /Error: plain[^]*\n {2}odd: 'a property that cannot be read'$/],
    ['a stack that throws', unreadable('stack'), /^an error that cannot be shown: reading it failed$/],
    [
      'causes',
      new Error('a', { cause: new Error('b', { cause: database }) }),
      /^Error: a[^]*\ncaused by: Error: b[^]*\ncaused by: Error: duplicate[^]*23505/,
    ],
    ['a cause that is no error', new Error('outer', { cause: 'inner' }), /outer[^]*\ncaused by: inner$/],
    [
      'a circle of causes',
      causingItself(),
      /round[^]*caused by: Error: and[^]*caused by: an error that is shown above$/,
    ],
    [
      'all of an AggregateError',
      new AggregateError([new Error('one', { cause: 'why' }), database, undefined], 'both'),
      /^AggregateError: both[^]*\nwith: Error: one[^]*\ncaused by: why\nwith: Error: duplicate key[^]*23505[^]*\nwith: undefined$/,
    ],
    ['U+0000, made visible, and halves of pairs', new Error('a\0b\ud800'), /Error: a\\0b\ufffd/],
  ])('%s', ([, thrown, expected]) => {
    expect(describeThrown(thrown)).toMatch(expected);
  });

  test('without the frames of the worker that has called the handler', () => {
    const worker = fileURLToPath(new URL('../../src/queue/work/run/attempt.ts', import.meta.url));
    const told = (...frames: string[]): string =>
      describeThrown(
        Object.assign(new Error('no'), { stack: ['Error: no', ...frames.map((at) => `    at ${at}`)].join('\n') }),
      );
    const ours = `call (file://${worker}:106:16)`;
    const node = 'process.processTicksAndRejections (node:internal/process/task_queues:95:5)';
    const handler = 'send (file:///app/mail.js:4:9)';
    expect(told(handler, node, `async ${ours}`, ours)).toBe(`Error: no\n    at ${handler}`);
    expect(told(ours, handler, ours)).toBe(`Error: no\n    at ${ours}\n    at ${handler}`);
    expect(told(ours, ours)).toBe(`Error: no\n    at ${ours}\n    at ${ours}`); // of the library itself: all of it
    expect(told(handler, `${worker}:1:1`)).toBe(`Error: no\n    at ${handler}`); // as other runtimes write it
  });

  test('in 10,000 characters, of which each cause has its share', () => {
    const large = (words: string): string => words.repeat(100_000);
    expect(describeThrown(large('a'))).toBe(`${'a'.repeat(9_999)}…`);
    const text = describeThrown(
      new Error(large('a'), { cause: new Error(large('\0'), { cause: new Error('the reason') }) }),
    );
    expect(text).toMatch(/^Error: aaa[^]*\ncaused by: Error: \\0\\0/);
    expect(text.length).toBe(10_000);
    const many = new AggregateError(
      Array.from({ length: 1000 }, (_, n) => new Error(`${n} ${large('a')}`)),
      'many',
    );
    expect(describeThrown(many)).toMatch(/many[^]*with: Error: 0 aaa[^]*with: Error: 8 aaa/);
    expect(describeThrown(many).length).toBeLessThanOrEqual(10_000);
  });
});
