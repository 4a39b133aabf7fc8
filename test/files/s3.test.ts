import { afterAll, beforeAll } from 'vitest';
import { type PostgresEngine, postgres } from '../../src/engine/postgres/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { describeFiles } from './contract.ts';
import { bucketStore } from './world.ts';

let database: FreshDatabase;
const engines: PostgresEngine[] = [];

beforeAll(async () => {
  database = await freshDatabase();
});

afterAll(async () => {
  await Promise.all(engines.map((engine) => engine.stop()));
});

describeFiles('s3', () => ({
  engine: ({ url = database.url, max = 8 } = {}) => {
    const engine = postgres(url, { stopTimeoutMs: 500, max });
    engines.push(engine);
    return engine;
  },
  store: bucketStore,
}));
