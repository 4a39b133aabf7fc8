import { expect, test } from 'vitest';
import { LONG, MODELS } from '../../../support/long.ts';
import { checkLocks } from './check.ts';
import { BUGS, simulate } from './simulate.ts';

const LEGAL = LONG ? 200_000 : MODELS ? 10_000 : 400;

test(`${LEGAL} histories that locks may leave are accepted`, () => {
  const sizes = { operations: 0, written: 0, lost: 0, expired: 0, passed: 0 };
  for (let seed = 1; seed <= LEGAL; seed += 1) {
    const history = simulate(seed);
    const [first] = checkLocks(history);
    expect(first, `seed ${seed}: ${JSON.stringify(first, null, 1)}`).toBeUndefined();
    sizes.operations += history.operations.length;
    sizes.written += history.written.length;
    sizes.lost += history.operations.filter(({ lostAt }) => lostAt !== undefined).length;
    sizes.expired += history.ended.filter(({ outcome }) => outcome === 'expired').length;
    sizes.passed += history.operations.filter(({ end }) => end?.how === 'refused').length;
  }
  // The histories are not empty.
  expect(sizes.operations).toBeGreaterThan(LEGAL * 8);
  expect(sizes.written).toBeGreaterThan(LEGAL * 2);
  expect(sizes.lost).toBeGreaterThan(LEGAL / 10);
  expect(sizes.expired).toBeGreaterThan(LEGAL / 10);
  expect(sizes.passed).toBeGreaterThan(LEGAL / 2);
});

for (const bug of BUGS) {
  test(`a history is refused where ${bug}`, () => {
    const seeds = Array.from({ length: 500 }, (_, index) => index + 1);
    expect(seeds.find((seed) => checkLocks(simulate(seed, bug)).length > 0)).toBeDefined();
  });
}
