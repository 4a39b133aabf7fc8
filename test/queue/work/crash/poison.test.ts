import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { createQueue, type WorkerEvents } from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { eventually, until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';

// Outcomes that a database refuses: each affects its own job, and no other.

/** A database with an optional set-up that makes it refuse writes. */
async function open(setUp = ''): Promise<PostgresEngine> {
  const database = await freshDatabase();
  if (setUp !== '') {
    const client = new pg.Client(database.url);
    await client.connect();
    await client.query(setUp);
    await client.end();
  }
  const engine = postgres(database.url, { max: 10, logger: recordLog() });
  onTestFinished(async () => {
    await engine.stop();
    await database.drop();
  });
  return engine;
}

/** `{"n":{"n":…}}` */
function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = { n: value };
  return value;
}

const many = (kind: 'job', count: number): { kind: 'job'; payload: number }[] =>
  Array.from({ length: count }, (_, n) => ({ kind, payload: n }));

async function count(engine: PostgresEngine, what: string): Promise<number> {
  const [row] = await engine.query<{ n: number }>(
    statement('test.count', `select (${what})::int as n`, { prepare: false }),
  );
  return row?.n ?? -1;
}

test('a result that the database refuses ends its own job in error, and all other outcomes are written', async () => {
  // A tenth of the usual stack depth: Node can serialise no more than a fifth of that.
  const engine = await open(
    `do $$ begin execute format('alter database %I set max_stack_depth = ''200kB''', current_database()); end $$`,
  );
  const queue = createQueue(engine, 'poison', { kinds: { job: {}, key: {} } });
  const failed: WorkerEvents['failed'][] = [];
  const worker = queue.work(
    {
      job: ({ payload }) => (payload === 13 || payload === 17 ? nested(3000) : { payload }),
      key: ({ payload }) => payload,
    },
    { concurrency: 100 },
  );
  worker.events.on('failed', (event) => failed.push(event));
  const ids = await queue.enqueueMany(many('job', 100));
  const { id } = await queue.enqueue('key', nested(1), { key: 'a' });
  await eventually(async () =>
    expect(await count(engine, `select count(*) from pawl.job where status = 'complete'`)).toBe(99),
  );
  expect(await queue.get(id)).toMatchObject({ status: 'complete', result: { n: 1 } });
  for (const n of [13, 17]) {
    expect(await queue.get(ids[n] ?? '')).toMatchObject({
      status: 'error',
      attempt: 1,
      result: null,
      error: expect.stringMatching(/^the database refused the outcome of this attempt: .*stack depth limit exceeded/),
    });
    expect((await queue.history(ids[n] ?? '')).at(-1)?.reason).toBe('result refused');
  }
  expect(failed.map(({ to }) => to)).toEqual(['error', 'error']);
  expect(new Set(failed.map(({ job }) => job.payload))).toEqual(new Set([13, 17]));
  await worker.stop();
});

test('the result of a coalesced unit is written once, whatever number of jobs it has, and is the result of each', async () => {
  const engine = await open();
  const queue = createQueue(engine, 'once', { kinds: { job: { coalesce: 'all' } } });
  const ids = await queue.enqueueMany(many('job', 3000).map((job) => ({ ...job, key: 'doc' })));
  // It hardly compresses: 3,000 copies would be 300 MB.
  const result = Array.from({ length: 10_000 }, () => Math.random().toString(36).slice(2, 12)).join('');
  const worker = queue.work({ job: () => ({ result }) });
  await queue.drain();
  for (const at of [0, 1, 2999]) {
    expect(await queue.get(ids[at] ?? '')).toMatchObject({ status: 'complete', result: { result } });
  }
  expect(await count(engine, 'select count(*) from pawl.job where result is not null')).toBe(3000);
  expect(await count(engine, `select pg_total_relation_size('pawl.queue_output')`)).toBeLessThan(2_000_000);
  await worker.stop();
});

test('when more jobs of a unit fail than one statement can settle, several statements do, and the jobs are one unit again', async () => {
  const engine = await open();
  const queue = createQueue(engine, 'failures', {
    kinds: { job: { coalesce: 'all' }, small: {} },
    retry: { attempts: 2, backoff: { kind: 'fixed', min: '1s', jitter: 0 } },
  });
  await queue.enqueueMany(many('job', 4000).map((job) => ({ ...job, key: 'doc' })));
  const units: number[][] = [];
  const worker = queue.work(
    {
      job: ({ jobs, attempt }) => {
        units.push([attempt, jobs.length]);
        if (attempt === 1) throw new Error('x'.repeat(20_000));
        return 'late';
      },
      small: () => {},
    },
    { poll: '200ms' },
  );
  await until('it has failed', () => units.length === 1);
  for (let n = 0; n < 5; n += 1) await queue.enqueue('small', n);
  await queue.drain({ delayed: true, timeout: '60s' });
  expect(units).toEqual([
    [1, 4000],
    [2, 4000],
  ]);
  expect(await count(engine, `select count(*) from pawl.job where status = 'complete'`)).toBe(4005);
  expect(
    await count(
      engine,
      `select sum(t.n) as count from pawl.queue_transition t
      where t.reason = 'failed' and length(pawl.queue_error(t.shard, t.at, t.error, t.error_of)) = 10000`,
    ),
  ).toBe(4000);
  expect(await count(engine, 'select count(*) from pawl.queue_key')).toBe(0);
  await worker.stop();
});

/** A table of results that is slow for each row, like a slow disk. */
const SLOW_RESULTS = `
create function public.slow() returns trigger language plpgsql as $$
begin
  perform pg_sleep(case when length(new.result::text) > 1000000 then 60 else 0.01 end);
  return new;
end $$;
create trigger slow before insert on pawl.queue_output for each row execute function public.slow()`;

test('a settlement that takes longer than its deadline is repeated in parts', async () => {
  const engine = await open(SLOW_RESULTS);
  const queue = createQueue(engine, 'slow', { kinds: { job: {} } });
  await queue.enqueueMany(many('job', 400));
  // A hundred rows take a second, and the deadline is two seconds.
  const worker = queue.work({ job: ({ payload }) => payload }, { lease: '4s', concurrency: 400, prefetch: 0 });
  await queue.drain({ timeout: '60s' });
  expect(await count(engine, 'select count(*) from pawl.job where result is not null and attempt = 1')).toBe(400);
  await worker.stop();
});

test('a single result that cannot be written within the deadline ends its own job in error', async () => {
  const engine = await open(SLOW_RESULTS);
  const queue = createQueue(engine, 'large', { kinds: { job: {} } });
  const worker = queue.work(
    { job: ({ payload }) => (payload === 1 ? 'x'.repeat(2_000_000) : payload) },
    { lease: '4s', concurrency: 10 },
  );
  const ids = await queue.enqueueMany(many('job', 3));
  await until(
    'all others are complete',
    async () => (await count(engine, `select count(*) from pawl.job where status = 'complete'`)) === 2,
  );
  await until('it is in error', async () => (await queue.get(ids[1] ?? '')).status === 'error');
  expect((await queue.history(ids[1] ?? '')).at(-1)?.reason).toBe('result refused');
  await worker.stop();
});

test('an outcome that is refused even without its text is left to the rescue, and stops no other job', async () => {
  const engine = await open(`
    create table public.refused (id bigint);
    create function public.refuse() returns trigger language plpgsql as $$
    begin
      if exists (select 1 from public.refused r where r.id = new.id) then
        raise exception 'this one never' using errcode = '22000';
      end if;
      return new;
    end $$;
    create trigger refuse before insert on pawl.queue_output for each row execute function public.refuse();
    create trigger refuse before insert on pawl.queue_dead for each row execute function public.refuse()`);
  const queue = createQueue(engine, 'never', { kinds: { job: {} } });
  const worker = queue.work({ job: ({ payload }) => payload }, { concurrency: 10 });
  const errors: string[] = [];
  worker.events.on('error', ({ error }) => errors.push(String(error)));
  await queue.pause();
  const ids = await queue.enqueueMany(many('job', 10));
  await engine.query(statement('test.refuse', 'insert into public.refused values ($1)'), [ids[5]]);
  await queue.resume();
  await until(
    'all others are complete',
    async () => (await count(engine, `select count(*) from pawl.job where status = 'complete'`)) === 9,
  );
  await until('the log has the line', () =>
    errors.some((words) => words.includes(`the outcome of job ${ids[5]} cannot be written`)),
  );
  expect((await queue.get(ids[5] ?? '')).status).toBe('in-progress');
  await engine.query(statement('test.allow', 'delete from public.refused'));
  await worker.stop();
  const next = queue.work({ job: ({ payload }) => payload });
  await until('it has run again', async () => (await queue.get(ids[5] ?? '')).status === 'complete');
  expect(await queue.get(ids[5] ?? '')).toMatchObject({ attempt: 2, result: 5 });
  await next.stop();
});
