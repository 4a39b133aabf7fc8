import type * as Postgres from 'pawl/postgres';
import { expect, test } from 'vitest';
import type * as Dev from '../../examples/orders/dev.ts';
import { freshDatabase } from '../support/database.ts';
import { compiled } from './processes.ts';

const { OrdersDev } = await compiled<typeof Dev>('orders/dev.js');
const { postgres } = await compiled<typeof Postgres>('../dist/engine/postgres/index.js');

test('17 tables change under two applications, a worker is killed, and in the end every search row is right', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url);
  const lines: string[] = [];
  const over = new AbortController();
  const example = new OrdersDev({ engine, url: database.url, signal: over.signal, log: (line) => lines.push(line) });
  try {
    await example.start();
    setTimeout(() => over.abort(), 5000);
    await example.feed(over.signal);
    const figures = await example.finish();
    expect(figures, lines.join('\n')).toMatchObject({ ok: true, diff: 0, searchP95Ms: expect.any(Number) });
    expect(Number(figures['rows'])).toBeGreaterThan(19_000);
    expect(lines.some((line) => line.includes('was killed'))).toBe(true);
  } finally {
    await example.stop();
    await engine.stop();
    await database.drop();
  }
}, 120_000);
