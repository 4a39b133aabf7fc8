import { expect, test } from 'vitest';
import { LONG, MODELS } from '../../../support/long.ts';
import { checkQueue } from './check.ts';
import { BUGS, simulate } from './simulate.ts';

const LEGAL = LONG ? 200_000 : MODELS ? 10_000 : 400;

test(`${LEGAL} histories that a queue may leave are accepted`, { timeout: 300_000 }, () => {
  const sizes = { runs: 0, moves: 0, effects: 0, lost: 0 };
  for (let seed = 1; seed <= LEGAL; seed += 1) {
    const history = simulate(seed);
    const [first] = checkQueue(history);
    expect(first, `seed ${seed}: ${JSON.stringify(first, null, 1)}`).toBeUndefined();
    sizes.runs += history.runs.length;
    sizes.moves += history.moves.length;
    sizes.effects += history.effects.length;
    sizes.lost += history.moves.filter(({ reason }) => reason === 'worker lost').length;
  }
  // The histories are not empty.
  expect(sizes.runs).toBeGreaterThan(LEGAL * 5);
  expect(sizes.effects).toBeGreaterThan(LEGAL * 5);
  expect(sizes.lost).toBeGreaterThan(LEGAL / 2);
});

for (const bug of BUGS) {
  test(`a history is refused where ${bug}`, () => {
    const seeds = Array.from({ length: 200 }, (_, index) => index + 1);
    expect(seeds.find((seed) => checkQueue(simulate(seed, bug)).length > 0)).toBeDefined();
  });
}
