import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { recordLog } from '../support/log.ts';
import type { Fixture, JobView } from './contract/fixture.ts';
import { queueContract } from './contract.ts';

const JOB = statement(
  'test.job',
  `select pawl.queue_status(j.shard, j.id) as status, coalesce(o.result, s.result) as result, o.progress,
    coalesce(d.error, (select t.error from pawl.queue_transitions(j.shard, j.id) t order by t.at desc limit 1)) as error,
    array(select t.reason from pawl.queue_transitions(j.shard, j.id) t order by t.at) as reasons
  from pawl.queue_job j
  left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
  left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of
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
    named: (_, id) => id,
    job: async (id) => {
      const [job] = await engine.query<JobView>(JOB, [id]);
      if (job === undefined) throw new Error(`there is no job ${id}`);
      return job;
    },
    transaction: (fn) => engine.transaction(fn),
  };
}

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  queueContract(hold, () => Promise.resolve(fixture(hold)));
});

test('pawl.enqueue() names the mistake in a request, and accepts no job that programs could not read', async () => {
  const queue = createQueue(engine, 'from sql', { kinds: { send: {}, sync: { coalesce: 'all' } } });
  await queue.register();
  const ask = (request: unknown): Promise<{ answer: { id: string } }[]> =>
    engine.query(statement('test.enqueue', 'select pawl.enqueue($1::jsonb) as answer'), [JSON.stringify(request)]);
  const good = { queue: 'from sql', kind: 'send' };
  for (const [request, words] of [
    [null, 'takes an object or an array of objects, got null'],
    [[good, 5], 'takes an object or an array of objects, got 5'],
    [{}, 'needs a queue and a kind, got {}'],
    [{ queue: 'from sql' }, 'needs a queue and a kind'],
    [{ ...good, kind: 'sned' }, 'has no kind "sned"; it has "send", "sync"'],
    [{ ...good, kind: 'sync' }, 'kind "sync" of queue "from sql" needs a key'],
    [{ ...good, key: '' }, 'key must be 1 to 1000 bytes long, got 0 bytes'],
    [{ ...good, run_at: 'now' }, 'unknown field "run_at"'],
    [{ ...good, runAt: 'soon' }, 'invalid input syntax'],
    [{ ...good, runAt: 'infinity' }, 'not of the years 1 to 9999'],
    [{ ...good, runAt: '20000-01-01' }, 'not of the years 1 to 9999'],
    [{ ...good, runAt: '2030-01-01', delay: '1 hour' }, 'both runAt and delay'],
    [{ ...good, priority: 1.5 }, 'priority an integer'],
  ] as const) {
    const error: unknown = await ask(request).catch((cause: unknown) => cause);
    expect(error, JSON.stringify(request)).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ message: expect.stringContaining(words) });
  }
  await expect(ask({ ...good, queue: 'from %s' })).rejects.toBeInstanceOf(NotFound);
  expect(await queue.stats()).toMatchObject({ new: 0 });
  await ask([{ ...good, payload: '%s', delay: '-1 hour' }, good]);
  expect(await queue.stats()).toMatchObject({ ready: 2, delayed: 0 });
});

test('settings of a database for its sessions change nothing', async () => {
  const odd = await freshDatabase({ migrated: false });
  await engine.session(async (session) => {
    for (const setting of [
      'standard_conforming_strings = off',
      'backslash_quote = off',
      'escape_string_warning = off',
      `search_path = ''`,
      `default_transaction_isolation = 'serializable'`,
      `datestyle = 'SQL, DMY'`,
      `timezone = 'Asia/Kathmandu'`,
      'array_nulls = off',
      'lock_timeout = 100',
      'statement_timeout = 20000',
      // A busy process may stand still between two statements.
      'idle_in_transaction_session_timeout = 10000',
    ]) {
      await session.run(`alter database "${odd.name}" set ${setting}`);
    }
  });
  const there = postgres(odd.url, { logger: recordLog() });
  await there.migrate();
  const kinds = { say: { attempts: 1 }, sync: { coalesce: 'all', after: ['say'] } } as const;
  const queue = createQueue(there, `it's \\ odd`, { kinds });
  const key = `k'\\"`;
  for (const hold of ['lease', 'transaction'] as const) {
    const ran: unknown[] = [];
    const handlers = {
      say: ({ payload }: { payload: unknown }): unknown => {
        ran.push(payload);
        if (payload === 2) throw new Error(`it's \\ ${hold}`);
        return `'\\`;
      },
      sync: ({ jobs }: { jobs: readonly unknown[] }): void => void ran.push(`${jobs.length} at once`),
    };
    const ids = await queue.enqueueMany([
      { kind: 'say', payload: `'\\ "x"`, key },
      { kind: 'say', payload: 2, key: 'NULL' },
      { kind: 'say', payload: null },
      { kind: 'sync', payload: 1, key },
      { kind: 'sync', payload: 2, key },
    ]);
    const worker = queue.work(handlers, { hold, concurrency: 2 });
    await queue.drain();
    await worker.stop();
    expect(ran).toEqual(expect.arrayContaining([`'\\ "x"`, 2, null, '2 at once']));
    expect(ran).toHaveLength(4);
    expect(await queue.get(ids[0] ?? '')).toMatchObject({ status: 'complete', result: `'\\`, key });
    const { jobs } = await queue.search(`status:error key:NULL "\\\\ ${hold}"`);
    expect(jobs.map(({ id }) => id)).toEqual([ids[1]]);
  }
  await there.stop();
  await odd.drop();
});
