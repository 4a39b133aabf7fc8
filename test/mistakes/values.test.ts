import { inspect } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { show } from '../../src/base/options/refusal.ts';
import { toJson } from '../../src/base/storable.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createQueue, type Unit } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';

const VALUES: Readonly<Record<string, readonly [unknown, RegExp]>> = {
  'a bigint': [{ lines: [{ price: 1n }] }, /payload\.lines\[0\]\.price is 1n, a bigint.*write it as a text/],
  'a Map': [{ a: new Map([[1, 2]]) }, /payload\.a is a Map, which JSON would make \{\}; write Object\.fromEntries/],
  'a Set': [[new Set([1])], /payload\[0\] is a Set.*write \[\.\.\.set\]/],
  'a Promise': [{ user: Promise.resolve(1) }, /payload\.user is a Promise.*await it first/],
  'an Error': [{ why: new Error('no') }, /payload\.why is an Error/],
  NaN: [{ n: { m: Number.NaN } }, /payload\.n\.m is NaN, which JSON would make null/],
  'an invalid Date': [{ at: new Date('soon') }, /payload\.at is an invalid Date, which JSON would make null/],
  Infinity: [-Infinity, /payload is -Infinity/],
};

test.for(Object.entries(VALUES))('%s as a payload is refused by its path', ([, [value, words]]) => {
  expect(() => toJson(value, 'payload', 'payload')).toThrow(words);
  expect(() => toJson(value, 'payload', 'payload')).toThrow(/^payload cannot be written as JSON: /);
});

test('a value with toJSON is stored as toJSON writes it', () => {
  const own = new (class Money {
    readonly cents = 1n;
    toJSON(): string {
      return String(this.cents);
    }
  })();
  const value = { none: null, empty: {}, list: [], at: new Date(0), own, left: undefined };
  expect(JSON.parse(toJson(value, 'payload'))).toEqual({
    none: null,
    empty: {},
    list: [],
    at: '1970-01-01T00:00:00.000Z',
    own: '1',
  });
});

test('a value that is nested more deeply than the stack allows is checked anyway', () => {
  let deep: unknown = { n: Number.NaN };
  for (let depth = 0; depth < 5_000; depth += 1) deep = { deep };
  expect(() => toJson(deep, 'payload')).toThrow(/\.n is NaN/);
});

const SECRETS: Readonly<Record<string, string>> = {
  'postgres://app:hunter2@db/app': '"postgres://app:***@db/app"',
  'host=db password=hunter2 user=app': '"host=db password=*** user=app"',
  'https://api.example?token=hunter2&x=1': '"https://api.example?token=***&x=1"',
  'Authorization: Bearer hunter2': '"Authorization: Bearer ***"',
};

test.for(Object.entries(SECRETS))('messages do not show the secret in %s', ([text, shown]) => {
  expect(show(text)).toBe(shown);
});

test('console.log of a unit shows its public fields, and no internals', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
  const seen: Unit[] = [];
  const worker = queue.work({ send: (unit) => void seen.push(unit as Unit) });
  onTestFinished(() => worker.stop());
  const { id } = await queue.enqueue('send', { to: 'a@example.org' }, { key: 'a' });
  const unit = await until('it ran', () => seen[0]);
  const shown = inspect(unit);
  expect(shown).toMatch(/^Unit \{/);
  for (const part of [
    "queue: 'mail'",
    "kind: 'send'",
    "key: 'a'",
    'attempt: 1',
    `id: '${id}'`,
    "to: 'a@example.org'",
  ]) {
    expect(shown).toContain(part);
  }
  expect(shown).not.toMatch(/claim|number|isOver|undefined/);
  expect(inspect(unit.job)).toMatch(/^Job \{[^]*to: 'a@example.org'/);
  expect(inspect({ a: { b: { unit } } })).toContain('[Unit]');
});
