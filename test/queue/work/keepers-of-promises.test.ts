import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import pg from 'pg';
import { expect, onTestFinished, test, vi } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type WorkOptions } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';

const run = promisify(execFile);

async function freshEngine(): Promise<{ engine: PostgresEngine; url: string }> {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 20 });
  onTestFinished(() => engine.stop());
  return { engine, url };
}

async function statusOf(queue: Pick<Queue, 'get'>, id: string): Promise<string> {
  return (await queue.get(id)).status;
}

/** Ends the lease of every worker, and rescues their jobs. */
async function rescue(engine: PostgresEngine): Promise<void> {
  await engine.query(
    statement('expire', "update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 s'"),
  );
  await engine.query(statement('rescue', 'select pawl.queue_rescue(id) from pawl.queue_definition'));
}

test.each(['lease', 'transaction'] as const)(
  'a result that is no JSON fails its own attempt and nothing else (hold: %s)',
  async (hold) => {
    const { engine } = await freshEngine();
    const queue = createQueue(engine, 'results', { kinds: { work: { attempts: 1 } } });
    const [bad, good] = await queue.enqueueMany([
      { kind: 'work', payload: 'bad' },
      { kind: 'work', payload: 'good' },
    ]);
    const options: WorkOptions = { hold, concurrency: 2 };
    const worker = queue.work({ work: ({ payload }) => (payload === 'bad' ? { size: 1n } : undefined) }, options);
    onTestFinished(() => worker.stop({ timeout: 0 }));
    await until('the good job completes', async () => (await statusOf(queue, good ?? '')) === 'complete');
    await until('the bad job ends in error', async () => (await statusOf(queue, bad ?? '')) === 'error');
  },
);

test('when many jobs are cancelled at once, each connection runs one statement after another', async () => {
  const { engine } = await freshEngine();
  const queue = createQueue(engine, 'cancelled', { kinds: { work: {} } });
  const ids = await queue.enqueueMany(Array.from({ length: 12 }, () => ({ kind: 'work', payload: null }) as const));
  const original: unknown = Reflect.get(pg.Client.prototype, 'query');
  const send = vi.spyOn(pg.Client.prototype, 'query');
  const isBusy = (client: unknown): boolean => Reflect.get(client as object, 'readyForQuery') === false;
  const early: unknown[] = [];
  send.mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    if (isBusy(this)) early.push(args[0]);
    return Reflect.apply(original as typeof send, this, args);
  });
  onTestFinished(() => send.mockRestore());
  const worker = queue.work(
    { work: ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))) },
    { concurrency: 12 },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  await until('all are in progress', async () => (await queue.stats()).inProgress === 12);
  await Promise.all(ids.map((id) => queue.cancel(id)));
  await queue.drain();
  expect((await queue.stats()).cancelled).toBe(12);
  expect(early).toEqual([]);
});

test('in transaction hold, giving up one job of a unit keeps the writes for the others', async () => {
  const { engine } = await freshEngine();
  await engine.query(statement('note.create', 'create table note (text text)'));
  const add = statement('note.add', 'insert into note values ($1)');
  const queue = createQueue(engine, 'notes', { kinds: { write: { coalesce: 'all', attempts: 1 } } });
  for (const text of ['one', 'two', 'three']) await queue.enqueue('write', text, { key: 'k' });
  const handlers = {
    write: async (unit: Parameters<Parameters<typeof queue.work>[0]['write']>[0]): Promise<void> => {
      for (const job of unit.jobs) {
        if (job.payload === 'two') unit.fail(job, new Error('not this one'));
        else await unit.tx.query(add, [job.payload]);
      }
    },
  };
  const worker = queue.work(handlers, { hold: 'transaction', concurrency: 1 });
  await queue.drain();
  await worker.stop();
  const rows = await engine.query<{ text: string }>(statement('note.list', 'select text from note order by text'));
  expect(rows.map(({ text }) => text)).toEqual(['one', 'three']);
});

test('all connections of the given pool may hold transactions', async () => {
  const { url } = await freshDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 30 });
  pool.on('error', () => {});
  const engine = postgres(pool);
  onTestFinished(async () => {
    await engine.stop();
    await pool.end();
  });
  const queue = createQueue(engine, 'pool', { kinds: { work: {} } });
  const worker = queue.work({ work: () => {} }, { hold: 'transaction', concurrency: 20 });
  await worker.started;
  await worker.stop();
});

test.each([
  ['jobs behind a job of their key that kills its process are charged once, however often it does so', 3],
  ['a job with one attempt is not spent by the death of a worker that never began it', 1],
])('%s', async (_promise, attempts) => {
  const { engine, url } = await freshEngine();
  const queue = createQueue(engine, 'chain', { kinds: { work: { attempts } } });
  const ids: string[] = [];
  for (const payload of ['kill', 1, 2, 3]) ids.push((await queue.enqueue('work', payload, { key: 'k' })).id);
  for (let crash = 1; crash <= attempts; crash += 1) {
    await spawnChild('queue/work/crash/chain.child.ts', [url, String(attempts)]).exited;
    await rescue(engine);
  }
  const jobs = await Promise.all(ids.map((id) => queue.get(id)));
  expect(jobs.map(({ status }) => status)).toEqual(['error', 'new', 'new', 'new']);
  for (const { attempt } of jobs.slice(1)) expect(attempt).toBeLessThan(Math.max(attempts, 2));
});

test("hold: 'transaction': a job that kills its process in the first step of its handler ends in error, too", async () => {
  const { engine, url } = await freshEngine();
  const queue = createQueue(engine, 'chain', { kinds: { work: { attempts: 2 } } });
  const { id } = await queue.enqueue('work', 'kill', { key: 'k' });
  const living = statement('test.living', 'select count(*)::int as n from pawl.queue_worker w where w.lost_at is null');
  for (let deaths = 0; ; deaths += 1) {
    expect(deaths).toBeLessThan(12);
    const child = spawnChild('queue/work/crash/chain.child.ts', [url, '2', 'transaction']);
    let isDead = false;
    void child.exited.then(() => (isDead = true));
    await until('it has died, or the job has ended', async () => isDead || (await queue.get(id)).status === 'error');
    if (!isDead) break;
    await until('its lease is over', async () => {
      await rescue(engine);
      return (await engine.query<{ n: number }>(living))[0]?.n === 0;
    });
    if ((await queue.get(id)).status === 'error') break;
  }
  expect(await queue.get(id)).toMatchObject({ status: 'error', attempt: 2 });
});

test.each(['lease', 'transaction'] as const)(
  'a worker whose engine was stopped ends with it (hold: %s)',
  async (hold) => {
    const { url } = await freshEngine();
    const program = `
    import { postgres } from 'pawl/postgres';
    import { createQueue } from 'pawl/queue';
    const engine = postgres(${JSON.stringify(url)});
    const queue = createQueue(engine, 'forgotten', { kinds: { work: {} } });
    queue.work({ work: () => console.log('ran') }, { hold: '${hold}', concurrency: 2, poll: '50ms', lease: '6s' });
    await queue.enqueue('work', 1);
    await queue.drain();
    await engine.stop();
  `;
    const { stdout, stderr } = await run(process.execPath, ['--input-type=module', '-e', program], { timeout: 30_000 });
    expect(stdout).toBe('ran\n');
    expect(stderr.match(/stop workers before their engine/g)).toHaveLength(1);
    expect(stderr).not.toContain('keeps trying');
  },
);

test('a heartbeat turns the notifications of its worker on, and one that comes late does not turn them off', async () => {
  const { engine } = await freshEngine();
  const queue = createQueue(engine, 'late', { kinds: { work: {} } });
  const worker = queue.work({ work: () => {} }, { lease: '1h' });
  onTestFinished(() => worker.stop({ timeout: 0 }));
  await worker.started;
  const beat = statement(
    'test.beat',
    `select pawl.queue_beat(json_build_array(json_build_object('worker', w.id, 'wantsNotify', $1::boolean))) ->> 'alive' is not null as alive
    from pawl.queue_worker w`,
  );
  const set = statement('test.set', `select pawl.queue_set_wants_notify(w.id, $1) from pawl.queue_worker w`);
  const wants = statement('test.wants', 'select wants_notify as wants from pawl.queue_worker');
  for (const [before, said, after] of [
    [false, false, false],
    [false, null, false],
    [false, true, true],
    [true, false, true],
  ]) {
    await engine.query(set, [before]);
    expect(await engine.query(beat, [said])).toEqual([{ alive: true }]);
    expect(await engine.query(wants), `${before}, ${said}`).toEqual([{ wants: after }]);
  }
});
