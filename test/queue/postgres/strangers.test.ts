import { expect, onTestFinished, test } from 'vitest';
import { Conflict } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { alone } from '../../../src/queue/postgres/runner.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { interleave, interleavings } from '../interleaving.ts';
import { breaches, places } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

// An open transaction, or a paused process, blocks only statements that need the very same job.

async function fresh(): Promise<{ database: FreshDatabase; engine: PostgresEngine }> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const engine = postgres(database.url, { max: 10, logger: recordLog() });
  onTestFinished(() => engine.stop());
  return { database, engine };
}

async function openSession(url: string): Promise<SqlSession> {
  const session = await SqlSession.open(url);
  onTestFinished(() => session.end());
  return session;
}

test('a failure in one queue keeps no other queue from being rescued and pruned', async () => {
  const { database, engine } = await fresh();
  const [broken, sound] = ['broken', 'sound'].map((name) => createQueue(engine, name, { kinds: { work: {} } }));
  const session = await openSession(database.url);
  if (broken === undefined || sound === undefined) throw new Error('there are two queues');
  const workers = [broken, sound].map((queue) => queue.work({ work: () => {} }, { lease: '1s', poll: '100ms' }));
  onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop({ timeout: 0 })))));
  await Promise.all(workers.map((worker) => worker.started));
  const queue = await session.one<number>("select id::int from pawl.queue_definition where name = 'broken'");
  for (const name of ['queue_rescue', 'queue_sweep_cancels']) {
    const body = await session.one<string>('select pg_get_functiondef(oid) from pg_proc where proname = $1', [name]);
    await session.client.query(
      body.replace(
        /\nbegin\n/i,
        `\nbegin\n  if p_queue = ${queue} then raise exception 'this queue is broken'; end if;\n`,
      ),
    );
  }
  const row = await session.one<number>("select id::int from pawl.queue_definition where name = 'sound'");
  const lost = await session.addWorker(row, 600_000);
  const kind = await session.one<number>('select id::int from pawl.queue_kind where queue = $1', [row]);
  await session.begin();
  await session.add(row, [{ kind }]);
  expect((await session.claim(row, lost)).jobs).toHaveLength(1);
  await session.expire(lost);
  await session.commit();
  await until('the lost job has run', async () => (await places(session.client, row))['complete'] === 1);
});

test('a process that changes the number of shards blocks no enqueue, whatever transaction is open', async () => {
  const { database, engine } = await fresh();
  const mail = createQueue(engine, 'mail', { kinds: { send: {} } });
  const other = createQueue(engine, 'other', { kinds: { send: {} } });
  await mail.register();
  await other.register();
  const producer = await openSession(database.url);
  await producer.client.query(`set statement_timeout = '10s'`);
  const setting = statement('test.setting', `select current_setting('lock_timeout') as value`);
  const before = await engine.query(setting);
  const wider = createQueue(engine, 'mail', { kinds: { send: {} }, shards: 4 });
  const { id } = await engine.transaction(async (tx) => {
    const open = await other.enqueue('send', null, { tx });
    await expect(wider.register()).rejects.toThrow(Conflict);
    const [{ queue, kind } = { queue: 0, kind: 0 }] = await engine.query<{ queue: number; kind: number }>(
      statement('test.other', `select queue, id as kind from pawl.queue_kind where queue = pawl.queue_id('other')`),
    );
    await producer.add(queue, [{ kind }]);
    return open;
  });
  expect(await other.get(id)).toMatchObject({ status: 'new' });
  await wider.register();
  expect(await engine.query(setting)).toEqual(before);
});

test('a job that is retried while its history is removed stays, or was gone before: in every order', async () => {
  const { database } = await fresh();
  const [director, pruner, person] = await Promise.all([1, 2, 3].map(() => openSession(database.url)));
  if (director === undefined || pruner === undefined || person === undefined) throw new Error('there are three');
  for (const key of [null, 'k']) {
    for (const order of interleavings([2, 2])) {
      const name = `${key} ${order.join('')}`;
      const { queue, kinds } = await director.register(name, [{ name: 'work' }]);
      await director.client.query(`update pawl.queue_definition set history = '0' where id = $1`, [queue]);
      const worker = await director.addWorker(queue);
      const [id = 0] = await director.add(queue, [{ kind: kinds['work'] ?? -1, key }]);
      await director.one('select pawl.queue_cancel_job($1, $2, null)', [name, id]);
      let retried: unknown;
      await interleave(
        director,
        [
          {
            name: 'pruner',
            session: pruner,
            steps: [
              () => pruner.begin().then(() => pruner.one('select pawl.queue_prune($1::smallint, 10)', [queue])),
              () => pruner.commit(),
            ],
          },
          {
            name: 'person',
            session: person,
            steps: [
              async () => {
                await person.begin();
                retried = await person
                  .one('select pawl.queue_retry_job($1, $2)', [name, id])
                  .catch((error: { code?: string }) => error.code);
              },
              () => person.commit(),
            ],
          },
        ],
        order,
      );
      expect(await breaches(director.client), `order ${order.join(' ')}`).toEqual([]);
      const { jobs } = await director.claim(queue, worker);
      if (retried === 'new') expect(jobs.map((job) => job.id)).toEqual([id]);
      else expect([retried, jobs]).toEqual([expect.stringMatching(/^(PW002|busy)$/), []]);
    }
  }
});

test('jobs that are never removed do not keep others from being pruned', async () => {
  const { database, engine } = await fresh();
  const queue = createQueue(engine, 'mail', { kinds: { once: { unique: 'key' }, many: {} }, history: '1h' });
  const session = await openSession(database.url);
  const once: string[] = [];
  for (let n = 0; n < 5; n += 1) once.push((await queue.enqueue('once', null, { key: `k${n}` })).id);
  const many = await queue.enqueueMany([1, 2].map(() => ({ kind: 'many', payload: null }) as const));
  for (const id of [...once, ...many]) await queue.cancel(id);
  await session.client.query(`update pawl.queue_dead set at = at - interval '2 h'`);
  const row = await session.one<number>('select id::int from pawl.queue_definition');
  expect(await session.one('select pawl.queue_prune($1::smallint, 2)', [row])).toBe(2);
  expect(await session.one('select count(*)::int from pawl.queue_job')).toBe(once.length);
});

test('jobs of a key that an open transaction has keep no other job from expiring or from being cancelled', async () => {
  const { database, engine } = await fresh();
  const queue = createQueue(engine, 'mail', { kinds: { job: {} } });
  const [session, stranger] = [await openSession(database.url), await openSession(database.url)];
  const add = async (expiresAt: Date | undefined) => {
    const of = { kind: 'job', payload: null, ...(expiresAt && { expiresAt }) } as const;
    const kept = await queue.enqueueMany(Array.from({ length: 40 }, () => ({ ...of, key: 'k' })));
    return { kept, other: (await queue.enqueueMany([of]))[0] ?? '' };
  };
  const [past, wished] = [await add(new Date(Date.now() - 60_000)), await add(undefined)];
  const row = await session.one<number>('select id::int from pawl.queue_definition');
  await session.client.query(
    `insert into pawl.queue_cancel (id, shard, worker) select i.id, 0, 0 from unnest($1::bigint[]) i (id)`,
    [[...wished.kept, wished.other]],
  );
  await stranger.client.query('begin');
  await stranger.client.query('select pawl.queue_cancel_job(null, $1, null)', [past.kept[0]]);
  // With half a second for each, the forty would take twenty.
  await session.client.query(`set statement_timeout = '10s'`);
  await session.one('select pawl.queue_expire($1::smallint, 1000)', [row]);
  await session.one('select pawl.queue_sweep_cancels($1::smallint)', [row]);
  for (const id of [past.other, wished.other]) expect(await queue.get(id)).toMatchObject({ status: 'cancelled' });
  await stranger.client.query('rollback');
  await session.one('select pawl.queue_sweep_cancels($1::smallint)', [row]);
  expect((await queue.stats()).cancelled).toBe(82);
});

test('under every default isolation, the statement of a process that pauses before its COMMIT is rolled back', async () => {
  const { engine } = await fresh();
  const runner = alone(engine, { deadlineMs: 20_000 });
  const [row] = await runner.query<{ value: string }>(
    statement('test.idle', `select current_setting('idle_in_transaction_session_timeout') as value`),
  );
  expect(row?.value).toBe('20s');
  const standsStill = engine.transaction(
    async (tx) => {
      const [backend] = await tx.query<{ pid: number }>(statement('test.pid', 'select pg_backend_pid() as pid'));
      const left = statement('test.left', 'select count(*)::int as n from pg_stat_activity where pid = $1');
      await until(
        'its transaction is rolled back',
        async () => (await engine.query(left, [backend?.pid]))[0]?.['n'] === 0,
      );
    },
    { idleMs: 200, retries: 0 },
  );
  await expect(standsStill).rejects.toMatchObject({ outcome: 'nothing_written' });
});

test('rows that another session has deleted keep no other job of their shard or key from running', async () => {
  const { database } = await fresh();
  const session = await openSession(database.url);
  const cases = [false, true].flatMap((failedBefore) =>
    (['none', 'all'] as const).map((coalesce) => ({ failedBefore, coalesce })),
  );
  for (const { failedBefore, coalesce } of cases) {
    const { queue, kinds } = await session.register(`orphans ${failedBefore} ${coalesce}`, [
      { name: 'work', coalesce },
    ]);
    const worker = await session.addWorker(queue);
    const kind = kinds['work'] ?? -1;
    const ids = await session.add(
      queue,
      ['a', 'a', 'b', 'c', 'c'].map((key) => ({ kind, key })),
    );
    const [gone = 0, behind = 0, sound = 0, first = 0, last = 0] = ids;
    if (failedBefore)
      await session.client.query('update pawl.queue_ready set attempt = 1 where id = any ($1)', [[gone, last]]);
    await session.client.query('delete from pawl.queue_job where id = any ($1)', [[gone, last]]);
    const ran: number[] = [];
    for (let pass = 0; pass < 6; pass += 1) {
      const { jobs } = await session.claim(queue, worker);
      ran.push(...jobs.map(({ id }) => id));
      if (jobs.length > 0) expect(await session.complete(queue, worker, jobs)).toEqual([]);
    }
    expect(ran.toSorted((a, b) => a - b)).toEqual([behind, sound, first]);
    expect(await breaches(session.client)).toEqual([]);
    expect(await session.one('select count(*)::int from pawl.queue_key where queue = $1', [queue])).toBe(0);
  }
});

test.each([
  ['lease', 'without a key', {}, undefined],
  ['lease', 'of a key', {}, 'k'],
  ['lease', 'of a unit', { coalesce: 'all' }, 'k'],
  ['transaction', 'without a key', {}, undefined],
  ['transaction', 'of a key', {}, 'k'],
  ['transaction', 'of a unit', { coalesce: 'all' }, 'k'],
] as const)(
  'a worker passes over jobs that another session has deleted, and gives no job the payload of another one: %s, %s',
  async (hold, _, kind, key) => {
    const { database, engine } = await fresh();
    const session = await openSession(database.url);
    const queue = createQueue(engine, 'orphans', { kinds: { work: kind } });
    const add = (n: number): Promise<readonly string[]> =>
      queue.enqueueMany(Array.from({ length: n }, (__, nth) => ({ kind: 'work', payload: nth, key }) as const));
    // In the middle of what is claimed together, at its beginning, and alone.
    const ids = [...(await add(6)), ...(await add(3)), ...(await add(1))];
    const gone = [2, 6, 9].map((at) => ids[at] ?? '');
    await session.client.query('delete from pawl.queue_job where id = any ($1)', [gone]);
    const ran: (readonly [string, unknown])[] = [];
    const worker = queue.work(
      { work: ({ jobs }) => void ran.push(...jobs.map(({ id, payload }) => [id, payload] as const)) },
      { hold, concurrency: 2, poll: '50ms' },
    );
    const errors: unknown[] = [];
    worker.events.on('error', (error) => errors.push(error));
    onTestFinished(() => worker.stop({ timeout: 0 }));
    await until('the others have run', () => Promise.resolve(ran.length >= 7));
    await queue.drain();
    expect(ran.toSorted(([a], [b]) => Number(a) - Number(b))).toEqual(
      [0, 1, 3, 4, 5, 7, 8].map((at) => [ids[at], at < 6 ? at : at - 6]),
    );
    expect(errors).toEqual([]);
    expect(await breaches(session.client)).toEqual([]);
    expect(await session.one('select count(*)::int from pawl.queue_key')).toBe(0);
  },
);
