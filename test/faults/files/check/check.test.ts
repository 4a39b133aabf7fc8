import { expect, test } from 'vitest';
import { LONG, MODELS } from '../../../support/long.ts';
import { checkFiles } from './check.ts';
import { BUGS, simulate } from './simulate.ts';

const LEGAL = LONG ? 200_000 : MODELS ? 10_000 : 400;

test(`${LEGAL} histories that files may leave are accepted`, () => {
  const sizes = { wishes: 0, versions: 0, got: 0, rotten: 0 };
  for (let seed = 1; seed <= LEGAL; seed += 1) {
    const history = simulate(seed);
    const [first] = checkFiles(history);
    expect(first, `seed ${seed}: ${JSON.stringify(first, null, 1)}`).toBeUndefined();
    sizes.wishes += history.wishes.length;
    sizes.versions += history.rows.filter(({ version }) => version !== null).length;
    sizes.got += history.wishes.filter(({ got }) => got !== undefined).length;
    sizes.rotten += history.rotten.length;
  }
  // The histories are not empty.
  expect(sizes.wishes).toBeGreaterThan(LEGAL * 10);
  expect(sizes.versions).toBeGreaterThan(LEGAL * 3);
  expect(sizes.got).toBeGreaterThan(LEGAL);
  expect(sizes.rotten).toBeGreaterThan(LEGAL / 10);
});

for (const bug of BUGS) {
  test(`a history is refused where ${bug}`, () => {
    const seeds = Array.from({ length: 200 }, (_, index) => index + 1);
    expect(seeds.find((seed) => checkFiles(simulate(seed, bug)).length > 0)).toBeDefined();
  });
}
