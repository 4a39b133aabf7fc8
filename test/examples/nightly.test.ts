import { expect, onTestFinished } from 'vitest';
import { runNightly } from '../../examples/nightly/nightly.ts';
import { freshDatabase } from '../support/database.ts';
import { rarely } from '../support/long.ts';

// In dev.test.ts, too.
rarely('four processes, one killed half-way, bill every team once', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const lines: string[] = [];
  const result = await runNightly(database.url, { processes: 4, kill: true, log: (line) => lines.push(line) });
  expect(result).toMatchObject({ runs: 1, billedTwice: 0, billed: 60, killed: 1 });
  expect(lines.filter((line) => line.endsWith('is killed'))).toHaveLength(1);
});

rarely('a night without accidents bills every team once, too', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const result = await runNightly(database.url, { processes: 2, kill: false, teams: 12 });
  expect(result).toMatchObject({ runs: 1, billedTwice: 0, billed: 12, killed: 0 });
});
