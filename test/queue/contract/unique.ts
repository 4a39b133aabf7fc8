import { expect, test } from 'vitest';
import { Conflict } from '../../../src/base/errors.ts';
import { aborted, eventually } from '../../support/eventually.ts';
import { AT_ONCE, type Fixture, gate, start } from './fixture.ts';

const OUTSTANDING = { unique: { by: 'key', while: 'outstanding' } } as const;

export function uniquePromises(hold: Fixture['hold'], open: () => Promise<Fixture>): void {
  // What an open transaction holds is new to all others.
  const whileRunning = hold === 'lease' ? 'in-progress' : 'new';

  test('while a job is outstanding, another one is answered with its id and status', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: OUTSTANDING, other: {} } });
    const [running, goOn] = [gate(), gate()];
    const first = await queue.enqueue('job', 1, { key: 'k' });
    expect(await queue.enqueue('job', 2, { key: 'k' })).toEqual({ ...first, status: 'new', duplicate: true });
    expect((await queue.enqueue('job', 2, { key: 'another' })).duplicate).toBe(false);
    expect((await queue.enqueue('other', 2, { key: 'k' })).duplicate).toBe(false);
    const handler = async (): Promise<void> => {
      running.open();
      await goOn.opened;
    };
    await start(fixture, queue, { job: handler, other: () => {} });
    await running.opened;
    await eventually(async () => expect((await queue.get(first.id)).status).toBe(whileRunning));
    const third = await queue.enqueue('job', 3, { key: 'k' });
    expect(third).toEqual({ id: first.id, status: whileRunning, duplicate: true });
    goOn.open();
    await queue.drain();
    expect((await queue.enqueue('job', 4, { key: 'k' })).duplicate).toBe(false);
  });

  test('each end frees the place of a unique job, and a retry does not', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: OUTSTANDING }, retry: { ...AT_ONCE, attempts: 2 } });
    const ends = ['complete', 'error', 'cancelled', 'cancelled early'] as const;
    const [ids, seen]: [Map<string, string>, unknown[]] = [new Map(), []];
    for (const end of ends) ids.set(end, (await queue.enqueue('job', end, { key: end })).id);
    await queue.cancel(ids.get('cancelled early') ?? '');
    await start(fixture, queue, {
      job: async ({ payload, attempt, signal, job }) => {
        // Its place is taken as long as it is tried again.
        const again = await queue.enqueue('job', 'another', { key: String(payload) });
        if (again.duplicate && again.id === job.id) seen.push(`${String(payload)} ${attempt}`);
        if (payload === 'error') throw new Error('it fails');
        if (payload !== 'cancelled') return;
        await queue.cancel(job.id);
        await aborted(signal);
        signal.throwIfAborted();
      },
    });
    // A job that is tried again is delayed for a moment.
    await queue.drain({ delayed: true });
    expect(seen).toHaveLength(4);
    expect(new Set(seen)).toEqual(new Set(['cancelled 1', 'complete 1', 'error 1', 'error 2']));
    for (const end of ends) {
      expect((await queue.get(ids.get(end) ?? '')).status).toBe(end === 'cancelled early' ? 'cancelled' : end);
    }
    await queue.pause();
    const next = await queue.enqueueMany(ends.map((end) => ({ kind: 'job' as const, payload: 'next', key: end })));
    expect(next.duplicates).toEqual([]);
  });

  test.runIf(hold === 'lease')('while a job is waiting: one more may wait behind one that runs', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { unique: { while: 'waiting' } } } });
    const [running, goOn] = [gate(), gate()];
    const handler = async (): Promise<void> => {
      running.open();
      await goOn.opened;
    };
    const first = await queue.enqueue('job', 1, { key: 'k' });
    await start(fixture, queue, { job: handler });
    await running.opened;
    await eventually(async () => expect((await queue.get(first.id)).status).toBe('in-progress'));
    const second = await queue.enqueue('job', 2, { key: 'k' });
    expect(second.duplicate).toBe(false);
    expect(await queue.enqueue('job', 3, { key: 'k' })).toEqual({ id: second.id, status: 'new', duplicate: true });
    goOn.open();
    await queue.drain();
  });

  test('by payload it is the same whatever the order of its properties; by paths, only they count', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { whole: { unique: { by: 'payload' } }, part: { unique: { by: ['user.id', 'action'] } } },
      shards: 4,
    });
    const first = await queue.enqueue('whole', { user: { id: 1, name: 'Ada' }, at: 1 });
    expect(await queue.enqueue('whole', { at: 1, user: { name: 'Ada', id: 1 } }, { key: 'k' })).toMatchObject({
      id: first.id,
    });
    expect((await queue.enqueue('whole', { at: 2, user: { name: 'Ada', id: 1 } })).duplicate).toBe(false);
    const ada = await queue.enqueue('part', { user: { id: 1 }, action: 'mail', at: 1 });
    expect(await queue.enqueue('part', { user: { id: 1 }, action: 'mail', at: 2 })).toMatchObject({ id: ada.id });
    expect((await queue.enqueue('part', { user: { id: '1' }, action: 'mail' })).duplicate).toBe(false);
    expect((await queue.enqueue('part', { user: { id: 1 } })).duplicate).toBe(false);
    expect((await queue.enqueue('part', { user: { id: 1 }, action: null })).duplicate).toBe(true);
  });

  test('a throttled job counts for its time, whatever became of it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { hour: { throttle: '1h' }, moment: { throttle: 1 } } });
    const first = await queue.enqueue('hour', 1, { key: 'k' });
    await queue.cancel(first.id);
    expect(await queue.enqueue('hour', 2, { key: 'k' })).toEqual({ ...first, status: 'cancelled', duplicate: true });
    await queue.enqueue('moment', 1, { key: 'k' });
    await eventually(async () => expect((await queue.enqueue('moment', 2, { key: 'k' })).duplicate).toBe(false));
  });

  test('enqueueMany takes unique jobs in the order of the jobs, and says which existed already', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { unique: { by: 'payload' } }, other: {} } });
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
    const ran: unknown[] = [];
    const note = ({ payload }: { payload: unknown }): void => void ran.push(payload);
    await start(fixture, queue, { job: note, other: note });
    await queue.drain();
    expect(ran).toEqual([1, 1, 2]);
  });

  test('a retry by hand is refused while another job has the place, and takes it back after that', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: OUTSTANDING } });
    const first = await queue.enqueue('job', 1, { key: 'k' });
    await queue.cancel(first.id);
    const second = await queue.enqueue('job', 2, { key: 'k' });
    const refused = queue.retry(first.id);
    await expect(refused).rejects.toThrow(`and job ${second.id} already exists; that job is new`);
    await expect(refused).rejects.toBeInstanceOf(Conflict);
    await queue.cancel(second.id);
    expect(await queue.retry(first.id)).toBe('new');
    expect(await queue.enqueue('job', 3, { key: 'k' })).toMatchObject({ id: first.id, duplicate: true });
  });

  // Invariant J6.
  test('of many producers at once never two jobs are outstanding, and none is lost', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { unique: { by: ['id'] } } }, shards: 2, retry: AT_ONCE });
    await queue.register();
    const [won, ran]: [Set<string>, Set<string>] = [new Set(), new Set()];
    let [running, most] = [0, 0];
    await start(fixture, queue, {
      job: async ({ job, attempt }) => {
        running += 1;
        most = Math.max(most, running);
        // A second one, if there is one, begins meanwhile.
        for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        running -= 1;
        if (attempt === 1 && won.size % 2 === 0) throw new Error('again');
        ran.add(job.id);
      },
    });
    const told = new Set<string>();
    const produce = async (producer: number): Promise<void> => {
      for (let round = 0; round < 4 || won.size < 3; round += 1) {
        const answer = await queue.enqueue('job', { id: 1, producer, round });
        told.add(answer.id);
        if (!answer.duplicate) won.add(answer.id);
      }
    };
    await Promise.all(Array.from({ length: 12 }, (_, producer) => produce(producer)));
    await queue.drain({ delayed: true });
    expect(most).toBe(1);
    expect(ran).toEqual(won);
    expect(told).toEqual(won);
  });
}
