import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Conflict, InvalidInput, NoRetry } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import {
  createQueue,
  createQueueAdmin,
  type Queue,
  readQueueHealth,
  type Worker,
  type WorkOptions,
} from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';
import { FAULTS } from '../faults.ts';
import { breaches } from '../invariants.ts';

// Keys that stop at an error: keyOnError: 'block'.

const kinds = { job: {}, all: { coalesce: 'all' } } as const;
const ATTEMPTS = { attempts: 2, backoff: { kind: 'fixed', min: 1 } } as const;
type Blocking = Queue<typeof kinds>;

let engine: PostgresEngine;
let url: string;
let witness: pg.Client;
let nth = 0;
/** What fails, and how. Handlers look here, so that an operator can mend the cause. */
let broken = new Map<unknown, Error>();

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 30 });
  await engine.migrate();
  witness = new pg.Client(url);
  await witness.connect();
});

afterAll(async () => {
  await witness.end();
  await engine.stop();
});

function declare(): Blocking {
  nth += 1;
  broken = new Map();
  return createQueue(engine, `blocking ${nth}`, { kinds, retry: ATTEMPTS, keyOnError: 'block' });
}

/** Starts a worker that notes the payloads of what it has completed. */
async function start(queue: Blocking, options: WorkOptions): Promise<{ ran: unknown[]; worker: Worker }> {
  const ran: unknown[] = [];
  const handle = ({ payload }: { payload: unknown }): void => {
    const error = broken.get(payload);
    if (error !== undefined) throw error;
    ran.push(payload);
  };
  const all = (unit: { jobs: readonly { payload: unknown }[]; fail: (job: never, error: unknown) => void }): void => {
    for (const job of unit.jobs) {
      const error = broken.get(job.payload);
      if (error === undefined) ran.push(job.payload);
      else unit.fail(job as never, error);
    }
  };
  const worker = queue.work({ job: handle, all }, { poll: '100ms', ...options });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await worker.started;
  return { ran, worker };
}

const add = (queue: Blocking, key: string, ...payloads: unknown[]): Promise<string[]> =>
  queue.enqueueMany(payloads.map((payload) => ({ kind: 'job' as const, payload, key })));

const inError = (queue: Blocking, id: string): Promise<void> =>
  eventually(async () => expect((await queue.get(id)).status).toBe('error'));

const healthy = async (): Promise<void> => expect(await breaches(witness)).toEqual([]);

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  const options = { hold, concurrency: 4 } as const;

  // Invariants J18.
  test('the later jobs of the key wait, whenever they come, and other keys go on', async () => {
    const queue = declare();
    broken.set(2, new NoRetry('no'));
    const [, second = ''] = await add(queue, 'a', 1, 2, 3, 4);
    const { ran } = await start(queue, options);
    await inError(queue, second);
    const [late = ''] = await add(queue, 'a', 5);
    await add(queue, 'b', 6);
    await queue.enqueue('job', 7);
    await eventually(() => expect(ran).toEqual(expect.arrayContaining([1, 6, 7])));
    await eventually(async () => expect(await queue.stats()).toMatchObject({ parked: 3, ready: 0, blockedKeys: 1 }));
    expect(ran.filter((payload) => [3, 4, 5].includes(payload as number))).toEqual([]);
    expect(await queue.explain(late)).toMatchObject({
      reasons: [
        {
          code: 'key_blocked',
          job: second,
          text: `the key "a" is blocked by job ${second}, which ended in error; retry or skip it`,
        },
      ],
    });
    expect((await queue.explain(second)).reasons.map(({ code }) => code)).toEqual(['error', 'blocks_key']);
    const { blockedKeys, strandedKeys } = await readQueueHealth(engine);
    expect(blockedKeys).toMatchObject([{ queue: queue.name, key: 'a', job: second }]);
    expect(strandedKeys).toEqual([]);
    await healthy();

    expect(await queue.skip(second)).toBe('error');
    await eventually(() => expect(ran.slice(-3)).toEqual([3, 4, 5]));
    expect(await queue.stats()).toMatchObject({ blockedKeys: 0, error: 1 });
    expect((await queue.history(second)).at(-1)).toMatchObject({ from: 'error', to: 'error', reason: 'skip by hand' });
    await healthy();
  });

  test('a retried job runs before the later jobs of its key, and may stop the key again', async () => {
    const queue = declare();
    broken.set(1, new Error('down'));
    const [first = ''] = await add(queue, 'a', 1, 2, 3);
    const { ran } = await start(queue, options);
    await inError(queue, first);
    expect((await queue.get(first)).attempt).toBe(2);
    expect(await queue.retry(first)).toBe('new');
    await inError(queue, first);
    expect(ran).toEqual([]);
    expect(await queue.stats()).toMatchObject({ blockedKeys: 1 });
    broken.clear();
    await queue.retry(first);
    await eventually(() => expect(ran).toEqual([1, 2, 3]));
    await healthy();
  });

  test('of a unit of several jobs, the key waits for each that ended in error', async () => {
    const queue = declare();
    broken.set(1, new NoRetry('no')).set(2, new Error('later')).set(3, new NoRetry('no'));
    const ids = await queue.enqueueMany([1, 2, 3, 4].map((payload) => ({ kind: 'all' as const, payload, key: 'a' })));
    const [first = '', , third = ''] = ids;
    const { ran } = await start(queue, options);
    await inError(queue, third);
    await healthy();
    expect(ran).toEqual(hold === 'lease' ? [4] : expect.arrayContaining([4]));
    broken.clear();
    await queue.skip(first);
    await healthy();
    expect((await queue.stats()).blockedKeys).toBe(1);
    await queue.retry(third);
    await eventually(() => expect(new Set(ran)).toEqual(new Set([2, 3, 4])));
    await healthy();
  });

  test('retry and skip at once: one of them decides, and the key goes on once', async () => {
    const queue = declare();
    const { ran, worker } = await start(queue, options);
    for (let round = 0; round < 5; round += 1) {
      const bad = `bad ${round}`;
      broken.set(bad, new NoRetry('no'));
      const [id = ''] = await add(queue, 'a', bad, `good ${round}`);
      await inError(queue, id);
      broken.clear();
      const [retried, skipped] = await Promise.allSettled([queue.retry(id), queue.skip(id)]);
      expect(retried.status).toBe('fulfilled');
      if (skipped.status === 'rejected') expect(skipped.reason).toBeInstanceOf(Conflict);
      await eventually(() => expect(ran).toEqual(expect.arrayContaining([bad, `good ${round}`])));
      await healthy();
    }
    await worker.stop();
    expect(await queue.stats()).toMatchObject({ blockedKeys: 0, new: 0 });
  });

  test('what many producers enqueue while the key stands still runs after the skip, in order', async () => {
    const queue = declare();
    const { ran, worker } = await start(queue, options);
    broken.set('bad', new NoRetry('no'));
    const [bad = ''] = await add(queue, 'a', 'bad');
    await inError(queue, bad);
    await Promise.all(Array.from({ length: 20 }, (_, at) => queue.enqueue('job', at, { key: 'a' })));
    await eventually(async () => expect(await queue.stats()).toMatchObject({ parked: 20, ready: 0 }));
    expect(ran).toEqual([]);
    await queue.skip(bad);
    await eventually(() => expect(ran).toHaveLength(20));
    const { jobs } = await queue.search('key:a', { limit: 100 });
    expect(['bad', ...ran]).toEqual(jobs.toReversed().map(({ payload }) => payload));
    await worker.stop();
    await healthy();
  });

  test('a cancelled job does not stop its key', async () => {
    const queue = declare();
    const [first = ''] = await add(queue, 'a', 1, 2);
    await queue.cancel(first);
    const { ran } = await start(queue, options);
    await eventually(() => expect(ran).toEqual([2]));
    await expect(queue.skip(first)).rejects.toThrow(`job ${first} is cancelled and blocks no key`);
  });

  test('a job that is lost with its worker in its last attempt stops its key', async () => {
    const scene = await freshDatabase();
    onTestFinished(() => scene.drop());
    const own = postgres(scene.url, { max: 10 });
    onTestFinished(() => own.stop());
    await own.migrate();
    const queue = createQueue(own, 'faults', { ...FAULTS, keyOnError: 'block' });
    await queue.register();
    const client = new pg.Client(scene.url);
    await client.connect();
    onTestFinished(() => client.end());
    await client.query('create table test_run (id bigint, pid int, attempt int, token bigint)');
    await client.query('create table test_effect (id bigint)');
    const [lost = ''] = await queue.enqueueMany(
      [{ ms: 600_000 }, {}].map((payload) => ({ kind: 'fragile' as const, payload, key: 'a' })),
    );
    const env = { URL: scene.url, HOLD: hold, BLOCKS: '1', FRAGILE: '1' };
    const child = spawnChild('queue/worker.child.ts', [], env);
    const noted = 'select 1 from pawl.queue_worker where holding <> $1 union select 1 from pawl.queue_running';
    await eventually(async () => expect((await client.query(noted, [[]])).rowCount).toBe(1));
    await child.kill('SIGKILL');
    // While its lease lasts, the job of a transaction is claimed anew, uncharged.
    await eventually(async () => {
      await client.query(`select from pawl.queue_rescue(pawl.queue_id('faults'))`);
      expect((await client.query('select from pawl.queue_worker')).rowCount).toBe(0);
    });
    const heir = spawnChild('queue/worker.child.ts', [], env);
    await eventually(async () => expect((await queue.get(lost)).status).toBe('error'));
    await eventually(async () => expect(await queue.stats()).toMatchObject({ blockedKeys: 1, parked: 1, ready: 0 }));
    expect(await breaches(client)).toEqual([]);
    await queue.skip(lost);
    await eventually(async () => expect(await queue.stats()).toMatchObject({ blockedKeys: 0, new: 0, inProgress: 0 }));
    expect((await client.query('select id from test_run where attempt = 1 and id <> $1', [lost])).rowCount).toBe(1);
    await heir.kill('SIGKILL');
  });
});

/** A queue whose key "a" is blocked by its first job, and without a worker. */
async function blocked(): Promise<{ queue: Blocking; first: string }> {
  const queue = declare();
  broken.set(1, new NoRetry('no'));
  const [first = ''] = await add(queue, 'a', 1, 2);
  const { worker } = await start(queue, { concurrency: 1 });
  await inError(queue, first);
  await worker.stop();
  return { queue, first };
}

test('a pulled job that fails for good stops its key', async () => {
  const queue = declare();
  const [first = ''] = await add(queue, 'a', 1, 2);
  const [unit] = await queue.claim({ limit: 1 });
  expect(await unit?.fail(new NoRetry('no'))).toBe('error');
  expect(await queue.claim({ limit: 5 })).toEqual([]);
  await queue.skip({ key: 'a' }).catch((error: unknown) => expect(error).toBeInstanceOf(Conflict));
  await queue.skip(first);
  expect(await queue.claim({ limit: 5 })).toHaveLength(1);
  await healthy();
});

test('a job that blocks its key is not erased or moved before it is skipped', async () => {
  const { queue, first } = await blocked();
  await expect(queue.erase(first)).rejects.toThrow('cannot be erased while it blocks its key; skip it first');
  const other = declare();
  await other.register();
  await expect(queue.move('status:error', other)).resolves.toEqual({ done: 0, left: 1 });
  await expect(queue.purge('status:error')).resolves.toEqual({ done: 0, left: 1 });
  expect(await queue.stats()).toMatchObject({ blockedKeys: 1, error: 1, new: 1 });
  await healthy();
  await queue.skip(first);
  await queue.erase(first);
  await healthy();
});

test('a removed queue takes its blocked keys along', async () => {
  const { queue } = await blocked();
  await createQueueAdmin(engine).remove(queue.name, { force: true });
  const left = `select b.key from pawl.queue_blocked b join pawl.queue_definition d on d.id = b.queue where d.name = $1
    union all select k.key from pawl.queue_key k join pawl.queue_definition d on d.id = k.queue where d.name = $1`;
  expect(await engine.query(statement('test.left', left, { prepare: false }), [queue.name])).toEqual([]);
});

test('its history never ends while it blocks its key', async () => {
  const { queue, first } = await blocked();
  const sql = (text: string): Promise<unknown> =>
    engine.query(statement('test.prune', text, { prepare: false }), [queue.name]);
  await sql(`update pawl.queue_definition set history = '0 s' where name = $1`);
  const prune = 'select pawl.queue_prune(pawl.queue_id($1), 100)';
  await sql(prune);
  expect((await queue.get(first)).status).toBe('error');
  await queue.skip(first);
  await sql(prune);
  await expect(queue.get(first)).rejects.toThrow('there is no job');
});

test('a skip in a transaction that is rolled back leaves the key where it stands', async () => {
  const { queue, first } = await blocked();
  await engine
    .transaction(async (tx) => {
      expect(await queue.skip(first, { tx })).toBe('error');
      throw new Error('undo');
    })
    .catch(() => {});
  expect((await queue.stats()).blockedKeys).toBe(1);
  await engine.transaction((tx) => queue.skip(first, { tx }));
  expect((await queue.stats()).blockedKeys).toBe(0);
  await expect(queue.skip(first)).rejects.toBeInstanceOf(Conflict);
  const { ran } = await start(queue, {});
  await eventually(() => expect(ran).toEqual([2]));
});

test('a queue without an order of its keys, or with dead letters, refuses it', () => {
  const bad = (options: object): (() => unknown) => {
    return () => createQueue(engine, 'bad', { kinds, keyOnError: 'block', ...options });
  };
  expect(bad({ kinds: { job: {} }, concurrency: { perKey: Infinity } })).toThrow(InvalidInput);
  expect(bad({ kinds: { job: { onError: 'late' }, late: {} } })).toThrow(/would wait behind it/);
  expect(bad({ keyOnError: 'stop' })).toThrow(InvalidInput);
});

test.each(['retry', 'finish', 'skip'] as const)(
  'a key that was blocked before keys lost their order is free after a %s, also when they have one again',
  async (how) => {
    const queue = declare();
    const { id } = await queue.enqueue('job', 1, { key: 'k' });
    await (await queue.claim())[0]?.fail(new Error('no'), { final: true });
    const loose = createQueue(engine, queue.name, { kinds: { job: {} }, concurrency: { perKey: Infinity } });
    await loose.register();
    await loose[how](id);
    for (const unit of await loose.claim({ limit: 2 })) await unit.complete();
    await createQueue(engine, queue.name, { kinds, retry: ATTEMPTS, keyOnError: 'block' }).register();
    await healthy();
    await queue.enqueue('job', 2, { key: 'k' });
    expect((await queue.claim()).map(({ payload }) => payload)).toEqual([2]);
  },
);
