import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Conflict, InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type EnqueuedIds, type KindOptions, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 60, logger: recordLog() });
  session = await SqlSession.open(url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
});

function newQueue<const J extends KindOptions>(job: J, shards = 1): Queue<{ job: J; other: object }> {
  nth += 1;
  return createQueue(engine, `unique ${nth}`, {
    kinds: { job, other: {} },
    shards,
    retry: { attempts: 2, backoff: { kind: 'fixed', min: 1 } },
  });
}

const PRODUCERS = 50;
const rule = { by: 'key', while: 'outstanding' } as const;

function rows<T>(text: string, values: unknown[]): Promise<T[]> {
  return engine.query<T>(statement('test.rows', text, { prepare: false }), values);
}

test('while one is outstanding, another one is answered with its id and status, and after that a new one comes', async () => {
  const queue = newQueue({ unique: rule });
  const work = gate();
  const first = await queue.enqueue('job', 1, { key: 'k' });
  expect(await queue.enqueue('job', 2, { key: 'k' })).toEqual({ ...first, status: 'new', duplicate: true });
  expect((await queue.enqueue('job', 2, { key: 'other' })).duplicate).toBe(false);
  expect((await queue.enqueue('other', 2, { key: 'k' })).duplicate).toBe(false);
  const worker = queue.work({ job: () => work.opened, other: () => {} });
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('in-progress'));
  expect(await queue.enqueue('job', 3, { key: 'k' })).toEqual({ id: first.id, status: 'in-progress', duplicate: true });
  work.open();
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('complete'));
  const next = await queue.enqueue('job', 4, { key: 'k' });
  expect(next).toMatchObject({ status: 'new', duplicate: false });
  await queue.drain();
  await worker.stop();
  expect((await queue.get(next.id)).payload).toBe(4);
});

test("while one is waiting, and one more behind one that runs: { while: 'waiting' }", async () => {
  const queue = newQueue({ unique: { while: 'waiting' } });
  const work = gate();
  const first = await queue.enqueue('job', 1, { key: 'k' });
  const worker = queue.work({ job: () => work.opened, other: () => {} });
  await eventually(async () => expect((await queue.get(first.id)).status).toBe('in-progress'));
  const second = await queue.enqueue('job', 2, { key: 'k' });
  expect(second.duplicate).toBe(false);
  expect(await queue.enqueue('job', 3, { key: 'k' })).toEqual({ id: second.id, status: 'new', duplicate: true });
  work.open();
  await queue.drain();
  await worker.stop();
});

test('by payload it is the same whatever the order of its properties; by paths, only they count', async () => {
  const whole = newQueue({ unique: { by: 'payload' } }, 4);
  const first = await whole.enqueue('job', { user: { id: 1, name: 'Ada' }, at: 1 });
  expect(await whole.enqueue('job', { at: 1, user: { name: 'Ada', id: 1 } }, { key: 'k' })).toMatchObject({
    id: first.id,
  });
  expect((await whole.enqueue('job', { at: 2, user: { name: 'Ada', id: 1 } })).duplicate).toBe(false);
  const paths = newQueue({ unique: { by: ['user.id', 'action'] } }, 4);
  const ada = await paths.enqueue('job', { user: { id: 1 }, action: 'mail', at: 1 });
  expect(await paths.enqueue('job', { user: { id: 1 }, action: 'mail', at: 2 })).toMatchObject({
    id: ada.id,
    duplicate: true,
  });
  expect((await paths.enqueue('job', { user: { id: '1' }, action: 'mail' })).duplicate).toBe(false);
  expect((await paths.enqueue('job', { user: { id: 1 } })).duplicate).toBe(false);
  expect((await paths.enqueue('job', { user: { id: 1 }, action: null })).duplicate).toBe(true);
});

describe('two transactions', () => {
  test('the second waits for the end of the first, and is a duplicate when that commits', async () => {
    const queue = newQueue({ unique: rule });
    let second: Promise<unknown> = Promise.resolve();
    const first = await engine.transaction(async (tx) => {
      const answer = await queue.enqueue('job', 1, { key: 'k', tx });
      expect(await queue.enqueue('job', 1, { key: 'k', tx })).toMatchObject({ id: answer.id, duplicate: true });
      second = queue.enqueue('job', 2, { key: 'k' });
      // Nothing else waits.
      expect((await queue.enqueue('job', 3, { key: 'another' })).duplicate).toBe(false);
      return answer;
    });
    expect(await second).toEqual({ id: first.id, status: 'new', duplicate: true });
  });

  test('it is the one when the first rolls back', async () => {
    const queue = newQueue({ unique: rule });
    let second: Promise<unknown> = Promise.resolve();
    await engine
      .transaction(async (tx) => {
        await queue.enqueue('job', 1, { key: 'k', tx });
        second = queue.enqueue('job', 2, { key: 'k' });
        throw new Error('no');
      })
      .catch(() => undefined);
    expect(await second).toMatchObject({ status: 'new', duplicate: false });
  });

  test('a duplicate in a transaction that stays open keeps no other producer waiting', async () => {
    const queue = newQueue({ unique: rule });
    const old = await queue.enqueue('job', 1, { key: 'k' });
    await queue.cancel(old.id);
    const taken = await queue.enqueue('job', 2, { key: 'k' });
    await engine.transaction(async (tx) => {
      expect(await queue.enqueue('job', 3, { key: 'k', tx })).toMatchObject({ id: taken.id, duplicate: true });
      expect(await queue.enqueue('job', 4, { key: 'k' })).toMatchObject({ id: taken.id, duplicate: true });
      await queue.cancel(taken.id);
      expect(await queue.enqueue('job', 5, { key: 'k' })).toMatchObject({ duplicate: false });
    });
  });
});

// Invariants J6.
test.each([{ by: 'key' }, { by: 'payload' }, { by: ['id'] }] as const)(
  'of 50 producers at once, some of which roll back, never two are outstanding, and none is lost: $by',
  async ({ by }) => {
    const queue = newQueue({ unique: { by } });
    await queue.register();
    const ran = new Set<string>();
    // Some fail the first time.
    const worker = queue.work(
      {
        job: ({ job, attempt }) => {
          if (attempt === 1 && Number(job.id) % 3 === 0) throw new Error('again');
          ran.add(job.id);
        },
        other: () => {},
      },
      { concurrency: 10, poll: '20ms' },
    );
    const won = new Set<string>();
    const told: { id: string; duplicate: boolean }[] = [];
    const produce = async (producer: number): Promise<void> => {
      for (let round = 0; round < 6 || won.size < 3; round += 1) {
        const payload = by === 'payload' ? { id: 1 } : { id: 1, producer, round };
        const fails = (producer + round) % 4 === 0;
        await engine
          .transaction(async (tx) => {
            const answer = await queue.enqueue('job', payload, { key: 'k', tx });
            if (fails) throw new Error('rolled back');
            return answer;
          })
          .then((answer) => {
            told.push(answer);
            if (!answer.duplicate) won.add(answer.id);
          })
          .catch((error: unknown) => expect(error).toMatchObject({ message: 'rolled back' }));
      }
    };
    // Each sample is of one moment of the database.
    let most = 0;
    const sampling = new AbortController();
    const sample = async (): Promise<void> => {
      while (!sampling.signal.aborted) {
        const [now] = await rows<{ n: number }>(
          `select count(*)::int as n from pawl.job where queue = $1 and status in ('new', 'in-progress')`,
          [queue.name],
        );
        most = Math.max(most, now?.n ?? 0);
      }
    };
    const samples = sample();
    await Promise.all(Array.from({ length: PRODUCERS }, (_, producer) => produce(producer)));
    sampling.abort();
    await samples;
    await queue.drain({ delayed: true });
    await worker.stop();
    expect(most).toBe(1);
    expect(ran).toEqual(won);
    expect(told.filter(({ id }) => !won.has(id))).toEqual([]);
    expect(await breaches(session.client)).toEqual([]);
  },
);

test('a retry by hand of a job that has ended is refused while another one has its place', async () => {
  const queue = newQueue({ unique: rule });
  const first = await queue.enqueue('job', 1, { key: 'k' });
  await queue.cancel(first.id);
  const second = await queue.enqueue('job', 2, { key: 'k' });
  await expect(queue.retry(first.id)).rejects.toThrow(
    new RegExp(`kind "job" is unique, and job ${second.id} already exists; that job is new`),
  );
  await expect(queue.retry(first.id)).rejects.toBeInstanceOf(Conflict);
  await queue.cancel(second.id);
  expect(await queue.retry(first.id)).toBe('new');
  expect(await queue.enqueue('job', 3, { key: 'k' })).toMatchObject({ id: first.id, duplicate: true });
});

test('a payload that is changed takes its digest with it', async () => {
  const queue = newQueue({ unique: { by: ['id'] } });
  const one = await queue.enqueue('job', { id: 1 });
  const two = await queue.enqueue('job', { id: 2 });
  await expect(queue.update(one.id, { payload: { id: 2 } })).rejects.toThrow(/cannot be given this payload/);
  await queue.update(one.id, { payload: { id: 3 } });
  expect((await queue.enqueue('job', { id: 1 })).duplicate).toBe(false);
  expect(await queue.enqueue('job', { id: 3 })).toMatchObject({ id: one.id, duplicate: true });
  expect(await queue.enqueue('job', { id: 2 })).toMatchObject({ id: two.id, duplicate: true });
});

test('enqueueMany takes them, in the order of the jobs, and says which existed already', async () => {
  const queue = newQueue({ unique: { by: 'payload' } });
  const ids = await queue.enqueueMany([
    { kind: 'job', payload: 1, key: 'k' },
    { kind: 'other', payload: 1, key: 'k' },
    { kind: 'job', payload: 1, key: 'k' },
    { kind: 'job', payload: 2, key: 'k' },
  ]);
  expect(ids.duplicates).toEqual([2]);
  expect(ids[2]).toBe(ids[0]);
  const fresh = [ids[0], ids[1], ids[3]].map(Number);
  expect(fresh).toEqual(fresh.toSorted((one, other) => one - other));
  expect((await queue.enqueueMany([{ kind: 'other', payload: 1 }])).duplicates).toEqual([]);
});

test('enqueueMany tells those that are there from those that are over, and puts a new one in their places', async () => {
  const queue = newQueue({ unique: rule }, 4);
  const keys = Array.from({ length: 40 }, (_, n) => `k${n}`);
  const many = (names: readonly string[], payload: number): Promise<EnqueuedIds> =>
    queue.enqueueMany(names.map((key) => ({ kind: 'job', payload, key }) as const));
  const first = await many(keys.slice(0, 30), 1);
  expect(first.duplicates).toEqual([]);
  await Promise.all(first.slice(0, 10).map((id) => queue.cancel(id)));
  // Ten are over, twenty are there, ten are new; and each is named twice.
  const second = await many([...keys, ...keys.toReversed()], 2);
  expect(second.duplicates).toEqual(
    Array.from({ length: 80 }, (_, n) => n).filter((n) => n >= 10 && (n < 30 || n >= 40)),
  );
  expect(second.slice(10, 30)).toEqual(first.slice(10));
  expect(second.slice(40)).toEqual(second.slice(0, 40).toReversed());
  expect((await many(keys, 3)).duplicates).toHaveLength(40);
  expect((await queue.stats()).new).toBe(40);
  // All of them are over: all are replaced, and what each says is still its own.
  await Promise.all(second.slice(0, 40).map((id) => queue.cancel(id)));
  const third = await many(keys, 4);
  expect(third.duplicates).toEqual([]);
  const jobs = await Promise.all(third.map((id) => queue.get(id)));
  expect(jobs.map(({ key, payload }) => [key, payload])).toEqual(keys.map((key) => [key, 4]));
});

test('enqueueMany in a transaction keeps those waiting that want the same, and no others', async () => {
  const queue = newQueue({ unique: rule });
  const over = await queue.enqueue('job', 1, { key: 'over' });
  await queue.cancel(over.id);
  const bulk = (keys: readonly string[], tx?: Transaction): Promise<EnqueuedIds> =>
    queue.enqueueMany(
      keys.map((key) => ({ kind: 'job', payload: 1, key }) as const),
      { tx },
    );
  let second: Promise<EnqueuedIds> | undefined;
  const first = await engine.transaction(async (tx) => {
    const ids = await bulk(['over', 'a', 'b'], tx);
    second = bulk(['c', 'b', 'over']);
    await eventually(async () => expect(await rows(WAITING, [])).toHaveLength(1));
    expect((await bulk(['d', 'e'])).duplicates).toEqual([]);
    return ids;
  });
  expect(first.duplicates).toEqual([]);
  const ids = await second;
  expect(ids?.duplicates).toEqual([1, 2]);
  expect(ids?.slice(1)).toEqual([first[2], first[0]]);
});

/** The sessions of this database that wait for the end of a transaction: the server has others. */
const WAITING = `select from pg_locks l join pg_stat_activity a using (pid)
  where a.datname = current_database() and not l.granted and l.locktype = 'transactionid'`;

test('of many producers that replace the same jobs at once one wins each, and none waits in a circle', async () => {
  const queue = newQueue({ unique: rule });
  const keys = Array.from({ length: 20 }, (_, n) => `k${n}`);
  for (let round = 0; round < 3; round += 1) {
    const results = await Promise.all(
      Array.from({ length: 12 }, (_, producer) => {
        // Some of what each wants is new in each round, the rest is over.
        const wanted = [...keys, `${round}/${producer % 3}`];
        return queue.enqueueMany(
          (producer % 2 === 0 ? wanted : wanted.toReversed()).map(
            (key) => ({ kind: 'job', payload: producer, key }) as const,
          ),
        );
      }),
    );
    const won = new Set(results.flatMap((ids) => ids.filter((_, nth) => !ids.duplicates.includes(nth))));
    expect(won.size).toBe(23);
    expect(new Set(results.flat())).toEqual(won);
    await Promise.all(Array.from(won, (id) => queue.cancel(id)));
  }
  expect(await breaches(session.client)).toEqual([]);
});

test('many of them at once, in any order, wait for each other in no circle', async () => {
  const queue = newQueue({ unique: rule });
  const keys = Array.from({ length: 30 }, (_, n) => `k${n}`);
  const bulk = async (producer: number): Promise<readonly number[]> => {
    const order = producer % 2 === 0 ? keys : keys.toReversed();
    return (await queue.enqueueMany(order.map((key) => ({ kind: 'job', payload: producer, key }) as const))).duplicates;
  };
  const duplicates = await Promise.all(Array.from({ length: 20 }, (_, producer) => bulk(producer)));
  expect(duplicates.flat()).toHaveLength(19 * 30);
  expect((await queue.stats()).new).toBe(30);
});

test('in SQL, pawl.enqueue takes the rule of the kind, or one of its own', async () => {
  const queue = newQueue({ unique: { by: ['id'] } });
  await queue.register();
  const call = (rest: object): Promise<unknown> =>
    session.one('select pawl.enqueue($1::jsonb)', [
      JSON.stringify({ queue: queue.name, kind: 'job', payload: { id: 1 }, ...rest }),
    ]);
  const first = (await call({})) as { id: string };
  expect(await call({})).toEqual({ id: first.id, status: 'new', duplicate: true });
  expect(await call({ unique: false })).toMatchObject({ duplicate: false });
  expect(await call({ unique: { by: 'payload', while: 'waiting', per: '1 hour' } })).toMatchObject({
    duplicate: false,
  });
  for (const bad of [
    { by: 'kex' },
    { by: [] },
    { by: [1] },
    { while: 'never' },
    { per: 'soon' },
    { per: '-1 h' },
    { of: 'key' },
    7,
  ]) {
    await expect(call({ unique: bad })).rejects.toMatchObject({ code: 'PW001' });
  }
  await expect(call({ unique: true })).rejects.toThrow(/needs a key/);
  await expect(call({ key: 'k', unique: { while: 'ever', per: '10 years' } })).rejects.toThrow(
    /longer than the history/,
  );
});

test('rules that contradict each other are refused at once', () => {
  const declare = (job: KindOptions, options: object = {}): (() => unknown) => {
    return () => createQueue(engine, 'never', { kinds: { job }, ...options });
  };
  expect(declare({ unique: 'key', throttle: '1m' })).toThrow(/unique and throttle/);
  expect(declare({ unique: {}, debounce: '1m' })).toThrow(/debounce and unique/);
  expect(declare({ throttle: '1m', debounce: '1m' })).toThrow(/debounce and throttle/);
  expect(declare({ debounce: '1m', coalesce: 'none' })).toThrow(/debounce and coalesce: 'none'/);
  expect(declare({ debounce: { wait: '1m', max: '1s' } })).toThrow(/must not be shorter/);
  expect(declare({ debounce: '1m' }, { concurrency: { perKey: Infinity } })).toThrow(
    /debounce, which needs concurrency/,
  );
  expect(declare({ throttle: '2d' }, { history: '1d' })).toThrow(/history ends after/);
  for (const bad of [{ by: 'kex' }, { by: [] }, { by: [''] }, { while: 'never' }, { of: 1 }, 'payload']) {
    expect(declare({ unique: bad } as KindOptions)).toThrow(InvalidInput);
  }
});

// Last, since they leave jobs of which history knows nothing.

test('for ever outlives its history; for a time it ends; throttle is once per key in a time', async () => {
  const ever = newQueue({ unique: { by: 'payload', while: 'ever' } });
  const { id } = await ever.enqueue('job', 'x');
  const worker = ever.work({ job: () => {}, other: () => {} });
  await ever.drain();
  await worker.stop();
  await rows(`update pawl.queue_receipt set settled_at = settled_at - interval '1 year' where ids @> $1::bigint`, [id]);
  await session.one('select pawl.queue_prune(d.id, 1000) from pawl.queue_definition d where d.name = $1', [ever.name]);
  expect(await ever.enqueue('job', 'x')).toEqual({ id, status: 'complete', duplicate: true });
  const throttled = newQueue({ throttle: '1h' });
  const first = await throttled.enqueue('job', 1, { key: 'k' });
  await throttled.cancel(first.id);
  expect(await throttled.enqueue('job', 2, { key: 'k' })).toEqual({
    id: first.id,
    status: 'cancelled',
    duplicate: true,
  });
  await rows(`update pawl.queue_unique set at = at - interval '1 hour' where job = $1`, [first.id]);
  expect((await throttled.enqueue('job', 3, { key: 'k' })).duplicate).toBe(false);
});

test('what is left of a digest goes with its job when history is over', async () => {
  const queue = newQueue({ unique: rule });
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  await queue.cancel(id);
  await rows(`update pawl.queue_dead set at = at - interval '1 year' where id = $1`, [id]);
  await session.one('select pawl.queue_prune(d.id, 1000) from pawl.queue_definition d where d.name = $1', [queue.name]);
  expect(await rows('select 1 from pawl.queue_unique where job = $1', [id])).toEqual([]);
  expect((await queue.enqueue('job', 2, { key: 'k' })).duplicate).toBe(false);
});
