import { expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import type { Unit } from '../../../src/queue/index.ts';
import { eventually } from '../../support/eventually.ts';
import { type AnyQueue, AT_ONCE, type Fixture, start } from './fixture.ts';

const KINDS = { job: AT_ONCE } as const;

interface Node {
  readonly name: string;
  readonly kind: 'job';
  readonly payload: number;
  readonly after: readonly string[];
}

async function ended(queue: AnyQueue<typeof KINDS>, id: string | undefined): Promise<unknown> {
  const { result } = await eventually(async () => {
    const job = await queue.get(id ?? '');
    // One that failed, or whose node before it did, says why.
    expect(job).toMatchObject({ status: 'complete' });
    return job;
  });
  return result;
}

export function flowPromises(open: () => Promise<Fixture>): void {
  test('a graph runs in its order, and each node reads the results of those before it', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS, shards: 2 });
    const ids = await queue.flow([
      { name: 'total', kind: 'job', payload: 'total', after: ['left', 'right'] },
      { name: 'left', kind: 'job', payload: 'left', after: ['start'], priority: 3 },
      { name: 'right', kind: 'job', payload: 'right', after: ['start'], key: 'k', meta: { side: 'right' } },
      { name: 'start', kind: 'job', payload: 'start' },
    ]);
    expect(Object.keys(ids)).toHaveLength(4);
    await start(fixture, queue, {
      job: async (unit: Unit) => [unit.payload, ...(await unit.parents()).map(({ result }) => result)],
    });
    expect(await ended(queue, ids['total'])).toEqual(['total', ['left', ['start']], ['right', ['start']]]);
    expect(await queue.get(ids['right'] ?? '')).toMatchObject({ key: 'k', meta: { side: 'right' } });
  });

  test('a flow comes after jobs that exist, and its nodes of one key run in their order', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const first = await queue.enqueue('job', 'first', { key: 'k' });
    const ids = await queue.flow(
      ['a', 'b', 'c'].map((name) => ({ name, kind: 'job', payload: name, after: [first.id], key: 'k' }) as const),
    );
    const last = await queue.enqueue('job', 'last', { after: [ids['c'] ?? ''] });
    const order: unknown[] = [];
    await start(fixture, queue, { job: ({ payload }) => void order.push(payload) });
    await ended(queue, last.id);
    expect(order).toEqual(['first', 'a', 'b', 'c', 'last']);
  });

  test('when one node fails, those behind it end as they say, and the others go on', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    const ids = await queue.flow([
      { name: 'fails', kind: 'job', payload: 'fails' },
      { name: 'behind', kind: 'job', payload: 'behind', after: ['fails'] },
      { name: 'anyway', kind: 'job', payload: 'anyway', after: ['behind'], afterError: 'run' },
    ]);
    await start(fixture, queue, {
      job: ({ payload }) => {
        if (payload === 'fails') throw new Error('it fails');
        return payload;
      },
    });
    expect(await ended(queue, ids['anyway'])).toBe('anyway');
    expect((await queue.get(ids['behind'] ?? '')).status).toBe('error');
  });

  test('what is not good is refused by its name, and nothing is written', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: KINDS });
    await queue.register();
    const node = (name: string, after: readonly string[]): Node => ({ name, kind: 'job', payload: 1, after });
    await expect(queue.flow([node('a', ['b']), node('b', ['a'])])).rejects.toThrow(/cycle/);
    await expect(queue.flow([node('a', []), node('a', [])])).rejects.toBeInstanceOf(InvalidInput);
    await expect(queue.flow([node('a', ['987654321'])])).rejects.toBeInstanceOf(NotFound);
    expect(await queue.flow([])).toEqual({});
    expect(await queue.stats()).toMatchObject({ new: 0 });
  });
}
