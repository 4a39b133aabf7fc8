import { DynamoEngine } from '../engine/dynamodb/index.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import { type AnyQueueAdmin, createQueueAdmin } from '../queue/index.ts';
import type { HttpSettings } from './options.ts';
import { BoundedEngine } from './store/bounded-engine.ts';
import { HttpStore } from './store/store.ts';
import { AbsentDatabase } from './table/absent-database.ts';
import { TableStore } from './table/store.ts';

/** The backend of a server: a database, or a table of DynamoDB. */
export interface HttpBackend {
  /** On a table: an engine that refuses every call that needs a database. */
  readonly engine: PostgresEngine;
  /** The same, with a limit for the duration of a statement. */
  readonly bounded: PostgresEngine;
  readonly store: HttpStore;
  readonly reads: AnyQueueAdmin;
  readonly writes: AnyQueueAdmin;
  readonly table: DynamoEngine | undefined;
}

export function backendOf(
  engine: PostgresEngine | DynamoEngine,
  { statementTimeout, audit }: HttpSettings,
): HttpBackend {
  if (engine instanceof DynamoEngine) {
    const absent = new AbsentDatabase(engine);
    const admin = createQueueAdmin(engine);
    const store = new TableStore(engine, admin, absent, audit);
    return { engine: absent, bounded: absent, store, reads: admin, writes: admin, table: engine };
  }
  const bounded = new BoundedEngine(engine, statementTimeout);
  const store = new HttpStore(bounded, engine);
  return {
    engine,
    bounded,
    store,
    reads: createQueueAdmin(bounded),
    writes: createQueueAdmin(engine),
    table: undefined,
  };
}
