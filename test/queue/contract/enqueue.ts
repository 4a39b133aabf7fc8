import { expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { READ_MS } from '../../../src/queue/work/transaction/lookahead.ts';
import { eventually, until } from '../../support/eventually.ts';
import { LongestPause } from '../../support/time/longest-pause.ts';
import { AT_ONCE, DOUBLING, type Fixture, type Lacks, start } from './fixture.ts';

export function enqueuePromises(open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  // Invariant P1.
  test.skipIf(lacks.transactions)('a committed job runs, a rolled-back job never does', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) }, { concurrency: 1 });
    const undone = fixture.transaction(async (tx) => {
      await queue.enqueue('send', 'undone', { tx });
      throw new Error('changed my mind');
    });
    await expect(undone).rejects.toThrow('changed my mind');
    await fixture.transaction((tx) => queue.enqueue('send', 'done', { tx }));
    await queue.enqueue('send', 'last');
    await eventually(() => expect(ran).toEqual(['done', 'last']));
  });

  test('many jobs at once keep their order and get an id each', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { a: {}, b: {} } });
    // One at a time is a request for every few of them where a claim takes some milliseconds.
    const many = lacks.transactions === true ? 300 : 1500;
    const jobs = Array.from({ length: many }, (_, n) => ({
      kind: n % 3 === 0 ? ('a' as const) : ('b' as const),
      payload: n,
    }));
    const ids = await queue.enqueueMany(jobs);
    expect(new Set(ids).size).toBe(many);
    const ran: [string, unknown][] = [];
    const pause = new LongestPause();
    const note = (unit: { job: { id: string }; payload: unknown }): void => {
      pause.step();
      ran.push([unit.job.id, unit.payload]);
    };
    await start(fixture, queue, { a: note, b: note }, { concurrency: 1 });
    await eventually(() => expect(ran).toHaveLength(many));
    const wanted = ids.map((id, n) => [id, n]);
    expect(new Set(ran.map(String))).toEqual(new Set(wanted.map(String)));
    // A lane that has waited this long for a read claims alone, around the rows that the read has locked.
    if (fixture.hold === 'lease' || pause.ms < READ_MS) expect(ran).toEqual(wanted);
  });

  test('a payload that the schema refuses is not written', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { count: { payload: DOUBLING } } });
    const refused = await queue.enqueue('count', { n: 1.5 }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(InvalidInput);
    expect(refused).toMatchObject({ field: 'payload.n' });
    const some = [
      { kind: 'count' as const, payload: { n: 1 } },
      { kind: 'count' as const, payload: { n: 0.1 } },
    ];
    await expect(queue.enqueueMany(some)).rejects.toThrow(/jobs\[1\]\.payload\.n/);
    const ran: number[] = [];
    await start(fixture, queue, { count: (unit) => void ran.push(unit.payload.n) });
    await queue.enqueue('count', { n: 21 });
    await eventually(() => expect(ran).toEqual([42]));
  });

  test('a payload is checked again before the job runs; if it is refused then, the job ends in error', async () => {
    const fixture = await open();
    const before = fixture.queue({ kinds: { count: {} }, retry: AT_ONCE }, 'versions');
    const poison = await before.enqueue('count', { n: 'many' });
    const after = fixture.queue({ kinds: { count: { payload: DOUBLING } }, retry: AT_ONCE }, 'versions');
    const ran: number[] = [];
    await start(fixture, after, { count: (unit) => void ran.push(unit.payload.n) });
    await after.enqueue('count', { n: 1 });
    await eventually(async () => expect((await fixture.job(poison.id)).status).toBe('error'));
    await eventually(() => expect(ran).toEqual([2]));
    expect((await fixture.job(poison.id)).error).toMatch(/must be a whole number/);
  });

  test('a unique kind has one job per key, whichever enqueue is first', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { create: { unique: 'key' } } });
    const all = await Promise.all(Array.from({ length: 12 }, () => queue.enqueue('create', {}, { key: 'k' })));
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(all.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
    const ran: string[] = [];
    await start(fixture, queue, { create: (unit) => void ran.push(unit.job.id) });
    await eventually(() => expect(ran).toEqual([all[0]?.id]));
    await eventually(async () =>
      expect(await queue.enqueue('create', {}, { key: 'k' })).toEqual({
        id: all[0]?.id,
        status: 'complete',
        duplicate: true,
      }),
    );
  });

  test.skipIf(lacks.transactions)(
    'a second unique enqueue waits for the first one to commit, and takes its place if that rolls back',
    async () => {
      const fixture = await open();
      const queue = fixture.queue({ kinds: { create: { unique: 'key' } } });
      await queue.register();
      let second: Promise<{ duplicate: boolean }> | undefined;
      const undone = fixture.transaction(async (tx) => {
        await queue.enqueue('create', 1, { key: 'k', tx });
        second = queue.enqueue('create', 2, { key: 'k' });
        throw new Error('no');
      });
      await expect(undone).rejects.toThrow('no');
      expect(await second).toMatchObject({ duplicate: false });
    },
  );

  test('bad input is refused before anything is written', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {}, sync: { coalesce: 'all' }, once: { unique: 'key' } } });
    const wrong = (value: unknown): never => value as never;
    await expect(queue.enqueue(wrong('sned'), wrong({}))).rejects.toThrow(NotFound);
    await expect(queue.enqueue(wrong('sned'), wrong({}))).rejects.toThrow('did you mean "send"?');
    for (const bad of [
      () => queue.enqueue('sync', {}),
      () => queue.enqueue('send', {}, { key: '' }),
      () => queue.enqueue('send', {}, { key: 'é'.repeat(501) }),
      () => queue.enqueue('send', {}, { priority: 0.5 }),
      () => queue.enqueue('send', {}, { priority: 40_000 }),
      () => queue.enqueue('send', {}, { runAt: new Date('never') }),
      () => queue.enqueue('send', {}, wrong({ prority: 1 })),
      () => queue.enqueue('send', {}, { runAt: new Date(8.64e15) }),
      () => queue.enqueue('once', {}, { key: 'a', runAt: new Date('-000027-08-11') }),
      () => queue.enqueue('send', 1n),
      () => queue.enqueue('send', { toJSON: () => undefined }),
      () =>
        queue.enqueue('send', {
          toJSON: () => {
            throw Object.create(null);
          },
        }),
      () => queue.enqueue('once', '\0', { key: 'a' }),
      () => queue.enqueue('once', { '\udc00x': 1 }, { key: 'a' }),
      () => queue.enqueueMany([{ kind: 'send', payload: 1 }, wrong({ kind: 'send', payload: 2, keys: 'a' })]),
      () => queue.enqueueMany(wrong({ kind: 'send', payload: 1 })),
      () => queue.enqueueMany(wrong(undefined)),
      // A misspelt option `tx`: the job would be committed outside of the transaction.
      () => queue.enqueueMany([{ kind: 'send', payload: 1 }], wrong({ txx: {} })),
    ]) {
      await expect(bad()).rejects.toThrow(InvalidInput);
    }
    const ran: unknown[] = [];
    const note = (unit: { payload: unknown }): void => void ran.push(unit.payload);
    await start(fixture, queue, { send: note, sync: () => {}, once: note });
    await queue.enqueue('send', 'fine', { key: 'k'.repeat(1000) });
    await eventually(() => expect(ran).toEqual(['fine']));
    // A backslash before the escape makes it six letters, and a pair of surrogates is one character.
    await queue.enqueue('once', '\\u0000 \\ud800 😀', { key: 'a', runAt: new Date('0001-01-01T00:00:00Z') });
    await eventually(() => expect(ran).toEqual(['fine', '\\u0000 \\ud800 😀']));
  });

  test('a key with U+0000 is refused as bad input', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    await expect(queue.enqueue('send', {}, { key: 'a\0b' })).rejects.toThrow(InvalidInput);
    await expect(queue.enqueueMany([{ kind: 'send', payload: {}, key: 'a\0b' }])).rejects.toThrow(InvalidInput);
  });

  const ODD = {
    nul: 'a\\u0000b',
    pair: '😀',
    deep: [[[{ '': null }]]],
    __proto: { a: 1 },
    big: 2 ** 53,
    quote: `'"\\`,
  };

  test('a payload arrives unchanged', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) }, { concurrency: 1 });
    await queue.enqueue('send', ODD);
    await eventually(() => expect(ran).toEqual([ODD]));
    await queue.enqueueMany([
      { kind: 'send', payload: ODD },
      { kind: 'send', payload: undefined },
    ]);
    await eventually(() => expect(ran).toEqual([ODD, ODD, null]));
  });

  test.skipIf(lacks.transactions)('a payload arrives unchanged from a transaction of the caller', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) });
    await fixture.transaction((tx) => queue.enqueue('send', ODD, { tx }));
    await eventually(() => expect(ran).toEqual([ODD]));
  });

  test('lower priority numbers run first, and jobs of one priority run in order', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    for (const [payload, priority] of [
      ['c', 5],
      ['a', -3],
      ['d', 5],
      ['b', 0],
    ] as const) {
      await queue.enqueue('send', payload, { priority });
    }
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) }, { concurrency: 1 });
    await eventually(() => expect(ran).toEqual(['a', 'b', 'c', 'd']));
  });

  test('a delayed job does not run before its time', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const at = (ms: number): Date => new Date(Date.now() + ms);
    const due = { first: at(350), second: at(700) };
    const ran = new Map<unknown, number>();
    // Cancelled and retried, with a key and without: the run time stays.
    for (const key of [undefined, 'k']) {
      const { id } = await queue.enqueue('send', 'undone', { key, runAt: at(3_600_000) });
      await queue.cancel(id);
      await queue.retry(id);
    }
    await start(fixture, queue, { send: (unit) => void ran.set(unit.payload, Date.now()) }, { concurrency: 1 });
    await queue.enqueueMany([
      { kind: 'send', payload: 'second', runAt: due.second },
      { kind: 'send', payload: 'first', runAt: due.first },
      { kind: 'send', payload: 'now', runAt: at(-5000) },
    ]);
    await until('all have run', () => ran.size === 3);
    expect(ran.get('first')).toBeGreaterThanOrEqual(due.first.getTime());
    expect(ran.get('second')).toBeGreaterThanOrEqual(due.second.getTime());
  });
}
