import { expect, test } from 'vitest';
import { eventually, until } from '../../support/eventually.ts';
import { AT_ONCE, type Fixture, start } from './fixture.ts';

const past = (): Date => new Date(Date.now() - 1000);
const later = (ms = 3_600_000): Date => new Date(Date.now() + ms);

export function expiryPromises(open: () => Promise<Fixture>): void {
  // Invariants J3, J8.
  test('a job that no worker has begun by its expiresAt never runs, and ends as cancelled', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: {}, all: { coalesce: 'all' } } });
    const plain = await queue.enqueue('job', 'plain', { expiresAt: past() });
    const keyed = await queue.enqueue('job', 'keyed', { expiresAt: past(), key: 'k' });
    const behind = await queue.enqueue('job', 'behind', { key: 'k', expiresAt: later() });
    const gone = await queue.enqueue('all', 'gone', { key: 'c', expiresAt: past() });
    const stays = await queue.enqueue('all', 'stays', { key: 'c' });
    const delayed = await queue.enqueue('job', 'delayed', { expiresAt: past(), delay: '1h' });
    const waits = await queue.enqueue('job', 'waits', { expiresAt: past(), after: [delayed.id], afterCancel: 'run' });
    const ran: unknown[] = [];
    const handler = ({ jobs }: { jobs: readonly { payload: unknown }[] }): void =>
      void ran.push(...jobs.map(({ payload }) => payload));
    await start(fixture, queue, { job: handler, all: handler }, { poll: '100ms' });
    for (const { id } of [plain, keyed, gone, delayed, waits]) {
      await eventually(async () => expect((await queue.get(id)).status).toBe('cancelled'));
      expect((await queue.get(id)).error).toMatch(/^it had not begun by 20/);
      expect((await fixture.job(id)).reasons.at(-1)).toBe('expired');
    }
    for (const { id } of [behind, stays]) {
      await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
    }
    expect(ran.map(String).toSorted()).toEqual(['behind', 'stays']);
  });

  test('a job that has begun is not ended by its expiresAt, nor are its retries', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: {} }, retry: AT_ONCE });
    let at = Infinity;
    await start(fixture, queue, {
      job: async ({ attempt }) => {
        await until('its time has passed', () => Date.now() > at + 200);
        if (attempt === 1) throw new Error('once');
      },
    });
    // Long enough to begin both on a busy machine: the worker is there already.
    const expiresAt = later(4000);
    at = expiresAt.getTime();
    const jobs = [{ key: 'k' }, {}].map((where) => ({ kind: 'job', payload: 1, expiresAt, ...where }) as const);
    const ids = await queue.enqueueMany(jobs);
    for (const id of ids) {
      await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
      expect((await queue.get(id)).attempt).toBe(2);
    }
  });

  // Invariant J8.
  test('many jobs of a paused queue expire, and one that has expired runs when it is retried', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: { attempts: 3 } } });
    await queue.register();
    await queue.pause();
    const some = (
      n: number,
      key?: string,
    ): { kind: 'job'; payload: number; expiresAt: Date; key: string | undefined }[] =>
      Array.from({ length: n }, (_, payload) => ({ kind: 'job', payload, expiresAt: past(), key }));
    const ids = await queue.enqueueMany([...some(5), ...some(5, 'k')]);
    const soon = await queue.enqueue('job', 1, { expiresAt: later(500) });
    const never = await queue.enqueue('job', 1, { expiresAt: past(), meta: { a: 1 } });
    await queue.update(never.id, { expiresAt: later() });
    const ran: unknown[] = [];
    await start(fixture, queue, { job: ({ payload }) => void ran.push(payload) }, { lease: '3s' });
    await until('all have expired', async () => (await queue.stats()).cancelled === ids.length + 1);
    expect((await queue.get(soon.id)).status).toBe('cancelled');
    expect(await queue.get(never.id)).toMatchObject({ status: 'new', meta: { a: 1 } });
    await queue.update(never.id, { expiresAt: past() });
    await eventually(async () => expect((await queue.get(never.id)).status).toBe('cancelled'));
    expect(ran).toEqual([]);
    const again = [never.id, ids[2] ?? '', ids[7] ?? ''];
    for (const id of again) {
      await queue.retry(id);
      expect(await queue.get(id)).toMatchObject({ status: 'new', expiresAt: null });
    }
    await queue.resume();
    for (const id of again) await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
    expect(ran).toHaveLength(3);
  });
}
