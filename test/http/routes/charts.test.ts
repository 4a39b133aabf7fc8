import { beforeAll, describe, expect, test } from 'vitest';
import { type PostgresEngine, statement } from '../../../src/engine/postgres/index.ts';
import { BoundedEngine } from '../../../src/http/store/bounded-engine.ts';
import { createQueue, NoRetry } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

const api = (path: string): Promise<Answer> => visitor.ask(`/api/v1${path}`);

interface Line {
  readonly queue: string;
  readonly kind: string;
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  readonly runP50Ms: number | null;
  readonly runP99Ms: number | null;
  readonly waitP95Ms: number | null;
  readonly points: readonly { at: number; complete: number; errors: number; runP95Ms: number | null }[];
}

const linesOf = async (query: string): Promise<Line[]> =>
  (await api(`/charts?${query}`)).body.items as unknown as Line[];

describe('charts', () => {
  test('show each queue and kind with what it completed, failed and tried again, and how long that took', async () => {
    const shop = createQueue(house.engine, 'shop', {
      kinds: { pay: {}, pack: { attempts: 2 }, ship: {} },
      retry: { backoff: { kind: 'fixed', min: 10 } },
    });
    for (let n = 0; n < 12; n += 1) await shop.enqueue('pay', n);
    for (let n = 0; n < 3; n += 1) await shop.enqueue('pack', n);
    const worker = shop.work({ pay: () => {}, pack: () => Promise.reject(new Error('no box')), ship: () => {} });
    await shop.drain({ delayed: true });
    await worker.stop();
    const lines = await linesOf('range=1h&queue=shop');
    expect(lines.map(({ kind, complete, errors, retries }) => [kind, complete, errors, retries])).toEqual([
      ['pay', 12, 0, 0],
      ['pack', 0, 3, 3],
    ]);
    const [pay, pack] = lines;
    expect(pay?.runP99Ms).toBeGreaterThanOrEqual(pay?.runP50Ms ?? Infinity);
    expect(pay?.waitP95Ms).toBeGreaterThan(0);
    expect(pack?.runP50Ms).toBeNull();
    expect(pay?.points.reduce((sum, { complete }) => sum + complete, 0)).toBe(12);
    expect((await linesOf('range=7d&queue=shop&kind=pack')).map(({ kind }) => kind)).toEqual(['pack']);
    expect((await api('/charts?queue=none')).status).toBe(404);
    expect((await api('/charts?range=1y')).body.error?.field).toBe('range');
  });

  test('reach back as far as they are asked to, and no further', async () => {
    const old = createQueue(house.engine, 'old', { kinds: { one: {} } });
    await old.enqueue('one', {});
    const worker = old.work({ one: () => {} });
    await old.drain();
    await worker.stop();
    await age(house.engine, 'old', '5 hours');
    expect(await linesOf('range=1h&queue=old')).toEqual([]);
    const [line] = await linesOf('range=24h&queue=old');
    expect(line?.complete).toBe(1);
    const [point] = line?.points ?? [];
    expect(Date.now() - (point?.at ?? 0)).toBeGreaterThan(4.4 * 3_600_000);
  });

  test('scale what they read to what there was', async () => {
    const busy = createQueue(house.engine, 'busy', { kinds: { even: {}, odd: {} } });
    await busy.enqueueMany(
      Array.from({ length: 4000 }, (_, n) => ({ kind: n % 3 === 0 ? 'odd' : 'even', payload: n })),
    );
    const worker = busy.work({ even: () => {}, odd: () => {} }, { concurrency: 50 });
    await busy.drain();
    await worker.stop();
    const lines = await linesOf('range=24h&queue=busy');
    const total = lines.reduce((sum, { complete }) => sum + complete, 0);
    expect(total).toBeGreaterThan(3600);
    expect(total).toBeLessThan(4400);
    const share = (lines.find(({ kind }) => kind === 'odd')?.complete ?? 0) / total;
    // A third, told by four jobs of each claim, thirty at least: five times the standard deviation.
    expect(share).toBeGreaterThan(0);
    expect(share).toBeLessThan(1 / 3 + 5 * Math.sqrt(2 / 9 / 30));
  });

  test('show the ten busiest queues, and say how many they leave out', async () => {
    for (let n = 0; n < 12; n += 1) {
      const queue = createQueue(house.engine, `many-${n}`, { kinds: { one: {} } });
      await queue.enqueue('one', {});
      const worker = queue.work({ one: () => {} });
      await queue.drain();
      await worker.stop();
    }
    const { items, truncated } = (await api('/charts?range=24h')).body as unknown as {
      items: Line[];
      truncated: number;
    };
    expect(new Set(items.map(({ queue }) => queue)).size).toBe(10);
    expect(items[0]?.queue).toBe('busy');
    expect(truncated).toBeGreaterThanOrEqual(4);
  });
});

async function age(engine: PostgresEngine, queue: string, by: string): Promise<void> {
  for (const table of ['queue_receipt', 'queue_receipt_one']) {
    await engine.query(
      {
        name: 'test.age',
        text: `update pawl.${table} set settled_at = settled_at - $2::interval, claimed_at = claimed_at - $2::interval
        where queue = (select id from pawl.queue_definition where name = $1)`,
        prepare: false,
      },
      [queue, by],
    );
  }
}

describe('errors', () => {
  test('are put together that differ only in numbers, ids and what is quoted', async () => {
    const bank = createQueue(house.engine, 'bank', { kinds: { pay: {}, ask: {} } });
    const id = '0b2fd3c5-7a1e-4b1c-9d65-3a54a1b5f0aa';
    const said = [
      'account 17 is closed\nsecond line 1',
      'account 4711 is closed\nsecond line 2',
      'no answer from "north" after 3.5 s',
      'no answer from "south" after 12 s',
      'no answer from "east" after 1 s',
      `order ${id} is unknown`,
    ];
    for (const error of said) await bank.enqueue('pay', error);
    await bank.enqueue('ask', said[0]);
    const fail = (payload: unknown): never => {
      throw new NoRetry(String(payload));
    };
    const worker = bank.work({ pay: ({ payload }) => fail(payload), ask: ({ payload }) => fail(payload) });
    await bank.drain();
    await worker.stop();
    const { items, counted, isAll } = (await api('/errors?queue=bank')).body as unknown as {
      items: { kind: string; error: string; count: number; jobs: string[]; example: string }[];
      counted: number;
      isAll: boolean;
    };
    expect([counted, isAll]).toEqual([7, true]);
    const groups = items.map(({ kind, error, count }) => [kind, count, error.replace(/^NoRetry: /, '')]);
    expect(groups.slice(0, 2)).toEqual([
      ['pay', 3, 'no answer from … after … s'],
      ['pay', 2, 'account … is closed'],
    ]);
    expect(groups.slice(2)).toHaveLength(2);
    expect(groups.slice(2)).toEqual(
      expect.arrayContaining([
        ['pay', 1, 'order … is unknown'],
        ['ask', 1, 'account … is closed'],
      ]),
    );
    const [largest] = items;
    expect(largest?.jobs).toHaveLength(3);
    expect(largest?.example).toContain('"east"');
    expect((await api('/errors?queue=bank&kind=ask')).body.items).toHaveLength(1);
    expect((await api(`/errors?queue=bank&since=2100-01-01`)).body.items).toEqual([]);
    expect((await api('/errors?queue=none')).status).toBe(404);
  });
});

describe('what a bulk action would hit', () => {
  const preview = (body: object): Promise<Answer> => visitor.ask('/api/v1/bulk/preview', { method: 'POST', body });

  test('is counted without touching it, and is what it then does', async () => {
    const queue = createQueue(house.engine, 'stock', { kinds: { one: {}, two: {} } });
    await queue.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ kind: 'one' as const, payload: n })));
    const { id: other } = await queue.enqueue('two', {});
    await queue.cancel(other);
    const counted = await preview({ action: 'cancel', query: 'kind:one', queue: 'stock' });
    expect(counted.body).toMatchObject({ found: 30, fitting: 30, isAll: true });
    expect(counted.body['sample']).toHaveLength(5);
    expect((await preview({ action: 'retry', query: 'since:1h', queue: 'stock' })).body).toMatchObject({
      found: 31,
      fitting: 1,
      sample: [{ id: other }],
    });
    expect((await preview({ action: 'cancel', query: 'status:cancelled', queue: 'stock' })).body['fitting']).toBe(0);
    expect((await queue.stats()).ready).toBe(30);
    expect((await preview({ action: 'cancel', query: 'status:none' })).body.error?.field).toBe('query');
    expect((await preview({ action: 'cancel' })).body.error?.field).toBe('query');
    expect((await preview({ action: 'cancel', query: 'x', jobs: ['1'] })).body.error?.field).toBe('jobs');
  });

  test('may be some jobs by their ids: each has its outcome, the others are not touched', async () => {
    const queue = createQueue(house.engine, 'chosen', { kinds: { one: {} } });
    const ids = await queue.enqueueMany(Array.from({ length: 5 }, (_, n) => ({ kind: 'one' as const, payload: n })));
    const jobs = [ids[0] ?? '', ids[2] ?? '', '987654321', ids[2] ?? ''];
    expect((await preview({ action: 'cancel', jobs })).body).toMatchObject({ found: 2, fitting: 2, isAll: true });
    const begun = await visitor.ask('/api/v1/bulk', { method: 'POST', body: { action: 'cancel', jobs } });
    expect([begun.status, begun.body['found']]).toEqual([202, 3]);
    const id = String(begun.body['id']);
    const done = await until('it is done', async () => {
      const { body } = await api(`/bulk/${id}`);
      return body['status'] === 'done' ? body : undefined;
    });
    expect(done).toMatchObject({ done: 2, refused: 1 });
    expect((await queue.stats()).ready).toBe(3);
  });
});

test('no statement of the API is compiled', async () => {
  const bounded = new BoundedEngine(house.engine, 5000);
  const [row] = await bounded.query<{ jit: string }>(statement('test.jit', "select current_setting('jit') as jit"));
  expect(row?.jit).toBe('off');
});
