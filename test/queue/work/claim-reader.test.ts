import { expect, test } from 'vitest';
import { countJobs, countUnits } from '../../../src/queue/work/claim-reader.ts';

test('a coalesced unit counts as one, whatever number of jobs it has, with all their payloads or only the newest', () => {
  const fields = { epoch: 1, claims: [9, 9], attempts: [1, 1], origins: [0, 0] };
  const all = { ...fields, key: 'a', ids: [1, 2], kinds: [2, 2], units: [7, 7], payloads: ['a', 'b'] };
  const latest = { ...fields, key: 'b', ids: [3, 4], kinds: [3, 3], units: [8, 8], payloads: [null, 'd'], latest: [8] };
  const plain = { ...fields, key: 'c', ids: [5, 6], kinds: [4, 4], payloads: ['e', 'f'] };
  const keys = [all, latest, plain, { ...plain, key: 'd', units: [null, null] }];
  expect(countJobs({ runs: [], keys, seen: 8 })).toBe(8);
  const run = { claim: 9, first: 7, n: 3, kind: 4, attempt: 1, origin: 0, payloads: ['g', 'h', 'i'] };
  expect(countUnits({ runs: [run], keys, seen: 9 })).toBe(9);
});
