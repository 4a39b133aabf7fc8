import { expect, test } from 'vitest';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import type { BatchProgress, Unit } from '../../../src/queue/index.ts';
import { eventually } from '../../support/eventually.ts';
import { type AnyQueue, type Fixture, start } from './fixture.ts';

const KINDS = { job: { attempts: 1 }, called: {} } as const;
type Jobs = AnyQueue<typeof KINDS>;

const ALL = {
  onComplete: { kind: 'called', payload: 'complete' },
  onError: { kind: 'called', payload: 'error' },
  onDone: { kind: 'called', payload: 'done' },
} as const;

const fails = (unit: Unit): unknown => {
  if (unit.payload === 'fails') throw new Error('it fails');
  return unit.payload;
};

function many(n: number, payload: unknown = 1): { kind: 'job'; payload: unknown }[] {
  return Array.from({ length: n }, () => ({ kind: 'job', payload }));
}

/** Two workers. @returns the payloads of the callbacks, and what they are told */
async function working(
  fixture: Fixture,
  queue: Jobs,
  run: (unit: Unit) => unknown = fails,
): Promise<[unknown, unknown][]> {
  const seen: [unknown, unknown][] = [];
  const called = (unit: Unit): void => void seen.push([unit.payload, unit.job.meta?.['batch']]);
  for (const _ of [1, 2]) await start(fixture, queue, { job: run, called }, { concurrency: 10 });
  return seen;
}

async function isDone(batch: { progress(): Promise<BatchProgress> }): Promise<BatchProgress> {
  return eventually(async () => {
    const progress = await batch.progress();
    expect(progress.doneAt).not.toBeNull();
    return progress;
  });
}

const ends = async (queue: Jobs, id: string, status: string): Promise<void> =>
  eventually(async () => expect((await queue.get(id)).status).toBe(status));

export function batchesPromises(open: () => Promise<Fixture>): void {
  test('the callbacks of a batch are enqueued once, when all its jobs have completed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS, shards: 3 });
    const seen = await working(fixture, queue);
    const batch = await queue.batch(ALL);
    await batch.enqueueMany(many(150));
    await batch.enqueue({ kind: 'job', payload: 2, key: 'k' });
    await batch.enqueue({ kind: 'job', payload: 3, delay: 100 });
    await batch.seal();
    const counts = { total: 152, outstanding: 0, complete: 152, errors: 0, cancelled: 0, problem: null };
    expect(await isDone(batch)).toMatchObject(counts);
    await queue.drain();
    const about = { id: batch.id, total: 152, errors: 0, cancelled: 0 };
    expect(new Set(seen)).toEqual(
      new Set([
        ['complete', about],
        ['done', about],
      ]),
    );
    expect(seen).toHaveLength(2);
  });

  test('a batch of which a job fails or is cancelled calls onError', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const batch = await queue.batch(ALL);
    const [first = ''] = await batch.enqueueMany(many(5));
    await batch.enqueue({ kind: 'job', payload: 'fails' });
    await queue.cancel(first);
    const open5 = { total: 6, outstanding: 5, complete: 0, errors: 0, cancelled: 1, sealedAt: null };
    expect(await batch.progress()).toMatchObject(open5);
    await batch.seal();
    const seen = await working(fixture, queue);
    expect(await isDone(batch)).toMatchObject({ total: 6, complete: 4, errors: 1, cancelled: 1 });
    await queue.drain();
    expect(seen.map(([payload]) => String(payload)).toSorted()).toEqual(['done', 'error']);
  });

  test('a batch is open until it is sealed: jobs add others to it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const batch = await queue.batch(ALL);
    await batch.enqueue({ kind: 'job', payload: 3 });
    const seen = await working(fixture, queue, async (unit) => {
      const left = Number(unit.payload);
      const same = queue.openBatch(batch.id);
      if (left > 0) await same.enqueue({ kind: 'job', payload: left - 1 });
      else await same.seal();
    });
    expect(await isDone(batch)).toMatchObject({ total: 4, complete: 4 });
    await queue.drain();
    expect(seen).toHaveLength(2);
  });

  test('an empty batch is done when it is sealed, and sealing twice does nothing', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const batch = await queue.batch({ onComplete: { kind: 'called', payload: 'complete' } });
    await batch.seal();
    await batch.seal();
    expect(await batch.progress()).toMatchObject({ total: 0, outstanding: 0 });
    expect((await queue.stats()).ready).toBe(1);
  });

  test('a batch waits for the batches in it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const seen = await working(fixture, queue);
    const outer = await queue.batch({ onError: { kind: 'called', payload: 'outer' } });
    const inner = await outer.nested({ onError: { kind: 'called', payload: 'inner' } });
    await inner.enqueue({ kind: 'job', payload: 'fails' });
    await outer.enqueueMany(many(3));
    await outer.seal();
    await queue.drain();
    expect(await outer.progress()).toMatchObject({ total: 4, outstanding: 1, doneAt: null });
    await inner.seal();
    expect(await isDone(outer)).toMatchObject({ total: 4, complete: 3, errors: 1 });
    await queue.drain();
    expect(new Set(seen.map(([payload]) => payload))).toEqual(new Set(['inner', 'outer']));
    expect(seen).toHaveLength(2);
  });

  test('a job comes after a batch', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const batch = await queue.batch();
    await batch.enqueueMany(many(10));
    const after = await queue.enqueue('job', 'after', { after: [batch] });
    const ids = await queue.flow([{ name: 'too', kind: 'job', payload: 'too', after: [batch] }]);
    await working(fixture, queue);
    await queue.drain();
    expect((await queue.get(after.id)).status).toBe('new');
    await batch.seal();
    await ends(queue, after.id, 'complete');
    await ends(queue, ids['too'] ?? '', 'complete');
    const late = await queue.enqueue('job', 'late', { after: [batch] });
    await ends(queue, late.id, 'complete');
  });

  test('a callback may be a job of another queue', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const other = fixture.queue({ kinds: { report: {} } }, 'other');
    const seen: unknown[] = [];
    await start(fixture, other, { report: ({ payload }) => void seen.push(payload) });
    const batch = await queue.batch({ onDone: { queue: other as never, kind: 'report', payload: 'all' } });
    await batch.seal();
    await eventually(() => expect(seen).toEqual(['all']));
  });

  test('what a batch does not take is refused', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const batch = await queue.batch();
    await batch.seal();
    await expect(batch.enqueue({ kind: 'job', payload: 1 })).rejects.toThrow(Conflict);
    await expect(batch.enqueue({ kind: 'job', payload: 1 })).rejects.toThrow(/^batch \d+ was sealed at /);
    await expect(batch.nested({})).rejects.toThrow(Conflict);
    await expect(queue.openBatch('987654321').enqueue({ kind: 'job', payload: 1 })).rejects.toThrow(NotFound);
    await expect(queue.openBatch('987654321').seal()).rejects.toThrow(NotFound);
    await expect(queue.openBatch('987654321').progress()).rejects.toThrow(NotFound);
    expect(() => queue.openBatch('x')).toThrow(InvalidInput);
    await expect(queue.batch({ onDoen: { kind: 'job' } } as never)).rejects.toThrow('but was given "onDoen"');
    await expect(queue.batch({ onDone: { kind: 'no such' } } as never)).rejects.toThrow(NotFound);
    await expect(queue.enqueue('job', 1, { after: [{ batch: '987654321' }] })).rejects.toThrow(NotFound);
  });
}
