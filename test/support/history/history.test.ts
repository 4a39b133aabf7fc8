import { expect, test } from 'vitest';
import { type Hold, violations } from './history.ts';

const hold = (token: number, from: number, until: number, capacity = 1, asked = from - 1): Hold => ({
  owner: 'p',
  name: 'a',
  capacity,
  token: String(token),
  asked,
  from,
  until,
});
const SHARED = 2_147_483_647;

test('what a right lock gives is accepted', () => {
  expect(violations([hold(1, 0, 10), hold(2, 10, 20), hold(3, 21, 30)])).toEqual([]);
  expect(violations([hold(1, 0, 10, SHARED), hold(2, 5, 20, SHARED), hold(3, 20, 30)])).toEqual([]);
  expect(violations([hold(1, 0, 10, 2), hold(2, 5, 20, 2), hold(3, 11, 30, 2)])).toEqual([]);
  // Asked at once: which was granted first cannot be known.
  expect(violations([hold(2, 0, 10, SHARED, 0), hold(1, 5, 6, SHARED, 0)])).toEqual([]);
});

test('two exclusive holders are found', () => {
  expect(violations([hold(1, 0, 10), hold(2, 9, 20)])[0]).toMatch(/2 hold "a", which admits 1/);
});

test('a writer next to a reader, and a permit too many, are found', () => {
  expect(violations([hold(1, 0, 10, SHARED), hold(2, 5, 6)])).toHaveLength(1);
  expect(violations([hold(1, 0, 10, 2), hold(2, 1, 10, 2), hold(3, 2, 10, 2)])).toHaveLength(1);
});

test('a token that does not rise is found', () => {
  expect(violations([hold(5, 0, 10), hold(4, 20, 30)])[0]).toMatch(/no greater token/);
  expect(violations([hold(5, 0, 10), hold(5, 20, 30)])).toHaveLength(1);
});

test('a lost update, and a write with an older token, are found', () => {
  const write = (seq: number, value: number, token: number) => ({ name: 'a', seq, value, token: String(token) });
  expect(violations([], [write(1, 1, 1), write(2, 2, 1), write(3, 3, 4)])).toEqual([]);
  expect(violations([], [write(1, 1, 1), write(2, 1, 2)])[0]).toMatch(/update of "a" was lost/);
  expect(violations([], [write(1, 1, 2), write(2, 2, 1)])[0]).toMatch(/token 1 after 2/);
});
