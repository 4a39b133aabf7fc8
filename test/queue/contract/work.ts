import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { Cancelled, InvalidInput } from '../../../src/base/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { LONG } from '../../support/long.ts';
import { AT_ONCE, type Fixture, gate, type Lacks, start } from './fixture.ts';

/** Many claims of each of four workers. */
const MANY = LONG ? 2000 : 500;

export function workPromises(open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  test('jobs from before the start of the worker run, and so do later ones', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    await queue.enqueueMany(Array.from({ length: 100 }, (_, payload) => ({ kind: 'send', payload })));
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) });
    await eventually(() => expect(ran).toHaveLength(100));
    await queue.enqueue('send', 100);
    await eventually(() => expect(ran).toHaveLength(101));
  });

  test('an enqueue wakes an idle worker, whatever its poll interval is', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const ran: unknown[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.payload) }, { poll: '1h' });
    for (let n = 0; n < 10; n += 1) {
      await queue.enqueue('send', n);
      await eventually(() => expect(ran).toHaveLength(n + 1));
    }
  });

  test('four workers run many jobs once each', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const runs = new Map<string, number>();
    const note = (unit: { job: { id: string } }): void => void runs.set(unit.job.id, (runs.get(unit.job.id) ?? 0) + 1);
    const ids = await queue.enqueueMany(Array.from({ length: MANY }, (_, payload) => ({ kind: 'send', payload })));
    await Promise.all([1, 2, 3, 4].map(() => start(fixture, queue, { send: note }, { concurrency: 4 })));
    await eventually(() => expect(runs.size).toBe(MANY));
    expect([...runs.values()].every((n) => n === 1)).toBe(true);
    await eventually(async () => expect((await fixture.job(ids[MANY - 1] ?? '')).status).toBe('complete'));
  });

  test('never more handlers at once than concurrency allows', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    let [now, most, done] = [0, 0, 0];
    const full = gate();
    await queue.enqueueMany(
      Array.from({ length: 60 }, (_, n) => ({ kind: 'send', payload: n, ...(n % 2 ? { key: `k${n}` } : {}) })),
    );
    await start(
      fixture,
      queue,
      {
        send: async () => {
          now += 1;
          most = Math.max(most, now);
          if (now === 3) full.open();
          await full.opened;
          await new Promise((resolve) => setTimeout(resolve, 3));
          now -= 1;
          done += 1;
        },
      },
      { concurrency: 3 },
    );
    await eventually(() => expect(done).toBe(60));
    expect(most).toBe(3);
  });

  test('a graceful stop lets running handlers finish and gives back jobs that had not started', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { attempts: 2 } } });
    const ids = await queue.enqueueMany(Array.from({ length: 30 }, (_, payload) => ({ kind: 'send', payload })));
    const goOn = gate();
    const started: string[] = [];
    const worker = await start(
      fixture,
      queue,
      {
        send: async (unit) => {
          started.push(unit.job.id);
          await goOn.opened;
        },
      },
      { concurrency: 2, ...(fixture.hold === 'lease' ? { prefetch: 20 } : {}) },
    );
    await eventually(() => expect(started).toHaveLength(2));
    const stopped = worker.stop();
    goOn.open();
    await stopped;
    expect(started).toHaveLength(2);
    for (const id of started) expect(await fixture.job(id)).toMatchObject({ status: 'complete' });
    const attempts = new Map<string, number>();
    await start(fixture, queue, { send: (unit) => void attempts.set(unit.job.id, unit.attempt) });
    await eventually(() => expect(attempts.size).toBe(28));
    expect([...attempts.values()].every((attempt) => attempt === 1)).toBe(true);
    expect(ids).toHaveLength(30);
  });

  test('a stop is safe before the start, twice, and by a signal', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const early = queue.work({ send: () => {} }, { hold: fixture.hold });
    await early.stop();
    await early.stop();
    const abort = new AbortController();
    const worker = await start(fixture, queue, { send: () => {} }, { signal: abort.signal });
    // A signal may live as long as the process, and have many workers one after another.
    await (await start(fixture, queue, { send: () => {} }, { signal: abort.signal })).stop();
    expect(getEventListeners(abort.signal, 'abort')).toHaveLength(1);
    abort.abort();
    await worker.stop();
    let ran = false;
    {
      await using again = queue.work({ send: () => void (ran = true) }, { hold: fixture.hold });
      await again.started;
      await queue.enqueue('send', {});
      await eventually(() => expect(ran).toBe(true));
    }
  });

  test('a paused queue starts no job, lets running jobs finish, and continues at once when it is resumed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {}, sync: { coalesce: 'all' } } });
    const running = gate();
    const goOn = gate();
    const ran: unknown[] = [];
    const sync: number[] = [];
    await start(
      fixture,
      queue,
      {
        send: async (unit) => {
          running.open();
          await goOn.opened;
          ran.push(unit.payload);
        },
        sync: (unit) => void sync.push(unit.jobs.length),
      },
      { poll: '1h' },
    );
    const { id } = await queue.enqueue('send', 1);
    await running.opened;
    await queue.pause();
    const later = await queue.enqueue('send', 2);
    await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'sync', payload, key: 'k' })));
    goOn.open();
    await eventually(async () => expect((await fixture.job(id)).status).toBe('complete'));
    expect((await fixture.job(later.id)).status).toBe('new');
    expect(ran).toEqual([1]);
    await queue.resume();
    await eventually(() => expect(ran).toEqual([1, 2]));
    await eventually(() => expect(sync).toEqual([3]));
  });

  test('the signal of a cancelled job is aborted, and the next job of its key runs', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const running = gate();
    let reason: unknown;
    const ran: unknown[] = [];
    // Long enough for the worker to note the job as running, where the claim is not committed yet.
    await start(fixture, queue, {
      send: (unit) => {
        if (unit.payload === 2) return void ran.push(2);
        setTimeout(() => running.open(), 500);
        return new Promise((_, reject) => {
          unit.signal.addEventListener('abort', () => {
            reason = unit.signal.reason;
            reject(new Error('interrupted'));
          });
        });
      },
    });
    const { id } = await queue.enqueue('send', 1, { key: 'k' });
    await queue.enqueue('send', 2, { key: 'k' });
    await running.opened;
    await queue.cancel(id, { reason: 'ordered twice' });
    await eventually(() => expect(reason).toBeInstanceOf(Cancelled));
    expect(String(reason)).toMatch(/ordered twice/);
    await eventually(async () => expect((await fixture.job(id)).status).toBe('cancelled'));
    await eventually(() => expect(ran).toEqual([2]));
  });

  test('a job and a unit show their ids in a log', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const seen: string[] = [];
    await start(fixture, queue, { send: (unit) => void seen.push(JSON.stringify(unit.job), JSON.stringify(unit)) });
    const { id } = await queue.enqueue('send', { to: 'ada' }, { key: 'a' });
    await eventually(() => expect(seen).toHaveLength(2));
    const job = { id, queue: queue.name, kind: 'send', key: 'a', attempt: 1, payload: { to: 'ada' } };
    expect(JSON.parse(seen[0] ?? '')).toMatchObject(job);
    expect(JSON.parse(seen[1] ?? '')).toMatchObject({ processId: expect.any(String), jobs: [job] });
  });

  test('progress can be read while the job runs, and the result afterwards', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const half = gate();
    const goOn = gate();
    await start(fixture, queue, {
      send: async (unit) => {
        await unit.progress({ done: 5, of: 10 });
        half.open();
        await goOn.opened;
        return { rows: 10 };
      },
    });
    const { id } = await queue.enqueue('send', {});
    await half.opened;
    expect((await fixture.job(id)).progress).toEqual({ done: 5, of: 10 });
    goOn.open();
    await eventually(async () =>
      expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: { rows: 10 } }),
    );
  });

  test('a job of a key that was cancelled and retried before it ran, runs once, and its key goes on', async () => {
    const f = await open();
    const queue = f.queue({ kinds: { step: {} } });
    const ran: unknown[] = [];
    const first = await queue.enqueue('step', 1, { key: 'k' });
    await queue.cancel(first.id);
    await queue.retry(first.id);
    await queue.enqueue('step', 2, { key: 'k' });
    await start(f, queue, { step: ({ payload }) => void ran.push(payload) });
    await queue.drain();
    expect((await queue.get(first.id)).status).toBe('complete');
    await queue.enqueue('step', 3, { key: 'k' });
    await queue.drain();
    expect(ran).toEqual([1, 2, 3]);
  });

  test.skipIf(lacks.transactions)('the owner of a unit passes its guard and commits', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: AT_ONCE });
    await start(fixture, queue, {
      send: async (unit) => {
        if (fixture.hold === 'transaction') await unit.guard(unit.tx);
        else await fixture.transaction((tx) => unit.guard(tx));
        return 'guarded';
      },
    });
    const { id } = await queue.enqueue('send', {}, { key: 'k' });
    await eventually(async () =>
      expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: 'guarded' }),
    );
  });

  test('a worker without a handler for each kind is refused', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {}, sync: {} } });
    expect(() => queue.work({ send: () => {} } as never)).toThrow(InvalidInput);
    expect(() => queue.work({ send: () => {}, sync: () => {}, sned: () => {} } as never)).toThrow(
      'did you mean "send"?',
    );
    expect(() => queue.work({ send: () => {}, sync: () => {} }, { concurency: 3 } as never)).toThrow('did you mean');
  });

  test('a job of a kind that this program does not know is given back uncharged, and its neighbours run', async () => {
    const fixture = await open();
    const newer = fixture.queue({ kinds: { send: {}, fax: {} } }, 'kinds');
    await newer.register();
    const older = fixture.queue({ kinds: { send: {} } }, 'kinds');
    const ran: unknown[] = [];
    const fax = await newer.enqueue('fax', {}, { key: 'a' });
    await start(fixture, older, { send: (unit) => void ran.push(unit.payload) });
    await older.enqueue('send', 'b', { key: 'b' });
    await eventually(() => expect(ran).toEqual(['b']));
    await eventually(async () =>
      expect(await fixture.job(fax.id)).toMatchObject({
        status: 'new',
        reasons: [expect.stringMatching(/no handler/)],
      }),
    );
  });
}
