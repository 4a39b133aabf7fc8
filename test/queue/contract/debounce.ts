import { expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { AT_ONCE, type Fixture, start } from './fixture.ts';

export function debouncePromises(open: () => Promise<Fixture>): void {
  // Invariant J7.
  test.for(['latest', 'all'] as const)(
    "many saves of a key by many producers make few runs, coalesce: '%s'",
    async (coalesce) => {
      const fixture = await open();
      const queue = fixture.queue({
        kinds: { save: { debounce: { wait: '2s', max: '10m' }, coalesce } },
        retry: AT_ONCE,
      });
      const runs: { newest: unknown; n: number }[] = [];
      await start(fixture, queue, { save: ({ payload, jobs }) => void runs.push({ newest: payload, n: jobs.length }) });
      const last = { id: 0, payload: '' };
      await Promise.all(
        Array.from({ length: 10 }, async (_, producer) => {
          for (let n = 0; n < 6; n += 1) {
            const payload = `${producer} ${n}`;
            const { id } = await queue.enqueue('save', payload, { key: 'document' });
            if (Number(id) > last.id) Object.assign(last, { id: Number(id), payload });
          }
        }),
      );
      await queue.drain({ delayed: true });
      expect(runs.length).toBeLessThanOrEqual(2);
      expect(runs.at(-1)?.newest).toBe(last.payload);
      if (coalesce === 'all') expect(runs.reduce((sum, { n }) => sum + n, 0)).toBe(60);
    },
  );

  test('a key that gets no rest runs what it has after the longest wait', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { save: { debounce: { wait: '800ms', max: '1200ms' }, coalesce: 'all' } } });
    const runs: unknown[][] = [];
    await start(fixture, queue, { save: ({ jobs }) => void runs.push(jobs.map(({ payload }) => payload)) });
    let saves = 0;
    // Each save comes long before the key has had its rest, as long as this process is not held up for that long.
    await eventually(async () => {
      await queue.enqueue('save', (saves += 1), { key: 'k' });
      expect(runs.length).toBeGreaterThan(0);
    });
    expect(saves).toBeGreaterThan(1);
    await queue.drain({ delayed: true });
    expect(runs.flat()).toEqual(Array.from({ length: saves }, (_, n) => n + 1));
  });

  test('other keys and other kinds of the key do not wait with it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { save: { debounce: '1h' }, quick: { debounce: '100ms' }, other: {} } });
    const held = await queue.enqueue('save', 'held', { key: 'k' });
    await queue.enqueue('other', 'of the key', { key: 'k' });
    await queue.enqueue('save', 'held, too', { key: 'k' });
    await queue.enqueue('quick', 'of another kind', { key: 'k' });
    await queue.enqueue('quick', 'of another key', { key: 'other' });
    const seen: unknown[] = [];
    const note = ({ payload }: { payload: unknown }): void => void seen.push(payload);
    await start(fixture, queue, { save: note, quick: note, other: note });
    const all = ['of the key', 'of another kind', 'of another key'];
    await eventually(() => expect(new Set(seen)).toEqual(new Set(all)));
    await queue.enqueue('other', 'after that', { key: 'k' });
    await eventually(() => expect(seen).toHaveLength(4));
    expect((await queue.get(held.id)).status).toBe('new');
  });

  test('a unit that failed backs off as any other, and takes with it what came meanwhile', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { save: { debounce: '100ms', coalesce: 'all' } }, retry: AT_ONCE });
    const units: unknown[][] = [];
    await start(fixture, queue, {
      save: ({ jobs, attempt }) => {
        units.push(jobs.map(({ payload }) => payload));
        if (attempt === 1 && units.length === 1) throw new Error('again');
      },
    });
    await queue.enqueueMany([1, 2].map((payload) => ({ kind: 'save', payload, key: 'k' }) as const));
    await queue.drain({ delayed: true });
    expect(units).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  test('retry runs one now that waits for its key to get some rest, and the others wait on', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { save: { debounce: '1h', coalesce: 'all' } } });
    const seen: unknown[] = [];
    await start(fixture, queue, { save: ({ jobs }) => void seen.push(...jobs.map(({ payload }) => payload)) });
    const first = await queue.enqueue('save', 'first', { key: 'k' });
    const second = await queue.enqueue('save', 'second', { key: 'k' });
    expect(await queue.retry(second.id)).toBe('new');
    await eventually(() => expect(seen).toContain('second'));
    expect((await queue.get(first.id)).status).toBe('new');
    expect(await queue.retry(first.id)).toBe('new');
    await eventually(async () => expect((await queue.get(first.id)).status).toBe('complete'));
    expect(seen).toEqual(['second', 'first']);
  });

  test('it needs a key, and sets the time of its jobs', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { save: { debounce: '1h' } } });
    await expect(queue.enqueue('save', 1)).rejects.toThrow(/needs a key/);
    await expect(queue.enqueue('save', 1, { key: 'k', runAt: new Date() })).rejects.toThrow(
      /leave runAt and delay out/,
    );
    const many = queue.enqueueMany([{ kind: 'save', payload: 1, key: 'k', runAt: new Date() }]);
    await expect(many).rejects.toBeInstanceOf(InvalidInput);
  });
}
