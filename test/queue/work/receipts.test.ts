import { expect, onTestFinished, test } from 'vitest';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { OPEN_DOOR } from '../../support/servers/open-door.ts';
import { SqlSession } from '../sql-session.ts';

/** The number of receipts of batches and of single jobs. */
const RECEIPTS = statement(
  'receipts.count',
  'select (select count(*)::int from pawl.queue_receipt) as batches, (select count(*)::int from pawl.queue_receipt_one) as ones',
);
const EXPIRE = statement('receipts.expire', `update pawl.queue_definition set history = interval '0'`);
const PRUNE = statement('receipts.prune', 'select pawl.queue_prune(id, 10000) as jobs from pawl.queue_definition');

interface Body {
  readonly items: Record<string, unknown>[];
  readonly points: Record<string, unknown>[];
}

test.each(['lease', 'transaction'] as const)(
  'complete jobs are found, listed, counted and pruned in the same way (hold: %s)',
  async (hold) => {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const engine = postgres(database.url, { max: 10 });
    onTestFinished(() => engine.stop());
    const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
    const sent = (await queue.enqueueMany(Array.from({ length: 50 }, (_, n) => ({ kind: 'send', payload: n })))).map(
      String,
    );
    const told = new Map<string, string>();
    const worker = queue.work(
      { send: (unit) => void told.set(unit.job.id, unit.processId) },
      { hold, concurrency: 2, poll: '20ms' },
    );
    await queue.drain();
    await worker.stop();
    const [{ batches, ones } = { batches: 0, ones: 0 }] = await engine.query<{ batches: number; ones: number }>(
      RECEIPTS,
    );
    // Makes sure that the test covers both kinds of receipts.
    expect(hold === 'lease' ? [batches > 0, ones] : [batches, ones > 40]).toEqual(
      hold === 'lease' ? [true, 0] : [0, true],
    );

    await queue.enqueueMany(Array.from({ length: 5000 }, () => ({ kind: 'send', payload: null })));
    const newest = sent.toReversed();
    expect((await queue.search('status:complete', { limit: 100 })).jobs.map(({ id }) => id)).toEqual(newest);
    for (const id of [newest[0] ?? '', newest[30] ?? '']) {
      const job = await queue.get(id);
      expect(job).toMatchObject({ status: 'complete', attempt: 1, processId: told.get(id) });
      const history = await queue.history(id);
      expect(history.map(({ reason, to }) => `${reason}: ${to}`)).toEqual([
        'enqueue: new',
        'claim: in-progress',
        'complete: complete',
      ]);
      expect(history.slice(1).map(({ at }) => at)).toEqual([job.claimedAt, job.settledAt]);
      expect(history.slice(1).map(({ processId }) => processId)).toEqual([told.get(id), told.get(id)]);
    }
    expect((await queue.stats()).completePerMinute).toBe(50);

    const http = createHttp(engine, { auth: OPEN_DOOR });
    onTestFinished(() => http.stop());
    const ask = async (path: string): Promise<Body> =>
      (
        await http(new Request(`http://localhost/api/v1${path}`), { remoteAddress: '127.0.0.1' })
      ).json() as Promise<Body>;
    const { items } = await ask('/history?limit=100&part=job');
    const complete = items.filter(({ event }) => event === 'complete');
    expect(complete.length).toBe(batches + ones);
    const one = await ask(`/history?part=job&q=${newest[0]}`);
    expect(one.items).toContainEqual(expect.objectContaining({ event: 'complete', subject: 'mail' }));
    const { points } = await ask('/queues/mail/series');
    expect(points.reduce((sum, { complete: n }) => sum + Number(n), 0)).toBe(50);

    await engine.query(EXPIRE);
    expect(await engine.query(PRUNE)).toEqual([{ jobs: 50 }]);
    expect(await engine.query(RECEIPTS)).toEqual([{ batches: 0, ones: 0 }]);
    expect((await queue.search('status:complete')).jobs).toEqual([]);
    expect((await queue.stats()).new).toBe(5000);
  },
);

test('a job is found by its receipt alone, however far apart the jobs are that were settled with it', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const engine = postgres(database.url, { max: 10 });
  onTestFinished(() => engine.stop());
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());
  const kinds = { save: { coalesce: 'all' }, plain: {} } as const;
  const queue = createQueue(engine, 'sheets', { kinds, retry: { backoff: { kind: 'fixed', min: 1 } } });
  // The updates of a key have those of all others between them, and each seventh job has no key.
  const jobs = Array.from({ length: 700 }, (_, n) =>
    n % 7 === 0
      ? ({ kind: 'plain', payload: n } as const)
      : ({ kind: 'save', payload: n, key: `k${n % 120}` } as const),
  );
  await queue.enqueueMany(jobs);
  const told = new Map<string, string>();
  const note = (unit: Unit): void => unit.jobs.forEach(({ id }) => told.set(id, unit.processId));
  const save = (unit: Unit): void => {
    note(unit);
    if (unit.attempt === 1 && unit.jobs.length > 2) unit.fail(unit.jobs[1] ?? unit.job, new Error('not this one'));
  };
  const worker = queue.work(
    { save, plain: ({ job, processId }) => void told.set(job.id, processId) },
    { concurrency: 50 },
  );
  // The jobs that failed are tried again a moment later.
  await queue.drain({ delayed: true });
  await queue.enqueue('plain', 'alone');
  await queue.drain();
  await worker.stop();
  const forms = `select count(*) filter (where key_hash > 0) > 50 and count(*) filter (where key_hash = 0) > 0
    and count(*) filter (where key_hash is null) > 0 from pawl.queue_receipt`;
  expect(await session.one(forms)).toBe(true);

  await session.begin();
  const { rows } = await session.client.query<{ id: string; process: string; history: string }>(
    `select j.id::text, j.process_id::text as process, (select h.process_id::text from pawl.job_history h
      where h.job = j.id and h.to_status = 'complete') as history from pawl.job j where j.settled_at is not null`,
  );
  expect(new Map(rows.map(({ id, process }) => [id, process]))).toEqual(told);
  expect(rows.every(({ process, history }) => process === history)).toBe(true);
  await session.commit();
  await session.begin();
  expect(await session.one('select count(settled_at)::int from pawl.job')).toBe(701);
  // Besides, each job may be within the bounds of each claim of several ranges.
  const read = `select (idx_tup_fetch - 701 * (select count(*) from pawl.queue_receipt where key_hash is null))::int
    from pg_stat_xact_user_tables where schemaname = 'pawl' and relname = 'queue_receipt'`;
  expect(await session.one(read)).toBeLessThan(3 * 701);
  await session.commit();
});
