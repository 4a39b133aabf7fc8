import { expect, test } from 'vitest';
import { Conflict, InvalidInput } from '../../../src/base/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { type AnyQueue, DOUBLING, type Fixture, gate, start } from './fixture.ts';

const KINDS = { job: {}, checked: { payload: DOUBLING } } as const;
const HOUR_MS = 3_600_000;
const later = (): Date => new Date(Date.now() + HOUR_MS);

/** Runs everything that is due, one after another. @returns the payloads in that order */
async function runAll({ hold }: Fixture, queue: AnyQueue<typeof KINDS>): Promise<unknown[]> {
  const seen: unknown[] = [];
  const note = ({ payload }: { payload: unknown }): void => void seen.push(payload);
  await queue.work({ job: note, checked: note }, { hold, poll: '1h', concurrency: 1 }).once();
  return seen;
}

export function changePromises(hold: Fixture['hold'], open: () => Promise<Fixture>): void {
  test('one of many jobs gets another payload, and its neighbours keep theirs', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const ids = await queue.enqueueMany(Array.from({ length: 9 }, (_, n) => ({ kind: 'job', payload: n }) as const));
    for (const at of [0, 4, 8]) await queue.update(ids[at] ?? '', { payload: `new ${at}` });
    expect(await queue.update(ids[4] ?? '', { payload: 'newest' })).toEqual({ id: ids[4], status: 'new' });
    expect(await queue.get(ids[4] ?? '')).toMatchObject({ payload: 'newest', status: 'new' });
    expect(new Set(await runAll(fixture, queue))).toEqual(new Set(['new 0', 1, 2, 3, 'newest', 5, 6, 7, 'new 8']));
    expect((await queue.history(ids[4] ?? '')).map(({ reason }) => reason)).toEqual([
      'enqueue',
      'update',
      'update',
      'claim',
      'complete',
    ]);
  });

  test('jobs of one key keep their order, whichever of them is changed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const ids = await queue.enqueueMany(
      Array.from({ length: 12 }, (_, n) => ({ kind: 'job', payload: n, key: 'k' }) as const),
    );
    for (const at of [0, 5, 11]) await queue.update(ids[at] ?? '', { payload: -at, priority: at - 5 });
    expect((await runAll(fixture, queue)).map(Number).map(Math.abs)).toEqual([...ids.keys()]);
  });

  test('a job can be put off and brought forward', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const off = await queue.enqueue('job', 'off');
    const on = await queue.enqueue('job', 'on', { runAt: later() });
    await queue.enqueue('job', 'plain');
    const runAt = later();
    await queue.update(off.id, { runAt });
    expect(await queue.get(off.id)).toMatchObject({ status: 'new', runAt });
    expect((await queue.explain(off.id)).reasons[0]?.code).toBe('scheduled');
    await queue.update(on.id, { runAt: new Date(0) });
    expect(await queue.stats()).toMatchObject({ delayed: 1, ready: 2 });
    expect(new Set(await runAll(fixture, queue))).toEqual(new Set(['on', 'plain']));
    await queue.update(off.id, { delay: 0, payload: 'off no more' });
    expect(await runAll(fixture, queue)).toEqual(['off no more']);
    expect((await queue.get(off.id)).status).toBe('complete');
  });

  test('a job that was put off can be cancelled, and waits for its time when it is retried', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const { id } = await queue.enqueue('job', 1);
    await queue.enqueue('job', 2);
    await queue.update(id, { runAt: later() });
    expect(await queue.cancel(id)).toBe('cancelled');
    expect((await queue.get(id)).status).toBe('cancelled');
    expect(await runAll(fixture, queue)).toEqual([2]);
    await queue.retry(id);
    expect((await queue.get(id)).status).toBe('new');
  });

  test('a job of a key that is put off lets the others pass, and runs when it is due', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const first = await queue.enqueue('job', 'first', { key: 'k' });
    await queue.enqueue('job', 'second', { key: 'k' });
    await queue.update(first.id, { runAt: later() });
    expect(await runAll(fixture, queue)).toEqual(['second']);
    await queue.update(first.id, { runAt: new Date(0), payload: 'first, late' });
    expect(await runAll(fixture, queue)).toEqual(['first, late']);
  });

  test('retry makes a job that is delayed due now, with a key, without one, and among others of its row', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const runAt = later();
    const plain = await queue.enqueue('job', 'plain', { runAt });
    const keyed = await queue.enqueue('job', 'keyed', { runAt, key: 'k' });
    const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'job', payload, runAt }) as const));
    const off = await queue.enqueue('job', 'put off');
    await queue.update(off.id, { runAt });
    for (const id of [plain.id, keyed.id, ids[1] ?? '', off.id]) expect(await queue.retry(id)).toBe('new');
    expect((await queue.explain(keyed.id)).reasons[0]?.code).not.toBe('scheduled');
    expect(new Set(await runAll(fixture, queue))).toEqual(new Set(['plain', 'keyed', 2, 'put off']));
    expect((await queue.history(plain.id)).map(({ reason }) => reason)).toEqual([
      'enqueue',
      'retry by hand',
      'claim',
      'complete',
    ]);
    await expect(queue.retry(plain.id)).rejects.toThrow(/only a job that waits, ended in error or was cancelled/);
    expect((await queue.get(ids[0] ?? '')).status).toBe('new');
  });

  test('retry makes a job that backs off due now: it keeps its attempts and the place in its key', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { job: {} },
      retry: { attempts: 3, backoff: { kind: 'fixed', min: '1h' } },
    });
    const tries: [unknown, number][] = [];
    const handler = ({ payload, attempt }: { payload: unknown; attempt: number }): void => {
      tries.push([payload, attempt]);
      if (attempt === 1 && payload !== 'next') throw new Error('out of paper');
    };
    await start(fixture, queue, { job: handler }, { concurrency: 1 });
    const keyed = await queue.enqueue('job', 'keyed', { key: 'k' });
    const plain = await queue.enqueue('job', 'plain');
    const backsOff = ({ id }: { id: string }): Promise<void> =>
      eventually(async () => expect((await queue.explain(id)).reasons[0]?.code).toBe('backing_off'));
    await backsOff(keyed);
    await backsOff(plain);
    await queue.enqueue('job', 'next', { key: 'k' });
    for (const { id } of [keyed, plain]) expect(await queue.retry(id)).toBe('new');
    await queue.drain({ delayed: true });
    const of = (name: unknown): [unknown, number][] => tries.filter(([payload]) => payload === name);
    expect(of('plain')).toEqual([
      ['plain', 1],
      ['plain', 2],
    ]);
    expect(tries.filter(([payload]) => payload !== 'plain')).toEqual([
      ['keyed', 1],
      ['keyed', 2],
      ['next', 1],
    ]);
  });

  test('a job is named by its key: the newest that has not ended, and by its kind', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const first = await queue.enqueue('job', 1, { key: 'k' });
    const second = await queue.enqueue('checked', { n: 2 }, { key: 'k' });
    await queue.update({ key: 'k', kind: 'job' }, { payload: 10 });
    expect(await queue.get({ key: 'k', kind: 'job' })).toMatchObject({ id: first.id, payload: 10 });
    expect((await queue.get({ key: 'k' })).id).toBe(second.id);
    await queue.cancel({ key: 'k' });
    expect((await queue.get({ key: 'k' })).id).toBe(first.id);
    await queue.cancel({ key: 'k' });
    expect((await queue.get({ key: 'k' })).id).toBe(second.id);
    expect(await queue.retry({ key: 'k' })).toBe('new');
  });

  test('what is not good is refused, and nothing is changed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const { id } = await queue.enqueue('checked', { n: 1 });
    await expect(queue.update(id, { payload: { n: 'one' } })).rejects.toBeInstanceOf(InvalidInput);
    await expect(queue.update(id, {})).rejects.toBeInstanceOf(InvalidInput);
    expect(await queue.get(id)).toMatchObject({ payload: { n: 1 }, status: 'new' });
    await queue.update(id, { payload: { n: 3 }, attempts: 2 });
    expect(await queue.get(id)).toMatchObject({ payload: { n: 3 }, attempts: 2 });
    expect(await runAll(fixture, queue)).toEqual([{ n: 6 }]);
    await expect(queue.update(id, { payload: { n: 4 } })).rejects.toThrow(
      /is complete, so it can no longer be changed/,
    );
  });

  test.runIf(hold === 'lease')('a job that has begun is not changed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const [running, goOn] = [gate(), gate()];
    const ids = [await queue.enqueue('job', 1), await queue.enqueue('job', 2, { key: 'k' })].map(({ id }) => id);
    let begun = 0;
    const handler = async (): Promise<void> => {
      begun += 1;
      if (begun === 2) running.open();
      await goOn.opened;
    };
    await start(fixture, queue, { job: handler, checked: () => {} }, { concurrency: 2 });
    await running.opened;
    for (const id of ids) {
      await eventually(async () => expect((await queue.get(id)).status).toBe('in-progress'));
      await expect(queue.update(id, { payload: 3 })).rejects.toBeInstanceOf(Conflict);
    }
    goOn.open();
    await queue.drain();
    expect((await queue.get(ids[0] ?? '')).payload).toBe(1);
  });

  // Invariant J9.
  test('no handler gets the old payload once an update has returned, while workers take the jobs', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const [ran, told] = [new Map<string, unknown>(), new Map<string, unknown>()];
    const note = ({ job }: { job: { id: string; payload: unknown } }): void => void ran.set(job.id, job.payload);
    for (let nth = 0; nth < 2; nth += 1) {
      await start(fixture, queue, { job: note, checked: () => {} }, { concurrency: 3, poll: '20ms' });
    }
    const change = async (id: string, n: number): Promise<void> => {
      const isChanged = await queue.update(id, { payload: `second ${n}` }).then(
        () => true,
        (error: unknown) => {
          expect(error).toMatchObject({ code: expect.stringMatching(/conflict|lock_not_available/) });
          return false;
        },
      );
      told.set(id, isChanged ? `second ${n}` : `first ${n}`);
    };
    for (let round = 0; round < 3; round += 1) {
      const ids = await queue.enqueueMany(
        Array.from(
          { length: 10 },
          (_, n) => ({ kind: 'job', payload: `first ${n}`, ...(n > 5 && { key: 'k' }) }) as const,
        ),
      );
      await Promise.all(ids.map(change));
    }
    await queue.drain();
    expect(told.size).toBe(30);
    expect(ran).toEqual(told);
  });

  test('a payload that is changed takes the place of its unique kind with it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { unique: { by: ['id'] } } } });
    const one = await queue.enqueue('job', { id: 1 });
    const two = await queue.enqueue('job', { id: 2 });
    await expect(queue.update(one.id, { payload: { id: 2 } })).rejects.toThrow(/cannot be given this payload/);
    await queue.update(one.id, { payload: { id: 3 } });
    expect((await queue.enqueue('job', { id: 1 })).duplicate).toBe(false);
    expect(await queue.enqueue('job', { id: 3 })).toMatchObject({ id: one.id, duplicate: true });
    expect(await queue.enqueue('job', { id: 2 })).toMatchObject({ id: two.id, duplicate: true });
  });
}
