import { expect, onTestFinished, test } from 'vitest';
import { SchemaMismatch, SerializationFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

// Two versions of a program run at the same time and declare the same queue differently. In the database the declaration of
// the last one to start counts.

async function engines(): Promise<[PostgresEngine, PostgresEngine]> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const both = [1, 2].map(() => postgres(database.url, { max: 14, logger: recordLog() }));
  onTestFinished(async () => void (await Promise.all(both.map((engine) => engine.stop()))));
  return both as [PostgresEngine, PostgresEngine];
}

test('a kind that a program declares as unique is unique for its enqueues, whatever an older version declares', async () => {
  const [engine, other] = await engines();
  const queue = createQueue(engine, 'orders', { kinds: { create: { unique: 'key' } } });
  const older = createQueue(other, 'orders', { kinds: { create: {} } });
  const first = await queue.enqueue('create', 1, { key: 'a' });
  await older.register();
  expect(await queue.enqueue('create', 1, { key: 'a' })).toEqual({ ...first, duplicate: true });
  const second = await queue.enqueue('create', 1, { key: 'b' });
  expect(await queue.enqueue('create', 1, { key: 'b' })).toEqual({ ...second, duplicate: true });
  await older.enqueue('create', 1, { key: 'c' });
  await older.enqueue('create', 1, { key: 'c' });
  const third = await queue.enqueue('create', 1, { key: 'c' });
  expect(await queue.enqueue('create', 1, { key: 'c' })).toEqual({ ...third, duplicate: true });
});

test('SQL may make a job unique, or leave that to the last declaration', async () => {
  const [engine] = await engines();
  await createQueue(engine, 'orders', { kinds: { create: {}, once: { unique: 'key' } } }).register();
  const enqueue = async (fields: object): Promise<unknown> => {
    const sql = statement('test.enqueue', `select pawl.enqueue($1::jsonb) ->> 'duplicate' as duplicate`);
    const [row] = await engine.query(sql, [JSON.stringify({ queue: 'orders', ...fields })]);
    return row?.['duplicate'];
  };
  for (const fields of [
    { kind: 'create', key: 'a', unique: true },
    { kind: 'once', key: 'a' },
  ]) {
    expect([await enqueue(fields), await enqueue(fields)]).toEqual(['false', 'true']);
  }
  await expect(enqueue({ kind: 'create', unique: true })).rejects.toThrow(/needs a key/);
  await expect(enqueue({ kind: 'create', key: 'a', unique: 'yes' })).rejects.toThrow(
    /unique must be true, false or a rule/,
  );
});

test.each(['lease', 'transaction'] as const)(
  'a handler whose program does not coalesce gets each job alone, though a newer version coalesces (hold: %s)',
  async (hold) => {
    const [engine, other] = await engines();
    const queue = createQueue(engine, 'sheets', {
      kinds: { save: { attempts: 2 } },
      retry: { backoff: { kind: 'fixed', min: 1 } },
    });
    await queue.enqueueMany([1, 2, 3, 4].map((payload) => ({ kind: 'save', payload, key: 'k' }) as const));
    const seen: unknown[] = [];
    const worker = queue.work(
      {
        save: ({ jobs, payload, attempt }) => {
          seen.push([jobs.length, payload]);
          if (payload === 2 && attempt === 1) throw new Error('once more');
        },
      },
      { hold },
    );
    await queue.pause();
    await worker.started;
    await createQueue(other, 'sheets', { kinds: { save: { coalesce: 'all' } } }).register();
    await queue.resume();
    await queue.drain({ delayed: true });
    await worker.stop();
    expect(seen).toEqual([
      [1, 1],
      [1, 2],
      [1, 2],
      [1, 3],
      [1, 4],
    ]);
    expect(await queue.stats()).toMatchObject({ new: 0, inProgress: 0, error: 0 });
  },
);

test('a process whose schema was dropped and made again reports that, and neither writes nor runs jobs of another queue', async () => {
  const [engine, other] = await engines();
  const mail = createQueue(engine, 'mail', { kinds: { send: {}, remind: {} } });
  const ran: unknown[] = [];
  const run = ({ payload }: { payload: unknown }): void => void ran.push(payload);
  const workers = (['lease', 'transaction'] as const).map((hold) =>
    mail.work({ send: run, remind: run }, { hold, concurrency: 2, lease: '3s', poll: '100ms' }),
  );
  onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop({ timeout: 0 })))));
  const told = workers.map(({ events }) => {
    const codes = new Set<unknown>();
    events.on('error', ({ error }) => codes.add(error instanceof SchemaMismatch && /made again/.test(error.message)));
    return codes;
  });
  await Promise.all(workers.map((worker) => worker.started));
  await mail.enqueue('send', 'mail');
  await mail.drain();
  // The workers' statements and this one may wait for each other in a circle.
  const drop = statement('test.drop', 'drop schema pawl cascade');
  const isDropped = (): Promise<boolean> =>
    other.query(drop).then(
      () => true,
      (error: unknown) => {
        if (error instanceof SerializationFailed) return false;
        throw error;
      },
    );
  await until('the schema is dropped', isDropped);
  await other.migrate();
  const bank = createQueue(other, 'bank', { kinds: { pay: {}, refund: {} } });
  await bank.enqueueMany([1, 2, 3, 4].map((payload) => ({ kind: 'pay', payload, key: `k${payload % 2}` }) as const));
  await until('both workers have reported it', () => told.every((codes) => codes.has(true)));
  const jobs = [{ kind: 'send', payload: 'one' }] as const;
  for (const attempt of [
    () => mail.enqueue('send', 'one'),
    () => mail.enqueueMany([...jobs, ...jobs]),
    () => engine.transaction((tx) => mail.enqueueMany(jobs, { tx })),
    () => mail.enqueue('send', 'one', { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }),
  ]) {
    await expect(attempt()).rejects.toThrow(SchemaMismatch);
  }
  expect(ran).toEqual(['mail']);
  expect(await bank.stats()).toMatchObject({ new: 4, inProgress: 0, workers: 0 });
});

test("a handler that needs all payloads never gets a unit whose payloads a newer version left out by coalesce: 'latest'", async () => {
  const [engine, other] = await engines();
  const all = createQueue(engine, 'sheets', { kinds: { save: { coalesce: 'all' } } });
  const seen: unknown[] = [];
  const ids = await all.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'save', payload, key: 'k' }) as const));
  const latest = createQueue(other, 'sheets', { kinds: { save: { coalesce: 'latest' } } });
  await latest.register();
  const older = all.work({ save: ({ jobs }) => void seen.push(['all', jobs.map(({ payload }) => payload)]) });
  onTestFinished(() => older.stop({ timeout: 0 }));
  await until('it is left to the newer version', async () => {
    const reasons = (await all.history(ids[0] ?? '')).map(({ reason }) => reason);
    return reasons.some((reason) => reason.includes("coalesce 'latest'"));
  });
  await older.stop();
  await other.query(statement('test.due', 'update pawl.queue_delayed set run_at = clock_timestamp()'));
  const newer = latest.work({ save: ({ jobs }) => void seen.push(['latest', jobs.map(({ payload }) => payload)]) });
  await latest.drain({ delayed: true });
  await newer.stop();
  expect(seen).toEqual([['latest', [3]]]);
});
