import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { cancelled, createQueue, createQueueAdmin, NoRetry, snooze, type Worker } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { COMMIT, startProxy } from '../../support/proxy.ts';

let url: string;
let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

/** Every event of a worker about jobs, in order. */
function record({ events }: Worker): string[] {
  const told: string[] = [];
  events.on('started', ({ unit }) => told.push(`${unit.job.id} started ${unit.attempt}`));
  events.on('completed', ({ job }) => told.push(`${job.id} completed`));
  events.on('failed', ({ job, to }) => told.push(`${job.id} failed ${to}`));
  events.on('ended', ({ job, status }) => told.push(`${job.id} ended ${status}`));
  return told;
}

const OF = (id: string) => (line: string) => line.startsWith(`${id} `);

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  test('a worker tells when jobs start, complete, fail and end', async () => {
    nth += 1;
    const queue = createQueue(engine, `events ${nth}`, {
      kinds: { job: {}, all: { coalesce: 'all' } },
      retry: { attempts: 2, backoff: { kind: 'fixed', min: 1 } },
    });
    const ids = await queue.enqueueMany([
      { kind: 'job', payload: 'completes' },
      { kind: 'job', payload: 'fails' },
      { kind: 'job', payload: 'cancels' },
      { kind: 'job', payload: 'snoozes' },
      { kind: 'all', payload: 'a', key: 'k' },
      { kind: 'all', payload: 'b', key: 'k' },
    ]);
    let snoozes = 1;
    const worker = queue.work(
      {
        job: ({ payload }) => {
          if (payload === 'fails') throw new Error('no');
          if (payload === 'cancels') return cancelled();
          if (payload !== 'snoozes' || snoozes === 0) return 'done';
          snoozes -= 1;
          return snooze(1);
        },
        all: () => 'done',
      },
      { hold, poll: '50ms', concurrency: 3 },
    );
    const told = record(worker);
    await until('all have ended', () => told.filter((line) => line.includes(' ended ')).length === ids.length);
    await worker.stop();
    const lines = (at: number): string[] =>
      told.filter(OF(ids[at] ?? '')).map((line) => line.split(' ').slice(1).join(' '));
    expect(lines(0)).toEqual(['started 1', 'completed', 'ended complete']);
    expect(lines(1)).toEqual(['started 1', 'failed retry', 'started 2', 'failed error', 'ended error']);
    expect(lines(2)).toEqual(['started 1', 'failed cancelled', 'ended cancelled']);
    expect(lines(3)).toEqual(['started 1', 'started 1', 'completed', 'ended complete']);
    expect([...lines(4), ...lines(5)].toSorted((a, b) => a.localeCompare(b))).toEqual([
      'completed',
      'completed',
      'ended complete',
      'ended complete',
      'started 1',
    ]);
  });

  test('a worker with a listener for ends alone reports a job whose lost worker cannot', async () => {
    nth += 1;
    const name = `events ${nth}`;
    const queue = createQueue(engine, name, { kinds: { job: {} } });
    const { id } = await queue.enqueue('job', 1, { attempts: 1 });
    const run = (text: string): Promise<object[]> =>
      engine.query(statement('test.run', text, { prepare: false }), [name]);
    const lost = await run(`
      insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold)
      values (pawl.queue_id($1), 'h', 1, 1, '1s', clock_timestamp() + interval '1 hour', 'lease') returning id::text as id`);
    await engine.query(
      statement(
        'test.claim',
        'select pawl.queue_claim(pawl.queue_id($1), 0::smallint, $2, 1, 1, 10, 1, (-32768)::smallint, 0)',
        { prepare: false },
      ),
      [name, (lost[0] as { id: string }).id],
    );
    await run(
      `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 second' where queue = pawl.queue_id($1)`,
    );
    const ends: string[] = [];
    const worker = queue.work({ job: () => undefined }, { hold, lease: '3s', poll: '50ms', concurrency: 3 });
    worker.events.on('ended', ({ job, status, error }) => ends.push(`${job.id} ${status} ${error}`));
    await until('it is told', () => ends.length > 0);
    await worker.stop();
    expect(ends).toEqual([`${id} error the worker was lost during attempt 1, the last one`]);
  });

  // Invariants J17.
  test('a job that ends while it waits is told once, by one of the workers that listen', async () => {
    nth += 1;
    const name = `events ${nth}`;
    const make = () => createQueue(engine, name, { kinds: { job: {}, held: {} } });
    const queue = make();
    const told: string[] = [];
    const workers = [make(), make()].map((one) =>
      one.work({ job: () => undefined, held: () => undefined }, { hold, lease: '3s', poll: '50ms', concurrency: 2 }),
    );
    for (const { events } of workers) {
      events.on('ended', ({ job, status, error, unit }) =>
        told.push(`${job.id} ${status} ${error} ${String(job.payload)} ${unit.kind}`),
      );
    }
    const listening = statement(
      'test.tells',
      'select count(*)::int as n from pawl.queue_worker w where w.queue = pawl.queue_id($1) and w.tells',
      { prepare: false },
    );
    await until('both listen', async () => ((await engine.query<{ n: number }>(listening, [name]))[0]?.n ?? 0) === 2);
    const hand = await queue.enqueue('held', 'a', { delay: '1h' });
    const child = await queue.enqueue('held', 'b', { after: [hand.id], afterCancel: 'error' });
    const expired = await queue.enqueue('held', 'c', { delay: '1h', expiresAt: new Date(Date.now() + 500) });
    const done = await queue.enqueue('held', 'e', { delay: '1h' });
    const many = await queue.enqueue('held', 'f', { delay: '1h', tags: ['many'] });
    await queue.cancel(hand.id, { reason: 'not needed' });
    await queue.finish(done.id, { result: 1 });
    await queue.cancelAll('tag:many', { reason: 'too many' });
    await until('all are told', () => told.length >= 5);
    await Promise.all(workers.map((worker) => worker.stop()));
    expect(told.toSorted((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10))).toEqual([
      `${hand.id} cancelled not needed a held`,
      `${child.id} error 1 of the jobs that it comes after were cancelled b held`,
      expect.stringContaining(`${expired.id} cancelled it had not begun by`) as string,
      `${done.id} complete null e held`,
      `${many.id} cancelled too many f held`,
    ]);
    await queue.cancel((await queue.enqueue('held', 'd', { delay: '1h' })).id);
    const rows = statement('test.untold', 'select count(*)::int as n from pawl.queue_untold', { prepare: false });
    expect(await engine.query(rows)).toEqual([{ n: 0 }]);
  });
});

// Invariants J17.
test('a job in error ends once more when it is completed by hand, and one that a call has claimed as it is settled', async () => {
  nth += 1;
  const queue = createQueue(engine, `events ${nth}`, {
    kinds: { job: { attempts: 1 }, pulled: {} },
    concurrency: { perKey: Infinity },
  });
  const worker = queue.work(
    { job: () => Promise.reject(new Error('no')), pulled: () => undefined },
    { lease: '3s', poll: '50ms', kinds: ['job'] },
  );
  const told: string[] = [];
  worker.events.on('ended', ({ job, status, error, unit }) =>
    told.push(`${job.id} ${status} ${error?.split('\n')[0]} ${unit.attempt} ${unit.signal.aborted}`),
  );
  const listening = statement(
    'test.tells_one',
    'select count(*)::int as n from pawl.queue_worker w where w.queue = pawl.queue_id($1) and w.tells',
    { prepare: false },
  );
  await until('it listens', async () => (await engine.query<{ n: number }>(listening, [queue.name]))[0]?.n === 1);
  const { id } = await queue.enqueue('job', 1);
  await until('it ends in error', () => told.length === 1);
  // The event comes before the outcome is written.
  await until('that is written', async () => (await queue.get(id)).status === 'error');
  await queue.finish(id);
  await until('it is complete', () => told.length === 2);
  const jobs = await queue.enqueueMany([
    { kind: 'pulled', payload: 1 },
    { kind: 'pulled', payload: 2 },
    { kind: 'pulled', payload: 3 },
  ]);
  const [complete, dead, free] = await queue.claim({ limit: 3 });
  await complete?.complete('x');
  await dead?.fail(new NoRetry('bad'));
  await free?.release();
  await until('both are told', () => told.length >= 4);
  await worker.stop();
  expect(told.slice(0, 2)).toEqual([`${id} error Error: no 1 false`, `${id} complete undefined 1 false`]);
  expect(told.slice(2).toSorted()).toEqual([
    `${jobs[0]} complete undefined 1 false`,
    `${jobs[1]} error NoRetry: bad 1 true`,
  ]);
});

// Invariants J17.
test('an end is told though the answer that brings it is lost, and that of a job that an operator took from a dead client', async () => {
  nth += 1;
  const proxy = await startProxy(url);
  onTestFinished(() => proxy.stop());
  await using broken = postgres(proxy.url, { logger: recordLog() });
  const options = { kinds: { job: { attempts: 1 }, other: {} }, concurrency: { perKey: Infinity } } as const;
  const queue = createQueue(engine, `events ${nth}`, options);
  const listener = createQueue(broken, queue.name, options);
  const worker = listener.work({ other: () => undefined }, { lease: '1s', kinds: ['other'] });
  onTestFinished(() => worker.stop());
  const told: string[] = [];
  worker.events.on('error', () => {});
  worker.events.on('ended', ({ job, status }) => told.push(`${job.id} ${status}`));
  const one = async (text: string, values: unknown[]): Promise<unknown> =>
    (await engine.query<{ value: unknown }>(statement('test.one', text, { prepare: false }), values))[0]?.value;
  const listens =
    'select count(*)::int as value from pawl.queue_worker w where w.queue = pawl.queue_id($1) and w.tells';
  await until('it listens', async () => (await one(listens, [queue.name])) === 1);
  proxy.loseAnswerTo(COMMIT);
  const first = await queue.enqueue('job', 1, { delay: '1h' });
  await queue.finish(first.id);
  const untaken = 'select count(*)::int as value from pawl.queue_untold where id = $1 and taken_at is null';
  await until('it was taken', async () => (await one(untaken, [first.id])) === 0);
  proxy.loseAnswerTo('never');
  // As if ten seconds had passed.
  const pass = `update pawl.queue_untold set taken_at = taken_at - interval '10 seconds' where id = $1`;
  await until('it is told', async () => (await one(pass, [first.id]), told.length > 0));
  const second = await queue.enqueue('job', 2);
  await queue.claim();
  const client = (await createQueueAdmin(engine).workers(queue.name)).find(({ inProgress }) => inProgress === 1);
  await createQueueAdmin(engine).releaseWorker(client?.id ?? '');
  await until('both are told', () => told.includes(`${second.id} error`));
  expect(new Set(told)).toEqual(new Set([`${first.id} complete`, `${second.id} error`]));
  const rows = 'select count(*)::int as value from pawl.queue_untold where $1::text is not null';
  await until('none is left', async () => (await one(rows, [''])) === 0);
});
