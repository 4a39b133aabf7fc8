import { afterAll, beforeAll, describe } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { recordLog } from '../support/log.ts';
import type { Fixture, JobView } from './contract/fixture.ts';
import { queueContract } from './contract.ts';

const JOB = statement(
  'test.job',
  `select pawl.queue_status(j.shard, j.id) as status, o.result, o.progress,
    coalesce(d.error, (select t.error from pawl.queue_transition t where t.shard = j.shard and t.id = j.id order by t.at desc limit 1)) as error,
    array(select t.reason from pawl.queue_transition t where t.shard = j.shard and t.id = j.id order by t.at) as reasons
  from pawl.queue_job j
  left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
  left join pawl.queue_dead d on d.shard = j.shard and d.id = j.id
  where j.id = $1::bigint`,
);

let database: FreshDatabase;
let engine: PostgresEngine;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 40, logger: recordLog() });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

function fixture(hold: Fixture['hold']): Fixture {
  made += 1;
  const prefix = `${hold} ${made}`;
  return {
    hold,
    queue: (options, name = '') => createQueue(engine, `${prefix} ${name}`, options),
    job: async (id) => {
      const [job] = await engine.query<JobView>(JOB, [id]);
      if (job === undefined) throw new Error(`there is no job ${id}`);
      return job;
    },
    transaction: (fn) => engine.transaction(fn),
  };
}

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  queueContract(() => Promise.resolve(fixture(hold)));
});
