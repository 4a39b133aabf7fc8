import { afterAll, beforeAll } from 'vitest';
import { type PostgresEngine, postgres } from '../../src/engine/postgres/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { describeLocks } from './contract.ts';

let database: FreshDatabase;
const engines: PostgresEngine[] = [];

beforeAll(async () => {
  database = await freshDatabase();
});

afterAll(async () => {
  await Promise.all(engines.map((engine) => engine.stop()));
});

function engineOn(url: string, options: { listen?: boolean; max?: number } = {}): PostgresEngine {
  const engine = postgres(url, { stopTimeoutMs: 500, max: 4, ...options });
  engines.push(engine);
  return engine;
}

describeLocks('postgres', () => ({ engine: (options) => engineOn(database.url, options) }));
