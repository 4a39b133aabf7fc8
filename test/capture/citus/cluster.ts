import pg from 'pg';
import { onTestFinished } from 'vitest';
import { type Capture, createCapture, type Projection, type ProjectOptions, sql } from '../../../src/capture/index.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { CITUS_STAND_IN, NOTE_BOTH, NOTES_OF_BOTH } from '../../support/servers/citus.ts';

/** Documents of three owners: `common` is in all of them, `rare` in few. */
export const DOCS = (count: number): string => `
create table doc (id int primary key, title text, body text, code text, extra json, owner int, at int);
insert into doc select i, case i % 2 when 0 then 'even common' else 'odd common' end || case when i % 400 = 7 then ' rare' else '' end,
  'the body of number ' || i || ' says warranty card ' || (i % 10), 'AB-' || lpad(i::text, 6, '0') || '-X', '{"a": 1}', i % 3, i
from generate_series(1, ${count}) i`;

export const TARGET: ProjectOptions = {
  into: 'doc_search',
  columns: { title: 'text', body: 'text', code: 'text', extra: 'json', owner: 'int', at: 'int' },
  text: ['title', 'body'],
  fragments: ['code'],
  order: 'at',
  tenant: 'owner',
  build: sql`select id, title, body, code, extra, owner, at from doc where id = any ($1::int[])`,
};

export interface Cluster {
  readonly url: string;
  readonly engine: PostgresEngine;
  readonly client: pg.Client;
  readonly query: <Row extends pg.QueryResultRow>(text: string) => Promise<Row[]>;
  /** All that was sent by the engine since the last call. */
  readonly sent: () => string[];
}

/** Of a database that is made to look like a coordinator. */
export interface ClusterOptions {
  readonly hasCitus?: boolean;
  /** Whether Pawl's tables were there before; to make all of them takes half a second. */
  readonly migrated?: boolean;
}

/** A database that looks like a coordinator: see `CITUS_STAND_IN`. */
export async function openCluster(
  count = 300,
  { hasCitus = true, migrated = true }: ClusterOptions = {},
): Promise<Cluster> {
  const database = await freshDatabase({ migrated });
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  if (hasCitus) await client.query(CITUS_STAND_IN);
  await client.query(NOTES_OF_BOTH);
  let texts: string[] = [];
  class Recording extends pg.Client {
    constructor(config?: string | pg.ClientConfig) {
      super(config);
      const query = this.query.bind(this) as (...given: unknown[]) => unknown;
      this.query = ((...given: unknown[]) => {
        const [first] = given;
        texts.push(typeof first === 'string' ? first : ((first as { text?: string }).text ?? ''));
        return query(...given);
      }) as typeof this.query;
    }
  }
  const pool = new pg.Pool({ connectionString: database.url, max: 8, Client: Recording });
  pool.on('error', () => {});
  const engine = postgres(pool);
  onTestFinished(async () => {
    await engine.stop();
    await Promise.all([pool.end(), client.end()]);
    await database.drop();
  });
  await engine.migrate();
  await client.query(`${NOTE_BOTH}; ${DOCS(count)}`);
  return {
    url: database.url,
    engine,
    client,
    query: async <Row extends pg.QueryResultRow>(text: string) => (await client.query<Row>(text)).rows,
    sent: () => {
      const all = texts;
      texts = [];
      return all;
    },
  };
}

export function projectDocs(
  engine: PostgresEngine,
  options: Partial<ProjectOptions>,
): { capture: Capture; projection: Projection } {
  const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
  return { capture, projection: capture.project({ ...TARGET, ...options }) };
}
