import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type QueueConcurrency, type Unit } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';
import { kinds, type Mail, start } from './mail.ts';

let database: FreshDatabase;
let engine: PostgresEngine;
let session: SqlSession;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 30 });
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
  await database.drop();
});

function newQueue(concurrency: QueueConcurrency = { perGroup: 2 }, name?: string): Mail {
  made += 1;
  return createQueue(engine, name ?? `grouped ${made}`, {
    kinds,
    concurrency,
    retry: { backoff: { kind: 'fixed', min: '1h' } },
  });
}

/** Units that run until they are let go, with how many of a group there were at once. */
class Hall {
  readonly inside: { readonly payload: string; readonly leave: () => void }[] = [];
  readonly ran: string[] = [];
  readonly most = new Map<string, number>();

  readonly enter = async ({ payload }: Unit): Promise<void> => {
    const text = String(payload);
    const [group = ''] = text.split(' ');
    await new Promise<void>((resolve) => {
      this.inside.push({ payload: text, leave: resolve });
      const now = this.inside.filter((other) => other.payload.startsWith(`${group} `)).length;
      this.most.set(group, Math.max(this.most.get(group) ?? 0, now));
    });
    this.ran.push(text);
  };

  /** Lets the first go whose payload begins so. */
  letGo(start: string): void {
    const at = this.inside.findIndex(({ payload }) => payload.startsWith(start));
    this.inside.splice(at, at < 0 ? 0 : 1).forEach(({ leave }) => leave());
  }

  get names(): string[] {
    return this.inside.map(({ payload }) => payload).sort();
  }
}

async function expectWhole(): Promise<void> {
  expect(await breaches(session.client)).toEqual([]);
}

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  test('a group goes on after another session has deleted a job that has its place', async () => {
    const queue = newQueue({ perGroup: 1 });
    const [gone] = await queue.enqueueMany(
      [0, 1].map((nth) => ({ kind: 'send', payload: `acme ${nth}`, group: 'acme' }) as const),
    );
    await session.client.query('delete from pawl.queue_job where id = $1', [gone]);
    const ran: unknown[] = [];
    await start(queue, ({ payload }) => void ran.push(payload), { hold });
    await eventually(async () => {
      await session.one('select pawl.queue_prune(d.id, 100) from pawl.queue_definition d where d.name = $1', [
        queue.name,
      ]);
      expect(ran).toEqual(['acme 1']);
    });
    await queue.drain();
    await expectWhole();
  });

  test('J19: of a group n jobs run at a time over two workers, the others take no slot, and each end lets the next one begin', async () => {
    const queue = newQueue();
    const hall = new Hall();
    await start(queue, hall.enter, { hold, concurrency: 3, prefetch: 0 });
    await start(newQueue({ perGroup: 2 }, queue.name), hall.enter, { hold, concurrency: 3, prefetch: 0 });
    const jobs = Array.from(
      { length: 6 },
      (_, nth) => ({ kind: 'send', payload: `acme ${nth}`, group: 'acme' }) as const,
    );
    await queue.enqueueMany(jobs);
    for (const nth of [1, 2]) await queue.enqueue('send', `globex ${nth}`, { group: 'globex' });
    await queue.enqueue('send', 'plain 1');
    await eventually(() => expect(hall.names).toEqual(['acme 0', 'acme 1', 'globex 1', 'globex 2', 'plain 1']));
    expect(await queue.stats()).toMatchObject({ new: 4 + (hold === 'transaction' ? 5 : 0), parked: 4 });
    for (const nth of [0, 1, 2, 3, 4, 5]) {
      await eventually(() => expect(hall.names).toContain(`acme ${nth}`));
      hall.letGo(`acme ${nth}`);
      await eventually(() => expect(hall.ran).toContain(`acme ${nth}`));
    }
    for (const name of ['globex', 'globex', 'plain']) hall.letGo(name);
    await queue.drain();
    expect(hall.most).toEqual(
      new Map([
        ['acme', 2],
        ['globex', 2],
        ['plain', 1],
      ]),
    );
    await expectWhole();
  });

  test('a handler knows the group of its job, alone, among many of one enqueue, behind a key, and of a schedule', async () => {
    const queue = newQueue({ perGroup: 10 });
    await queue.enqueue('send', 'alone', { group: 'a' });
    await queue.enqueueMany(
      Array.from({ length: 6 }, (_, nth) => ({ kind: 'send', payload: `many ${nth}`, group: `g${nth % 3}` }) as const),
    );
    await queue.enqueueMany(
      [1, 2].map((nth) => ({ kind: 'send', payload: `keyed ${nth}`, key: 'k', group: 'b' }) as const),
    );
    await queue.enqueue('send', 'tagged', { group: 'c', tags: ['t'] });
    await queue.enqueue('send', 'none');
    await queue.schedule('nightly', { cron: '0 3 * * *', kind: 'send', payload: 'scheduled', group: 'd' });
    expect(await queue.schedules()).toMatchObject([{ group: 'd' }]);
    await createQueueAdmin(engine).runSchedule(queue.name, 'nightly');
    const groups: Record<string, string | null> = {};
    await start(queue, (unit) => void (groups[String(unit.payload)] = unit.group), { hold });
    await queue.drain();
    expect(groups).toEqual({
      alone: 'a',
      ...Object.fromEntries(Array.from({ length: 6 }, (_, nth) => [`many ${nth}`, `g${nth % 3}`])),
      'keyed 1': 'b',
      'keyed 2': 'b',
      tagged: 'c',
      none: null,
      scheduled: 'd',
    });
  });

  test('a job that is tried again later gives its place back, and comes before what came later when it is due', async () => {
    const queue = newQueue({ perGroup: 1 });
    const ran: string[] = [];
    await start(
      queue,
      ({ payload, attempt }) => {
        ran.push(`${String(payload)} ${attempt}`);
        if (payload === 'first' && attempt === 1) throw new Error('no');
      },
      { hold },
    );
    const { id } = await queue.enqueue('send', 'first', { group: 'acme' });
    await queue.enqueue('send', 'second', { group: 'acme' });
    await eventually(() => expect(ran).toEqual(['first 1', 'second 1']));
    expect(await queue.stats()).toMatchObject({ delayed: 1, parked: 0 });
    await queue.retry(id);
    await eventually(() => expect(ran).toEqual(['first 1', 'second 1', 'first 2']));
    await queue.drain();
    await expectWhole();
  });
});

test('in a group the most urgent job comes first, then the oldest', async () => {
  const queue = newQueue({ perGroup: 1 });
  const at = (payload: number, priority: number) => ({ kind: 'send', payload, priority, group: 'acme' }) as const;
  await queue.enqueueMany([at(1, 0), at(2, 5), at(3, 0), at(4, -5)]);
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.drain();
  expect(ran).toEqual([4, 1, 3, 2]);
});

test.each([1, 3])(
  'every way of enqueueing takes a group, and the jobs wait for its one place (%i shards)',
  async (shards) => {
    made += 1;
    const queue = createQueue(engine, `ways ${made}`, { kinds, shards, concurrency: { perGroup: 1 } });
    const group = 'acme';
    const { id } = await queue.enqueue('send', 'acme 1', { group });
    await queue.enqueueMany([
      { kind: 'send', payload: 'acme 2', group },
      { kind: 'once', payload: 'acme 3', group },
    ]);
    await queue.enqueue('once', 'acme 4', { group, tags: ['late'] });
    await engine.transaction(async (tx) => void (await queue.enqueue('send', 'acme 5', { group, tx })));
    await queue.enqueue('send', 'acme 6', { group, after: [id] });
    await queue.flow([
      { name: 'one', kind: 'send', payload: 'acme 7', group },
      { name: 'two', kind: 'send', payload: 'acme 8', group, after: ['one'] },
    ]);
    const batch = await queue.batch({});
    await batch.enqueueMany([{ kind: 'send', payload: 'acme 9', group }]);
    await batch.seal();
    await queue.enqueue('send', 'acme 10', { group, delay: 1 });
    const hall = new Hall();
    await start(queue, hall.enter);
    for (let nth = 0; nth < 10; nth += 1) {
      await eventually(() => expect(hall.inside).toHaveLength(1));
      hall.letGo('acme');
    }
    await queue.drain({ delayed: true });
    expect(hall.ran).toHaveLength(10);
    expect(hall.most).toEqual(new Map([['acme', 1]]));
    expect(await queue.get(id)).toMatchObject({ group, status: 'complete' });
    await expectWhole();
  },
);

test('with a key, the jobs of a group run in the order of the key, and hold their places in it', async () => {
  const queue = newQueue({ perGroup: 2 });
  const job = (nth: number) =>
    ({ kind: 'send', payload: `acme ${nth}`, group: 'acme', key: nth < 4 ? 'k' : undefined }) as const;
  await queue.enqueueMany([1, 2, 3, 4, 5].map(job));
  const hall = new Hall();
  await start(queue, hall.enter);
  // One runs, and the next one of its key has the other place.
  await eventually(() => expect(hall.names).toEqual(['acme 1']));
  expect(await queue.stats()).toMatchObject({ ready: 0, parked: 3, 'in-progress': 2 });
  for (const nth of [1, 2, 3, 4, 5]) {
    await eventually(() => expect(hall.names).toContain(`acme ${nth}`));
    hall.letGo(`acme ${nth}`);
  }
  await queue.drain();
  expect(hall.ran.slice(0, 3)).toEqual(['acme 1', 'acme 2', 'acme 3']);
  await expectWhole();
});

test('a larger limit lets more begin at once; with a smaller one nothing begins until enough have ended', async () => {
  const queue = newQueue({ perGroup: 1 });
  const hall = new Hall();
  await start(queue, hall.enter);
  await queue.enqueueMany(
    [1, 2, 3, 4, 5].map((nth) => ({ kind: 'send', payload: `acme ${nth}`, group: 'acme' }) as const),
  );
  await eventually(() => expect(hall.names).toEqual(['acme 1']));
  await newQueue({ perGroup: 3 }, queue.name).register();
  await eventually(() => expect(hall.names).toEqual(['acme 1', 'acme 2', 'acme 3']));
  await newQueue({ perGroup: 1 }, queue.name).register();
  for (const left of [2, 1]) {
    hall.letGo('acme');
    await eventually(async () => expect((await queue.stats())['in-progress']).toBe(left));
    expect(hall.inside).toHaveLength(left);
  }
  hall.letGo('acme');
  await eventually(() => expect(hall.names).toEqual(['acme 4']));
  // A program that declares no limit lifts it.
  await createQueue(engine, queue.name, { kinds }).register();
  await eventually(() => expect(hall.names).toEqual(['acme 4', 'acme 5']));
  for (const _ of [1, 2]) hall.letGo('acme');
  await queue.drain();
  await expectWhole();
});

test('a claim that is under way while the limit changes leaves no job behind', async () => {
  const queue = newQueue({ perGroup: 1 });
  const { id } = await queue.enqueue('send', 'acme 1', { group: 'acme' });
  const row = await session.one<number>('select queue from pawl.queue_job where id = $1', [id]);
  const worker = await session.addWorker(row);
  expect((await session.claim(row, worker)).jobs).toHaveLength(1);
  for (const nth of [2, 3]) await queue.enqueue('send', `acme ${nth}`, { group: 'acme' });
  const operator = await SqlSession.open(database.url);
  onTestFinished(() => operator.end());
  // The claim has begun, and waits for the notes of these two.
  await operator.begin();
  await operator.one('select count(*) from (select from pawl.queue_group_note where queue = $1 for update) n', [row]);
  await operator.one('select pawl.queue_change_limits($1, 3, null, null)::text', [row]);
  const claiming = session.claim(row, worker);
  await eventually(async () =>
    expect(await operator.one('select wait_event_type from pg_stat_activity where pid = $1', [session.pid])).toBe(
      'Lock',
    ),
  );
  await operator.commit();
  await claiming;
  await session.claim(row, worker);
  expect(await queue.stats()).toMatchObject({ inProgress: 3, parked: 0 });
  await expectWhole();
});

test('explain says which group is full, and who has its places', async () => {
  const queue = newQueue({ perGroup: 1 });
  const hall = new Hall();
  await start(queue, hall.enter);
  const first = await queue.enqueue('send', 'acme 1', { group: 'acme' });
  await eventually(() => expect(hall.inside).toHaveLength(1));
  await queue.enqueue('send', 'acme 2', { group: 'acme' });
  const third = await queue.enqueue('send', 'acme 3', { group: 'acme' });
  expect(await queue.get(third.id)).toMatchObject({ status: 'new', group: 'acme' });
  await eventually(async () =>
    expect(await queue.explain(third.id)).toEqual({
      status: 'new',
      reasons: [
        {
          code: 'group_full',
          text: `1 of 1 places of group "acme" are taken, by job ${first.id}; 1 job is ahead of it`,
          job: first.id,
          ahead: 1,
        },
      ],
    }),
  );
  expect((await queue.search(`status:new`)).jobs.map(({ id }) => id)).toContain(third.id);
  for (let nth = 0; nth < 3; nth += 1) {
    await eventually(() => expect(hall.inside).toHaveLength(1));
    hall.letGo('acme');
  }
  await queue.drain();
});

test('a job that waits for a place is changed, cancelled, retried, moved and erased like any other', async () => {
  const queue = newQueue({ perGroup: 1 });
  const other = newQueue({ perGroup: 1 });
  await other.register();
  const ids = (await queue.enqueueMany(
    [1, 2, 3, 4, 5].map((payload) => ({ kind: 'send', payload, group: 'acme' }) as const),
  )) as string[];
  const [one = '', two = '', three = '', four = '', five = ''] = ids;
  await queue.update(five, { priority: -1, payload: 'urgent' });
  await queue.update(two, { delay: '1h' });
  await queue.cancel(three);
  await queue.erase(four);
  await session.one('select pawl.move($1::jsonb)', [JSON.stringify({ id: one, to: other.name })]);
  expect(await other.get(one)).toMatchObject({ status: 'new', group: 'acme' });
  expect((await other.stats()).parked).toBe(1);
  await expectWhole();
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.drain();
  await queue.retry(three);
  // Of two that wait for the place, the older one would have it first.
  await eventually(() => expect(ran).toEqual(['urgent', 3]));
  await queue.retry(two);
  await eventually(() => expect(ran).toEqual(['urgent', 3, 2]));
  await expectWhole();
});
