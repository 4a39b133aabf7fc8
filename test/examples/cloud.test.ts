import type * as Postgres from 'pawl/postgres';
import { expect, test } from 'vitest';
import type * as Cloud from '../../examples/cloud/dev.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { compiled } from './processes.ts';

const { CloudDev } = await compiled<typeof Cloud>('cloud/dev.js');
const { postgres } = await compiled<typeof Postgres>('../dist/engine/postgres/index.js');

test('a formation of real processes grows, heals what was killed, and leaves nothing behind', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url, { max: 12 });
  const stop = new AbortController();
  const lines: string[] = [];
  const example = new CloudDev({
    engine,
    url: database.url,
    signal: stop.signal,
    log: (line) => lines.push(line),
  });
  try {
    await example.start();
    const fed = example.feed(stop.signal);
    await until('an instance was killed', () => lines.some((line) => line.endsWith('is killed')), 60_000);
    stop.abort();
    await fed;
    const figures = await example.finish();
    expect(figures, lines.join('\n')).toMatchObject({ ok: true, servers: 5, rounds: 1, orphans: 0 });
    expect(figures['healed']).toBeGreaterThanOrEqual(1);
    expect(figures['configured']).toBeGreaterThanOrEqual(8);
  } finally {
    await example.stop();
    await engine.stop();
    await database.drop();
  }
});
