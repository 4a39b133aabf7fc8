import { expect, test } from 'vitest';
import { countJobs, countUnits } from '../../src/queue/work/claim-reader.ts';

test('a coalesced unit is one, however many jobs it has, and whether it comes with all of their payloads or with the newest one', () => {
  const all = [1, 9, 2, 1, 0, 7, 0, 'a', 2, 9, 2, 1, 0, 7, 0, 'b'];
  const latest = [3, 9, 3, 1, 0, -8, 0, null, 4, 9, 3, 1, 0, 8, 0, 'd'];
  const plain = [5, 9, 4, 1, 0, 0, 0, 'e', 6, 9, 4, 1, 0, 0, 0, 'f'];
  const keys = [all, latest, plain].map((fields, nth) => [`k${nth}`, 1, fields] as const);
  expect(countJobs({ rows: [], keys, seen: 6 })).toBe(6);
  expect(countUnits({ rows: [[9, 7, 3, 4, 1, 0, ['g', 'h', 'i']]], keys, seen: 7 })).toBe(7);
});
