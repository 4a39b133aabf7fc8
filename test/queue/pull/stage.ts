import { afterAll, beforeAll, expect } from 'vitest';
import { type PostgresEngine, postgres, type Statement, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Kinds, type Queue, type QueueOptions } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

/** The lease of everything that is claimed of this queue is over. */
export const EXPIRE: Statement = statement(
  'test.expire',
  `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 ms' where queue = (select id from pawl.queue_definition where name = $1)`,
);

/** What the tests of a file claim from: a database of their own, in which nothing may be broken at the end. */
export interface PullStage {
  readonly url: string;
  readonly engine: PostgresEngine;
  /** A session of its own, next to those of the engine. */
  readonly eye: SqlSession;
  /** A queue of a name of its own. */
  newQueue<const K extends Kinds>(options: QueueOptions<K>): Queue<K>;
}

/** Sets the stage before the tests of this file, and takes it down after them. @param name  what the names of its queues begin with */
export function pullStage(name: string): PullStage {
  let database: FreshDatabase;
  let engine: PostgresEngine;
  let eye: SqlSession;
  let made = 0;
  beforeAll(async () => {
    database = await freshDatabase();
    engine = postgres(database.url, { max: 20, logger: recordLog() });
    eye = await SqlSession.open(database.url);
  });
  afterAll(async () => {
    expect(await breaches(eye.client)).toEqual([]);
    await eye.end();
    await engine.stop();
    await database.drop();
  });
  return {
    get url() {
      return database.url;
    },
    get engine() {
      return engine;
    },
    get eye() {
      return eye;
    },
    newQueue(options) {
      made += 1;
      return createQueue(engine, `${name} ${made}`, options);
    },
  };
}
