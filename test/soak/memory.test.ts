import { expect, test } from 'vitest';
import { nodeMemory, type Trend, trendOf } from './memory.ts';

const MB = 1024 ** 2;

/** Of a run of half an hour, a sample every 7.5 s. */
function run(bytes: (part: number) => number): Trend {
  return trendOf(Array.from({ length: 240 }, (_, at) => ({ atMs: at * 7500, bytes: bytes(at / 240) })));
}

test('memory that rises at the start and then goes up and down is flat; one that grows all the time is not', () => {
  expect(run((part) => (part < 0.1 ? 80 + part * 1000 : 180 + 40 * Math.sin(part * 100)) * MB)).toMatchObject({
    isFlat: true,
  });
  expect(run((part) => (180 + 200 * part) * MB)).toMatchObject({ isFlat: false });
  expect(trendOf([])).toMatchObject({ isFlat: false });
});

test('the memory of a program is its own and that of the Node processes below it, however far', () => {
  const table = `
      10     1  1000 node
      11    10   100 sh
      12    11    10 node
      13    10  5000 postgres
      14     1  7000 node
  `;
  expect(nodeMemory(table, 10)).toBe(1010 * 1024);
});
