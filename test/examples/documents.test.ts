import type * as Postgres from 'pawl/postgres';
import { expect } from 'vitest';
import type * as Documents from '../../examples/documents/dev.ts';
import { freshDatabase } from '../support/database.ts';
import { rarely } from '../support/long.ts';
import { compiled } from './processes.ts';

const { DocumentsDev } = await compiled<typeof Documents>('documents/dev.js');
const { postgres } = await compiled<typeof Postgres>('../dist/engine/postgres/index.js');

rarely(
  'front ends and workers are killed; no confirmed push is lost, no reader sees half a document, no orphan stays',
  async () => {
    const database = await freshDatabase();
    const engine = postgres(database.url, { max: 4 });
    const ending = new AbortController();
    const example = new DocumentsDev({ engine, url: database.url, signal: ending.signal, seed: 3, log: () => {} });
    try {
      await example.start();
      setTimeout(() => ending.abort(), 5000);
      await example.feed(ending.signal);
      const figures = await example.finish();
      expect(figures).toMatchObject({ ok: true, corrupt: 0, orphans: 0 });
      expect(figures['writes']).toBeGreaterThan(0);
      expect(figures['killed']).toBeGreaterThan(0);
    } finally {
      await example.stop();
      await engine.stop();
      await database.drop();
    }
  },
  90_000,
);
