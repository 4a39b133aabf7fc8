import { expect, test } from 'vitest';
import { InvalidInput, LeaseLost, NotSupported, TimedOut } from '../../../src/base/errors.ts';
import { discard, snooze, type UnitBatch, type Worker } from '../../../src/queue/index.ts';
import { aborted, eventually } from '../../support/eventually.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { DOUBLING, type Fixture, gate, type Lacks, start } from './fixture.ts';

const jobs = (n: number): { kind: 'send'; payload: number }[] =>
  Array.from({ length: n }, (_, payload) => ({ kind: 'send', payload }));
const payloadsOf = (units: UnitBatch): unknown[] => units.map(({ payload }) => payload);

/** The promises of kinds with `batch`, in workers with a lease. */
export function batchPromises(open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  test('a batch handler gets at most `size` units, each once, and all jobs complete with their own result', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 8, wait: '20ms' } } } });
    const ids = await queue.enqueueMany(jobs(30));
    const seen: unknown[][] = [];
    await start(fixture, queue, {
      send: (units) => {
        seen.push(payloadsOf(units));
        return units.map(({ payload }) => ({ was: payload }));
      },
    });
    await queue.drain();
    expect(seen.flat().toSorted((a, b) => Number(a) - Number(b))).toEqual(Array.from({ length: 30 }, (_, n) => n));
    expect(Math.max(...seen.map(({ length }) => length))).toBe(8);
    for (const [n, id] of ids.entries()) {
      expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: { was: n } });
    }
  });

  test('units beyond the number of slots are gathered, and one batch takes one slot', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 50, wait: '10s' } } } });
    const goOn = gate();
    const sizes: number[] = [];
    await queue.enqueueMany(jobs(150));
    const send = async (units: UnitBatch): Promise<void> => {
      sizes.push(units.length);
      await goOn.opened;
    };
    await start(fixture, queue, { send }, { concurrency: 2, prefetch: 0 });
    await eventually(() => expect(sizes).toEqual([50, 50]));
    goOn.open();
    await queue.drain();
    expect(sizes).toEqual([50, 50, 50]);
  });

  test('fewer units than `size` begin when the first of them has waited', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 1000, wait: '300ms' } } } });
    const seen: unknown[][] = [];
    await start(fixture, queue, { send: (units) => void seen.push(payloadsOf(units)) });
    const before = performance.now();
    await queue.enqueue('send', 1);
    await eventually(() => expect(seen.flat()).toEqual([1]));
    expect(performance.now() - before).toBeGreaterThanOrEqual(300);
  });

  test('an Error in the array of outcomes fails that job alone, and a verdict decides about it', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { send: { batch: { size: 4, wait: '10s' }, backoff: { kind: 'fixed', min: '1h' } } },
    });
    const ids = await queue.enqueueMany(jobs(4));
    const attempts: number[][] = [];
    const send = (units: UnitBatch): unknown => {
      attempts.push(units.map(({ attempt }) => attempt));
      return ['fine', new Error('no such address'), discard('never'), snooze('1h')].slice(0, units.length);
    };
    await start(fixture, queue, { send });
    await eventually(async () => {
      expect(await Promise.all(ids.map((id) => fixture.job(id)))).toMatchObject([
        { status: 'complete', result: 'fine', reasons: [] },
        { status: 'new', reasons: ['failed'] },
        { status: 'error', error: 'never' },
        { status: 'new', reasons: ['snoozed'] },
      ]);
    });
    expect(attempts).toEqual([[1, 1, 1, 1]]);
  });

  test('unit.fail() fails its job, and what the handler throws fails all of them', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { send: { batch: { size: 3, wait: '10s' }, attempts: 1 } },
    });
    const ids = await queue.enqueueMany(jobs(6));
    let calls = 0;
    const send = (units: UnitBatch): void => {
      calls += 1;
      if (calls === 2) throw new Error('all of it');
      const [first] = units;
      first?.fail(first.job, new Error('only this'));
    };
    await start(fixture, queue, { send }, { concurrency: 1 });
    await queue.drain();
    const ended = await Promise.all(ids.map((id) => fixture.job(id)));
    expect(ended.map(({ status }) => status).toSorted()).toEqual(['complete', 'complete', ...Array(4).fill('error')]);
    expect(ended.filter(({ error }) => error?.includes('all of it'))).toHaveLength(3);
    expect(ended.filter(({ error }) => error?.includes('only this'))).toHaveLength(1);
  });

  test('outcomes for another number of units fail each of them, and say how many there were', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 2, wait: '10s' }, attempts: 1 } } });
    const ids = await queue.enqueueMany(jobs(2));
    await start(fixture, queue, { send: () => [1, 2, 3] });
    await queue.drain();
    for (const id of ids) {
      const { status, error } = await fixture.job(id);
      expect(status).toBe('error');
      expect(error).toContain('returned an array of 3 for 2 units');
    }
  });

  test('a payload that the schema refuses fails its job, and the others run', async () => {
    const fixture = await open();
    const [asIs, checked] = [{ batch: { size: 3, wait: '10s' } }, { payload: DOUBLING }] as const;
    const given = fixture.queue({ kinds: { send: asIs } });
    await given.register();
    const ids = await given.enqueueMany([
      { kind: 'send', payload: { n: 1 } },
      { kind: 'send', payload: 'none' },
      { kind: 'send', payload: { n: 3 } },
    ]);
    const queue = fixture.queue({ kinds: { send: { ...asIs, ...checked, attempts: 1 } } });
    const seen: unknown[] = [];
    await start(fixture, queue, { send: (units) => void seen.push(...payloadsOf(units)) });
    await queue.drain();
    expect(seen).toEqual([{ n: 2 }, { n: 6 }]);
    expect((await Promise.all(ids.map((id) => fixture.job(id)))).map(({ status }) => status)).toEqual([
      'complete',
      'error',
      'complete',
    ]);
  });

  test('jobs of a key are never in the same batch, and run in their order', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 10, wait: '20ms' } } } });
    await queue.enqueueMany(
      Array.from({ length: 30 }, (_, n) => ({ kind: 'send' as const, payload: n, key: `k${n % 3}` })),
    );
    const ran: number[][] = [];
    const send = (units: UnitBatch): void => {
      const keys = units.map(({ key }) => key);
      expect(new Set(keys).size).toBe(keys.length);
      ran.push(units.map(({ payload }) => Number(payload)));
    };
    await start(fixture, queue, { send });
    await queue.drain();
    for (const key of [0, 1, 2]) {
      const ofKey = ran.flat().filter((n) => n % 3 === key);
      expect(ofKey).toEqual(Array.from({ length: 10 }, (_, n) => n * 3 + key));
    }
  });

  test('a job that is cancelled aborts its own signal alone, and the batch completes the others', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 3, wait: '10s' } } } });
    const ids = await queue.enqueueMany(jobs(3));
    const begun = gate();
    let isAborted: boolean[] = [];
    const send = async (units: UnitBatch): Promise<unknown> => {
      begun.open();
      const [, second] = units;
      if (second !== undefined) await aborted(second.signal);
      isAborted = [...units.map(({ signal }) => signal.aborted), units.signal.aborted];
      return units.map(({ signal }) => (signal.aborted ? new Error('not sent') : 'sent'));
    };
    await start(fixture, queue, { send }, { lease: '3s' });
    await begun.opened;
    await queue.cancel(ids[1] ?? '');
    await queue.drain();
    expect(isAborted).toEqual([false, true, false, false]);
    expect((await Promise.all(ids.map((id) => fixture.job(id)))).map(({ status }) => status)).toEqual([
      'complete',
      'cancelled',
      'complete',
    ]);
  });

  test('the timeout counts from the call of the handler, for each job, and its end aborts the batch', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { send: { batch: { size: 100, wait: '400ms' }, timeout: '300ms', attempts: 1 } },
    });
    const ids = await queue.enqueueMany(jobs(3));
    let reason: unknown;
    const send = async ({ signal }: UnitBatch): Promise<void> => {
      await aborted(signal);
      ({ reason } = signal);
    };
    await start(fixture, queue, { send });
    await queue.drain();
    expect(reason).toBeInstanceOf(TimedOut);
    for (const id of ids)
      expect(await fixture.job(id)).toMatchObject({ status: 'error', reasons: [expect.any(String)] });
  });

  test('a stop gives back at once what was gathered, uncharged, and what runs ends', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 2, wait: '1m' }, attempts: 1 } } });
    const ids = await queue.enqueueMany(jobs(3));
    const goOn = gate();
    const begun = gate();
    const worker = await start(fixture, queue, {
      send: async () => {
        begun.open();
        await goOn.opened;
      },
    });
    await begun.opened;
    await eventually(async () => expect((await fixture.job(ids[2] ?? '')).status).toBe('in-progress'));
    const stopped = worker.stop();
    await eventually(async () =>
      expect(await fixture.job(ids[2] ?? '')).toMatchObject({ status: 'new', reasons: ['worker stopped'] }),
    );
    expect((await queue.get(ids[2] ?? '')).attempt).toBe(0);
    expect((await fixture.job(ids[0] ?? '')).status).toBe('in-progress');
    goOn.open();
    await stopped;
    expect((await Promise.all(ids.map((id) => fixture.job(id)))).map(({ status }) => status)).toEqual([
      'complete',
      'complete',
      'new',
    ]);
  });

  test('stop() in a batch handler waits for others and not for the batch', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 2, wait: '10s' } } } });
    const ids = await queue.enqueueMany(jobs(2));
    const worker: Worker = await start(fixture, queue, { send: (): Promise<void> => worker.stop({ timeout: '20s' }) });
    const before = awakeMs();
    await eventually(async () => {
      expect((await Promise.all(ids.map((id) => fixture.job(id)))).map(({ status }) => status)).toEqual([
        'complete',
        'complete',
      ]);
    });
    await worker.stop();
    expect(awakeMs() - before).toBeLessThan(20_000);
  });

  test('once() does not wait for more units than there are', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 100, wait: '1m' } } } });
    await queue.enqueueMany(jobs(5));
    const worker = queue.work({ send: () => {} }, { hold: fixture.hold });
    expect(await worker.once()).toMatchObject({ complete: 5 });
  });

  test('progress belongs to its job', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 2, wait: '10s' } } } });
    const ids = await queue.enqueueMany(jobs(2));
    const send = async (units: UnitBatch): Promise<void> => {
      for (const unit of units) await unit.progress({ at: unit.payload });
    };
    await start(fixture, queue, { send });
    await queue.drain();
    for (const [n, id] of ids.entries()) expect((await fixture.job(id)).progress).toEqual({ at: n });
  });

  test.skipIf(lacks.transactions)('guard(tx) holds all units of the batch, and refuses when one is over', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 3, wait: '10s' }, timeout: '1m' } } });
    await queue.enqueueMany(jobs(3));
    const refused: unknown[] = [];
    let guarded: UnitBatch | undefined;
    const send = async (units: UnitBatch): Promise<void> => {
      guarded = units;
      await fixture.transaction((tx) => units.guard(tx));
    };
    await start(fixture, queue, { send });
    await queue.drain();
    await fixture.transaction(async (tx) => guarded?.guard(tx)).catch((error: unknown) => refused.push(error));
    expect(refused).toEqual([expect.any(LeaseLost)]);
  });

  test('a batch needs a size', async () => {
    const fixture = await open();
    const bad = (batch: object): unknown => fixture.queue({ kinds: { send: { batch: batch as { size: number } } } });
    expect(() => bad({})).toThrow(InvalidInput);
    expect(() => bad({ size: 0 })).toThrow(InvalidInput);
    expect(() => bad({ size: 10, wait: '2m' })).toThrow(InvalidInput);
  });
}

/** In workers that hold a transaction for each job. */
export function noBatchPromises(open: () => Promise<Fixture>): void {
  test("a kind with batch is refused by a worker with hold: 'transaction'", async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { batch: { size: 10 } } } });
    expect(() => queue.work({ send: () => {} }, { hold: fixture.hold })).toThrow(NotSupported);
  });
}
