import { expect, test } from 'vitest';
import { LONG, MODELS } from '../../../support/long.ts';
import { checkCapture } from './check.ts';
import { BUGS, simulate } from './simulate.ts';

const LEGAL = LONG ? 200_000 : MODELS ? 10_000 : 400;

test(`${LEGAL} histories that a capture may leave are accepted`, () => {
  const sizes = { noted: 0, given: 0, late: 0 };
  for (let seed = 1; seed <= LEGAL; seed += 1) {
    const history = simulate(seed);
    const [first] = checkCapture(history);
    expect(first, `seed ${seed}: ${JSON.stringify(first, null, 1)}`).toBeUndefined();
    sizes.noted += history.audit.length;
    sizes.given += history.journal.length;
    sizes.late += history.journal.filter(
      ({ change }, index) => change < (history.journal[index - 1]?.change ?? 0),
    ).length;
  }
  // The histories are not empty.
  expect(sizes.noted).toBeGreaterThan(LEGAL * 5);
  expect(sizes.given).toBeGreaterThan(sizes.noted);
  expect(sizes.late).toBeGreaterThan(LEGAL);
});

for (const bug of BUGS) {
  test(`a history is refused where ${bug}`, () => {
    for (let seed = 1; seed <= 200; seed += 1) {
      expect(checkCapture(simulate(seed, bug)), `seed ${seed}`).not.toEqual([]);
    }
  });
}
