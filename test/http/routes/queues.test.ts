import { beforeAll, describe, expect, test } from 'vitest';
import { type PostgresEngine, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

const QUEUES = 260;

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  for (let n = 0; n < QUEUES; n += 1) await queueOf(n).register();
  visitor = house.open({ live: '250ms' });
  return () => house.stop();
});

const queueOf = (n: number): ReturnType<typeof createQueue<{ one: object }>> =>
  createQueue(house.engine, `q${String(n).padStart(3, '0')}`, { kinds: { one: { attempts: 1 } } });
const api = (path: string): Promise<Answer> => visitor.ask(`/api/v1${path}`);

describe('with more queues than are shown one by one', () => {
  beforeAll(async () => {
    const last = createQueue(house.engine, 'zz-payments', { kinds: { charge: { attempts: 1 } } });
    for (let n = 0; n < 3; n += 1) await last.enqueue('charge', { n });
    const worker = last.work({
      charge: () => Promise.reject(new Error('card refused')),
    });
    await last.drain();
    await worker.stop();
    await last.enqueue('charge', {});
    await until(
      'the picture shows it',
      async () => ((await api('/live')).body['totals'] as { error: number }).error >= 4,
    );
  });

  test('the picture says how many it leaves out, and adds up all of them', async () => {
    const { queues, totals, truncated } = (await api('/live')).body as Record<string, never> & { queues: object[] };
    expect(queues).toHaveLength(200);
    expect(queues).not.toContainEqual(expect.objectContaining({ name: 'zz-payments' }));
    // Those of the house, too.
    expect(truncated).toEqual({ queues: QUEUES + 3 - 200, actors: 0 });
    expect(totals).toMatchObject({
      queues: QUEUES + 3,
      error: 4,
      ready: 2,
      unattended: 2,
      oldestReadyMs: expect.any(Number),
    });
  });

  test('errors and queues without a worker are noticed in all queues', async () => {
    const texts = (await api('/attention')).body.items?.map(({ text }) => text);
    expect(texts).toContain('3 jobs of queue "zz-payments" ended in error');
    expect(texts).toContain('jobs of queue "zz-payments" wait, but it has no running worker');
    const { text } = await visitor.ask('/metrics');
    expect(text).toContain('pawl_queue_jobs{queue="zz-payments",place="error"} 3\n');
    expect(text).toMatch(/^pawl_queue_oldest_ready_seconds\{queue="zz-payments"\} /m);
    expect(text).toContain('pawl_queue_workers{queue="zz-payments"} 0\n');
  });

  test('of one trouble that many have ten are named and the rest is one line', async () => {
    for (let n = 0; n < 25; n += 1) await queueOf(n).pause();
    await until(
      'the picture shows it',
      async () => ((await api('/live')).body['totals'] as { paused: number }).paused === 25,
    );
    const own = house.open();
    const paused = (await own.ask('/api/v1/attention')).body.items?.filter(({ text }) =>
      String(text).includes('paused'),
    );
    expect(paused).toHaveLength(11);
    expect(paused?.at(-1)).toMatchObject({ text: '15 more queues are paused', look: 'queues' });
  });

  test('queues are searched, sorted and given in pages by the server', async () => {
    expect((await api('/queues?q=ZZ-pay')).body).toMatchObject({
      items: [{ name: 'zz-payments', kinds: ['charge'], stats: { error: 3, ready: 1, paused: false } }],
      after: null,
      total: 1,
    });
    const worst = (await api('/queues?sort=error&limit=2')).body;
    expect(worst.items?.map(({ name }) => name)).toEqual(['zz-payments', 'mail']);
    const names: unknown[] = [];
    for (let after = ''; ; ) {
      const { body } = await api(`/queues?sort=ready&order=asc&limit=100${after}`);
      names.push(...(body.items ?? []).map(({ name }) => name));
      if (body['after'] === null) break;
      after = `&after=${body['after'] as string}`;
    }
    expect(names).toHaveLength(QUEUES + 3);
    expect(new Set(names).size).toBe(QUEUES + 3);
    expect(new Set(names.slice(-2))).toEqual(new Set(['mail', 'zz-payments']));
    expect((await api('/queues?sort=nothing')).body.error?.field).toBe('sort');
    expect((await api('/queues?after=WzEsIngiXQ')).body.error?.field).toBe('after');
  });
});

test('the figures of an idle queue are read without its history', async () => {
  const queue = queueOf(7);
  await queue.resume();
  const engine: PostgresEngine = house.engine;
  await engine.query(
    statement(
      'test.history',
      `insert into pawl.queue_receipt_one (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, id)
      select -n, 1, now() - interval '1 hour', now() - interval '1 hour', gen_random_uuid(), 0, (select id from pawl.queue_definition where name = 'q007'), 1, -n
      from generate_series(1, 20000) n`,
    ),
  );
  const read = engine.transaction(async (tx) => {
    await tx.query(statement('test.stats', "select pawl.queue_stats('q007', 10000)"));
    const [row] = await tx.query<{ n: number }>(
      statement(
        'test.read',
        "select sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::int as n from pg_index i where i.indrelid = 'pawl.queue_receipt_one'::regclass",
      ),
    );
    return row?.n;
  });
  expect(await read).toBeLessThan(10);
});

test('a part of a queue is paused and resumed by what names it, and the diagnosis says so', async () => {
  const turn = (verb: string, body: object): Promise<Answer> =>
    visitor.ask(`/api/v1/queues/q133/${verb}`, { method: 'POST', body });
  expect(await turn('pause', { kind: 'one', tag: 'acme' })).toMatchObject({
    status: 200,
    body: { done: 'kind "one", tag "acme" of queue "q133" is paused' },
  });
  const part = { kind: 'one', key: null, tag: 'acme', since: expect.any(String) };
  expect((await api('/queues/q133')).body).toMatchObject({ pausedAt: null, stats: { pausedParts: [part] } });
  expect((await api('/queues?q=q133')).body).toMatchObject({ items: [{ pausedParts: [part] }] });
  expect((await api('/queues/q133/diagnosis')).body['findings']).toContainEqual(
    expect.objectContaining({ code: 'part_paused', text: 'this part is paused: kind "one", tag "acme"' }),
  );
  expect((await turn('pause', { kind: 'two' })).status).toBe(404);
  await turn('resume', { kind: 'one', tag: 'acme' });
  expect((await api('/queues/q133')).body).toMatchObject({ stats: { pausedParts: [] } });
});
