import { expect, test } from 'vitest';
import { isFoundByChecker, judge, NOTHING_HAPPENED } from './part.ts';

test('a history in which something never happened breaks a rule, though its checker finds nothing', () => {
  const part = { check: () => [], successes: (counts: Record<string, number>) => counts };
  expect(judge(part, { 'a grant': 1, 'a write': 2 })).toEqual([]);
  const violations = judge(part, { 'a grant': 0, 'a write': 2 });
  expect(violations).toMatchObject([{ rule: NOTHING_HAPPENED, about: 'a grant' }]);
  expect(violations.filter(isFoundByChecker)).toEqual([]);
});
