import { expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import type { Unit } from '../../../src/queue/index.ts';
import { eventually } from '../../support/eventually.ts';
import { type AnyQueue, type Fixture, start } from './fixture.ts';

const KINDS = { job: { attempts: 1 } } as const;
type Jobs = AnyQueue<typeof KINDS>;

const fails = (unit: Unit): unknown => {
  if (unit.payload === 'fails') throw new Error('it fails');
  return unit.payload;
};

const ends = async (queue: Jobs, id: string, status: string): Promise<void> =>
  eventually(async () => expect((await queue.get(id)).status).toBe(status));

export function afterPromises(open: () => Promise<Fixture>): void {
  test('a job runs once all jobs that it comes after have ended, and reads their results', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS, shards: 4 });
    const order: unknown[] = [];
    const a = await queue.enqueue('job', 'a');
    const b = await queue.enqueue('job', 'b', { key: 'k' });
    const c = await queue.enqueue('job', 'c', { after: [a.id, b.id, a.id] });
    const d = await queue.enqueue('job', 'd', { after: [c.id], key: 'k' });
    expect(c).toMatchObject({ status: 'new', duplicate: false });
    const handler = async (unit: Unit): Promise<unknown> => {
      order.push(unit.payload);
      return (await unit.parents()).map(({ id, queue: of, status, result }) => [id, of, status, result]);
    };
    await start(fixture, queue, { job: handler });
    await ends(queue, d.id, 'complete');
    expect(order.slice(2)).toEqual(['c', 'd']);
    const ofC = [a.id, b.id].map((id) => [id, queue.name, 'complete', []]);
    expect((await queue.get(d.id)).result).toEqual([[c.id, queue.name, 'complete', ofC]]);
  });

  test('a waiting job says what it waits for, and is counted', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const ids = await queue.enqueueMany(['a', 'b'].map((payload) => ({ kind: 'job' as const, payload })));
    const { id } = await queue.enqueue('job', 'c', { after: ids });
    expect(await queue.get(id)).toMatchObject({ status: 'new', runAt: null, attempt: 0 });
    expect((await queue.explain(id)).reasons[0]).toMatchObject({
      code: 'waits_for_jobs',
      job: ids[0],
      text: `it comes after job ${ids[0]}, and 1 more, which have not ended; explain('${ids[0]}') says why`,
    });
    expect(await queue.stats()).toMatchObject({ ready: 2, delayed: 1 });
    expect((await queue.history(id)).map(({ reason }) => reason)).toEqual(['enqueue']);
  });

  test('jobs that have ended before count at once', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const [a = '', bad = '', gone = ''] = await queue.enqueueMany(
      ['a', 'fails', 'gone'].map((payload) => ({ kind: 'job' as const, payload })),
    );
    await queue.cancel(gone);
    await start(fixture, queue, { job: fails });
    await queue.drain();
    for (const [after, status] of [
      [[bad], 'error'],
      [[gone], 'cancelled'],
      [[a, bad, gone], 'error'],
    ] as const) {
      const child = await queue.enqueue('job', 'no', { after });
      expect(child.status).toBe(status);
      expect((await queue.get(child.id)).status).toBe(status);
    }
    const late = await queue.enqueue('job', 'late', { after: [a] });
    const all = await queue.enqueue('job', 'all', { after: [bad, gone], afterError: 'run', afterCancel: 'run' });
    for (const { id } of [late, all]) await ends(queue, id, 'complete');
  });

  test.for([
    [{}, 'error', 'cancelled'],
    [{ afterError: 'run', afterCancel: 'run' }, 'complete', 'complete'],
    [{ afterError: 'cancel', afterCancel: 'error' }, 'cancelled', 'error'],
  ] as const)('what becomes of a job after one that did not complete is said by %o', async ([options, bad, gone]) => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const failing = await queue.enqueue('job', 'fails');
    const cancelled = await queue.enqueue('job', 'gone');
    const ofBad = await queue.enqueue('job', 'child', { after: [failing.id], key: 'k', ...options });
    const ofGone = await queue.enqueue('job', 'child', { after: [cancelled.id], ...options });
    const below = await queue.enqueue('job', 'below', {
      after: [ofBad.id, ofGone.id],
      afterError: 'run',
      afterCancel: 'run',
    });
    await queue.cancel(cancelled.id);
    await start(fixture, queue, { job: fails });
    await ends(queue, below.id, 'complete');
    expect((await queue.get(ofBad.id)).status).toBe(bad);
    expect((await queue.get(ofGone.id)).status).toBe(gone);
    if (bad === 'complete') return;
    expect((await queue.get(ofBad.id)).error).toBe('1 of the jobs that it comes after ended in error');
    expect((await queue.history(ofBad.id)).map(({ reason }) => reason)).toEqual(['enqueue', 'parents']);
  });

  test('a job that ends in error with another one leaves one dead letter', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { attempts: 1, onError: 'letter' }, letter: {} } });
    const bad = await queue.enqueue('job', 'fails');
    const child = await queue.enqueue('job', 'child', { after: [bad.id] });
    const seen: unknown[] = [];
    await start(fixture, queue, { job: fails, letter: ({ payload }) => void seen.push(Object(payload).job) });
    await eventually(() => expect(seen).toHaveLength(2));
    await queue.drain();
    expect(new Set(seen)).toEqual(new Set([bad.id, child.id]));
    expect(seen).toHaveLength(2);
  });

  test('a waiting job can be cancelled, and what waits for it ends', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const a = await queue.enqueue('job', 'a');
    const b = await queue.enqueue('job', 'b', { after: [a.id] });
    const c = await queue.enqueue('job', 'c', { after: [b.id] });
    expect(await queue.cancel(b.id)).toBe('cancelled');
    await start(fixture, queue, { job: fails });
    await ends(queue, c.id, 'cancelled');
    await ends(queue, a.id, 'complete');
    expect((await queue.get(b.id)).status).toBe('cancelled');
  });

  test.for([undefined, 'k'])(
    'a waiting job that is updated, or cancelled and retried, waits on, key %s',
    async (key) => {
      const fixture = await open();
      const queue = fixture.queue({ kinds: KINDS });
      await queue.pause();
      const a = await queue.enqueue('job', 'a');
      const b = await queue.enqueue('job', 'b', { after: [a.id], key });
      await queue.update(b.id, { payload: 'new' });
      await queue.cancel(b.id);
      expect((await queue.get(b.id)).status).toBe('cancelled');
      await queue.retry(b.id);
      expect((await queue.explain(b.id)).reasons.map(({ code }) => code)).toContain('waits_for_jobs');
      const order: unknown[] = [];
      await start(fixture, queue, { job: ({ payload }) => void order.push(payload) });
      await queue.resume();
      await ends(queue, b.id, 'complete');
      expect(order).toEqual(['a', 'new']);
    },
  );

  test('jobs of a key pass one that waits for others', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const a = await queue.enqueue('job', 'a', { delay: '1s' });
    const waits = await queue.enqueue('job', 'waits', { after: [a.id], key: 'k' });
    const passes = await queue.enqueue('job', 'passes', { key: 'k' });
    const order: unknown[] = [];
    await start(fixture, queue, { job: ({ payload }) => void order.push(payload) });
    await ends(queue, passes.id, 'complete');
    await ends(queue, waits.id, 'complete');
    expect(new Set(order)).toEqual(new Set(['a', 'passes', 'waits']));
    expect(order).toHaveLength(3);
  });

  test('a job that is not there cannot be waited for', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    await queue.register();
    const wrong = queue.enqueue('job', 1, { after: ['987654321'] });
    await expect(wrong).rejects.toThrow('there is no job 987654321 to come after');
    await expect(wrong).rejects.toBeInstanceOf(NotFound);
    expect(await queue.stats()).toMatchObject({ new: 0 });
  });

  test.for([undefined, 'k'])('a job that comes after others runs not before its time either, key %s', async (key) => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const a = await queue.enqueue('job', 'a');
    const runAt = new Date(Date.now() + 700);
    const b = await queue.enqueue('job', 'b', { after: [a.id], runAt, key });
    const c = await queue.enqueue('job', 'c', { after: [a.id], delay: '1h', key });
    const d = await queue.flow([{ name: 'd', kind: 'job', payload: 'd', after: [a.id], runAt }]);
    await queue.cancel(b.id);
    await queue.retry(b.id);
    const began = new Map<unknown, number>();
    await start(fixture, queue, { job: ({ payload }) => void began.set(payload, Date.now()) });
    for (const id of [b.id, d['d'] ?? '']) await ends(queue, id, 'complete');
    expect([...began.keys()]).toHaveLength(3);
    // The clocks of this process and of the database are not the same one.
    for (const name of ['b', 'd']) expect(began.get(name)).toBeGreaterThan(runAt.getTime() - 100);
    expect((await queue.get(c.id)).status).toBe('new');
    await queue.update(c.id, { delay: 0 });
    await ends(queue, c.id, 'complete');
  });

  test('a job comes after jobs of another queue, and so do nodes of a flow', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const other = fixture.queue({ kinds: { job: { attempts: 1 } }, shards: 2 }, 'other');
    const a = await other.enqueue('job', 'a', { key: 'k' });
    const bad = await other.enqueue('job', 'fails');
    const b = await queue.enqueue('job', 'b', { after: [fixture.named(other, a.id)] });
    const c = await queue.enqueue('job', 'c', { after: [fixture.named(other, bad.id)] });
    const ids = await queue.flow([
      { name: 'there', queue: other as never, kind: 'job', payload: 'there', after: [b.id] },
      { name: 'here', kind: 'job', payload: 'here', after: ['there'], key: 'k' },
    ]);
    const handler = async (unit: Unit): Promise<unknown> => {
      fails(unit);
      return [unit.payload, ...(await unit.parents()).map(({ queue: of, result }) => [of, result])];
    };
    await start(fixture, other, { job: handler });
    await start(fixture, queue, { job: handler });
    await ends(queue, ids['here'] ?? '', 'complete');
    await ends(queue, c.id, 'error');
    const ofB = ['b', [other.name, ['a']]];
    expect((await queue.get(ids['here'] ?? '')).result).toEqual(['here', [other.name, ['there', [queue.name, ofB]]]]);
  });

  // Invariant J1.
  test('jobs that are enqueued while those before them end all run, once', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS, shards: 2 });
    const ran: unknown[] = [];
    for (let nth = 0; nth < 2; nth += 1) {
      await start(fixture, queue, { job: ({ payload }) => void ran.push(payload) }, { poll: '50ms' });
    }
    const pair = async (n: number): Promise<void> => {
      const { id } = await queue.enqueue('job', n);
      const child = await queue.enqueue('job', -n, { after: [id], ...(n % 3 === 0 && { key: 'k' }) });
      await ends(queue, child.id, 'complete');
    };
    await Promise.all(Array.from({ length: 12 }, (_, n) => pair(n + 1)));
    const all = Array.from({ length: 12 }, (_, n) => n + 1);
    expect(ran).toHaveLength(24);
    expect(new Set(ran)).toEqual(new Set([...all, ...all.map((n) => -n)]));
  });
}
