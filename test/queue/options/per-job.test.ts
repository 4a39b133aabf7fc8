import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type JobRecord, type Queue } from '../../../src/queue/index.ts';
import type { JobOptions } from '../../../src/queue/job-options.ts';
import { freshDatabase } from '../../support/database.ts';
import { aborted, until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';

const AT_ONCE = { kind: 'fixed', min: 1 } as const;

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

async function inSql(request: object): Promise<string> {
  const [row] = await engine.query<{ answer: { id: string } }>(
    statement('test.enqueue', 'select pawl.enqueue($1::jsonb) as answer'),
    [JSON.stringify(request)],
  );
  return row?.answer.id ?? '';
}

type Jobs = Queue<{ job: object }>;

/** Every way to enqueue a job with these options. */
const WAYS: Readonly<Record<string, (queue: Jobs, options: JobOptions) => Promise<string>>> = {
  enqueue: async (queue, options) => (await queue.enqueue('job', 1, options)).id,
  enqueueMany: async (queue, options) => {
    const [, id] = await queue.enqueueMany([
      { kind: 'job', payload: 0 },
      { kind: 'job', payload: 1, ...options },
    ]);
    return id ?? '';
  },
  'a transaction': (queue, options) =>
    engine.transaction(async (tx) => {
      const [id] = await queue.enqueueMany([{ kind: 'job', payload: 1, ...options }], { tx });
      return id ?? '';
    }),
  SQL: async (queue, options) => {
    await queue.register();
    return inSql({ queue: queue.name, kind: 'job', payload: 1, ...options });
  },
};

function settled(queue: Jobs, id: string): Promise<JobRecord> {
  return until(`job ${id} has ended`, async () => {
    const job = await queue.get(id);
    return ['complete', 'error', 'cancelled'].includes(job.status) ? job : undefined;
  });
}

const RESCUE = statement('test.rescue', 'select * from pawl.queue_rescue(pawl.queue_id($1))', { prepare: false });

/** The jobs that are noted as running in open transactions. */
async function held(): Promise<string[]> {
  const rows = await engine.query<{ id: string }>(
    statement('test.held', 'select pg_catalog.unnest(w.holding)::text as id from pawl.queue_worker w'),
  );
  return rows.map(({ id }) => id);
}

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  test.each(Object.entries(WAYS))(
    'attempts, backoff and timeout of a job count in place of its kind’s: %s',
    async (_, add) => {
      nth += 1;
      const queue = createQueue(engine, `own ${nth}`, {
        kinds: { job: { attempts: 2, backoff: AT_ONCE, timeout: '1m' } },
      });
      const own = await add(queue, { attempts: 4, timeout: 1, backoff: { kind: 'linear', min: 2, max: 3 } });
      const keyed = await add(queue, { attempts: 1, key: 'k' });
      const plain = await add(queue, {});
      const tried = new Map<string, number>();
      const worker = queue.work(
        {
          job: async ({ job, signal }) => {
            tried.set(job.id, (tried.get(job.id) ?? 0) + 1);
            if (job.id === own) await aborted(signal);
            throw new Error('never');
          },
        },
        { hold, poll: '50ms', concurrency: 3 },
      );
      for (const [id, attempts, reason] of [
        [own, 4, 'attempt took longer'],
        [keyed, 1, 'never'],
        [plain, 2, 'never'],
      ] as const) {
        const job = await settled(queue, id);
        expect(job).toMatchObject({
          status: 'error',
          attempt: attempts,
          attempts,
          error: expect.stringContaining(reason),
        });
        expect(tried.get(id)).toBe(attempts);
      }
      await worker.stop();
    },
  );

  test('a job whose worker is killed has as many attempts as it was given', async () => {
    nth += 1;
    const name = `killed ${nth}`;
    const queue = createQueue(engine, name, { kinds: { job: {} }, retry: { attempts: 5, backoff: AT_ONCE } });
    const { id } = await queue.enqueue('job', 1, { attempts: 1 });
    const child = spawnChild('queue/options/hang.child.ts', [url, name, hold]);
    await child.message();
    if (hold === 'transaction') await until('it is noted as running', async () => (await held()).includes(id));
    await child.kill('SIGKILL');
    const job = await until('its lease is over and it has ended', async () => {
      await engine.query(RESCUE, [name]);
      const found = await queue.get(id);
      return found.status === 'error' ? found : undefined;
    });
    expect(job).toMatchObject({ attempt: 1, attempts: 1 });
  });
});

test.each(Object.entries(WAYS))('a delay is counted by the clock of the database: %s', async (way, add) => {
  nth += 1;
  const queue = createQueue(engine, `delay ${nth}`, { kinds: { job: {} } });
  const delay = way === 'SQL' ? ('5 seconds' as '5s') : '5s';
  const id = await add(queue, { delay });
  const { enqueuedAt, runAt } = await queue.get(id);
  expect(Number(runAt) - Number(enqueuedAt)).toBe(5000);
  expect(await queue.stats()).toMatchObject({ delayed: 1 });
});

test('a unique job takes a delay and options of its own', async () => {
  const queue = createQueue(engine, 'unique own', { kinds: { job: { unique: 'key' } } });
  const { id } = await queue.enqueue('job', 1, { key: 'k', delay: '1h', attempts: 7, tags: ['a'] });
  const job = await queue.get(id);
  expect(job).toMatchObject({ attempts: 7, tags: ['a'] });
  expect(Number(job.runAt) - Number(job.enqueuedAt)).toBe(3_600_000);
});

test('a kind that requires a key refuses a job without one, from programs and from SQL', async () => {
  const queue = createQueue(engine, 'keys', { kinds: { job: { key: 'required' }, other: {} } });
  await queue.register();
  const calls = [
    queue.enqueue('job', 1),
    queue.enqueueMany([{ kind: 'job', payload: 1 }]),
    queue.schedule('s', { cron: '@daily', kind: 'job' }),
    queue.check('job', 1),
    inSql({ queue: 'keys', kind: 'job' }),
  ];
  for (const refused of await Promise.allSettled<unknown>(calls)) {
    expect(refused).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining('needs a key') } });
  }
  await queue.enqueueMany([
    { kind: 'job', payload: 1, key: 'k' },
    { kind: 'other', payload: 1 },
  ]);
  expect(await queue.stats()).toMatchObject({ new: 2 });
});

test('options that cannot be are refused with their name, from programs and from SQL, and nothing is written', async () => {
  const queue = createQueue(engine, 'bad', { kinds: { job: {} } });
  await queue.register();
  for (const [name, value, inSqlToo = true] of [
    ['attempts', 0],
    ['attempts', 1001],
    ['attempts', 1.5],
    ['timeout', 'soon'],
    ['timeout', 0],
    ['backoff', 'quick'],
    ['backoff', { min: 10, max: 5 }],
    ['backoff', { factor: 0 }],
    ['backoff', { speed: 1 }],
    ['expiresAt', 'never'],
    ['expiresAt', new Date(Number.NaN), false],
    ['tags', 'a'],
    ['tags', ['']],
    ['tags', Array.from({ length: 21 }, (_, at) => `tag ${at}`)],
    ['delay', 'soon'],
  ] as const) {
    const bad: Record<string, unknown> = { [name]: value };
    const calls: Promise<unknown>[] = [
      queue.enqueue('job', 1, bad),
      queue.enqueueMany([{ kind: 'job', payload: 1, ...bad }]),
      ...(inSqlToo ? [inSql({ queue: 'bad', kind: 'job', ...bad })] : []),
    ];
    for (const refused of await Promise.allSettled(calls)) {
      expect(refused, `${name} ${JSON.stringify(value)}`).toMatchObject({
        reason: { message: expect.stringContaining(name) },
      });
      expect(refused.status === 'rejected' && refused.reason).toBeInstanceOf(InvalidInput);
    }
  }
  const both = { runAt: new Date(), delay: '1s' } as const;
  await expect(queue.enqueue('job', 1, both)).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.enqueueMany([{ kind: 'job', payload: 1, ...both }])).rejects.toBeInstanceOf(InvalidInput);
  expect(await queue.stats()).toMatchObject({ new: 0 });
});
