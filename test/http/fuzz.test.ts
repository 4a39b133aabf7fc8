import fc from 'fast-check';
import { beforeAll, expect, test } from 'vitest';
import { ROUTES } from '../../src/http/app.ts';
import { writeCursor } from '../../src/http/cursor.ts';
import { LONG } from '../support/long.ts';
import { type House, makeHouse, type Visitor } from './house.ts';

const RUNS = LONG ? 20_000 : 400;

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

const nasty = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    '0',
    '-1',
    '1',
    '9223372036854775807',
    '9223372036854775808',
    '1e999',
    'NaN',
    "'; drop table x; --",
    '%',
    '%00',
    '\u0000',
    '\ud800',
    '..',
    'a'.repeat(1100),
    'mail',
    'server',
    '2026-02-30',
    'true',
    '"',
    'key:',
    'status:error',
    'since:1h',
    '*',
    '\\',
    'WyIxIl0',
    writeCursor('9223372036854775808'),
    writeCursor('a', 'b'),
    '1:9223372036854775808',
    writeCursor('1', 'job', 'x', '1'),
    writeCursor('2026-11-22T00:00:00+00:00', 'job', 'x', '1'),
    '0000-01-01',
    '9999-12-31',
  ),
  fc.integer().map(String),
);
const json = fc.oneof(nasty, fc.jsonValue({ maxDepth: 2 }));

test('whatever is sent, the answer is never a failure of the server', async () => {
  const requests = fc.constantFrom(...ROUTES).chain((route) =>
    fc.record({
      route: fc.constant(route),
      params: fc.array(nasty, { minLength: 3, maxLength: 3 }),
      query: fc.dictionary(fc.oneof(fc.constantFrom(...Object.keys(route.query ?? { q: 1 })), nasty), nasty, {
        maxKeys: 3,
      }),
      body: fc.oneof(
        fc.dictionary(fc.oneof(fc.constantFrom(...Object.keys(route.body ?? { q: 1 })), nasty), json, { maxKeys: 4 }),
        nasty,
      ),
    }),
  );
  await fc.assert(
    fc.asyncProperty(requests, async ({ route, params, query, body }) => {
      let next = 0;
      const encode = (value: string): string => encodeURIComponent(value.replace(/\p{Surrogate}/gu, '?'));
      const path = route.path.replaceAll(/\{\w+\}/g, () => encode(params[next++] ?? '') || 'x');
      const search = Object.entries(query)
        .map(([name, value]) => `${encode(name)}=${encode(value)}`)
        .join('&');
      const { status, text } = await visitor.ask(`/api/v1${path}?${search}`, {
        method: route.method,
        ...(route.method === 'GET' ? {} : { body }),
      });
      const isFault = status >= 500 && status !== 501;
      expect(isFault ? [route.id, status, text, path, query, body] : []).toEqual([]);
    }),
    { numRuns: RUNS, seed: 8, endOnFailure: true },
  );
});
