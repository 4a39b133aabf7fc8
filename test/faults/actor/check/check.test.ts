import { expect, test } from 'vitest';
import { LONG, MODELS } from '../../../support/long.ts';
import { checkActors } from './check.ts';
import { BUGS, simulate } from './simulate.ts';

const LEGAL = LONG ? 200_000 : MODELS ? 10_000 : 400;

test(`${LEGAL} histories that actors may leave are accepted`, () => {
  const sizes = { begun: 0, moves: 0, lost: 0, effects: 0 };
  for (let seed = 1; seed <= LEGAL; seed += 1) {
    const history = simulate(seed);
    const [first] = checkActors(history);
    expect(first, `seed ${seed}: ${JSON.stringify(first, null, 1)}`).toBeUndefined();
    sizes.begun += history.begun.length;
    sizes.moves += history.moves.length;
    sizes.lost += history.moves.filter(({ reason }) => reason === 'worker lost').length;
    sizes.effects += history.effects.length;
  }
  // The histories are not empty.
  expect(sizes.begun).toBeGreaterThan(LEGAL * 5);
  expect(sizes.moves).toBeGreaterThan(LEGAL * 5);
  expect(sizes.effects).toBeGreaterThan(LEGAL * 3);
  expect(sizes.lost).toBeGreaterThan(LEGAL / 2);
});

for (const bug of BUGS) {
  test(`a history is refused where ${bug}`, () => {
    const seeds = Array.from({ length: 200 }, (_, index) => index + 1);
    expect(seeds.find((seed) => checkActors(simulate(seed, bug)).length > 0)).toBeDefined();
  });
}
