import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { faults } from '../../../src/base/fault.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { spawnChild } from '../../support/process.ts';
import { startProxy } from '../../support/proxy.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

const api = (path: string, of: Visitor = visitor): Promise<Answer> => of.ask(`/api/v1${path}`);
const post = (path: string, body: unknown = {}): Promise<Answer> =>
  visitor.ask(`/api/v1${path}`, { method: 'POST', body });

/** As many jobs that the word finds, some of them of one key. */
async function fill(word: string, many: number): Promise<string[]> {
  const queue = createQueue(house.engine, 'mail', { kinds: { send: {}, fail: { attempts: 1 } } });
  return queue.enqueueMany(
    Array.from({ length: many }, (_, n) => ({
      kind: 'send' as const,
      payload: { word },
      ...(n % 3 === 0 ? { key: `${word}-${n % 9}` } : {}),
    })),
  );
}

async function ended(id: string, of: Visitor = visitor): Promise<Answer['body']> {
  return until(`bulk action ${id} is ended`, async () => {
    const { body } = await api(`/bulk/${id}`, of);
    return body['endedAt'] === null ? undefined : body;
  });
}

async function resultsOf(id: string): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = [];
  let after: string | undefined = '';
  while (after !== undefined) {
    const { body }: Answer = await api(`/bulk/${id}/results?limit=40${after === '' ? '' : `&after=${after}`}`);
    all.push(...(body.items ?? []));
    after = typeof body['after'] === 'string' ? body['after'] : undefined;
  }
  return all;
}

/** How often each job of a word was moved so. */
async function moves(word: string, reason: string): Promise<number[]> {
  const sql = `select count(t.id)::int as n from pawl.queue_job j left join pawl.queue_transition t on t.id = j.id and t.reason = $2
    where j.payload::jsonb ->> 'word' = $1 group by j.id`;
  return (await house.engine.query<{ n: number }>(statement('test.moves', sql), [word, reason])).map(({ n }) => n);
}

/** As if its lease had run out. */
const expire = (id: string): Promise<unknown> =>
  house.engine.query(statement('test.expire', `update pawl.http_bulk set held_until = now() where id = $1::bigint`), [
    id,
  ]);

test('a bulk action works through what a search finds, and says what became of each', async () => {
  const ids = await fill('plainword', 90);
  const started = await post('/bulk', { action: 'cancel', query: 'plainword', reason: 'not needed' });
  expect(started.status).toBe(202);
  const id = String(started.body['id']);
  expect(await ended(id)).toMatchObject({ status: 'done', found: 90, done: 90, refused: 0, collected: true });
  const results = await resultsOf(id);
  expect(new Set(results.map(({ job }) => job))).toEqual(new Set(ids));
  expect(results).toHaveLength(ids.length);
  expect(results.every(({ outcome, detail }) => outcome === 'done' && detail === 'cancelled')).toBe(true);
  const twice = String((await post('/bulk', { action: 'cancel', query: 'plainword status:complete' })).body['id']);
  expect(await ended(twice)).toMatchObject({ status: 'done', found: 0 });
  expect((await post('/bulk', { action: 'cancel', query: 'status:nonsense' })).status).toBe(400);
  expect((await api('/bulk?limit=1')).body.items).toMatchObject([{ id: twice }]);
});

test('what cannot be done to one job does not keep the others from it', async () => {
  const [first = '', second = ''] = await fill('refusedword', 2);
  await post(`/jobs/${first}/cancel`);
  const queue = createQueue(house.engine, 'mail', { kinds: { send: {}, fail: { attempts: 1 } } });
  const worker = queue.work({ send: () => {}, fail: () => {} });
  await queue.waitFor(second);
  await worker.stop();
  const id = String((await post('/bulk', { action: 'retry', query: 'refusedword' })).body['id']);
  expect(await ended(id)).toMatchObject({ status: 'done', done: 1, refused: 1 });
  const { body } = await api(`/bulk/${id}/results?outcome=refused`);
  expect(body.items).toMatchObject([
    { job: second, detail: expect.stringContaining('is complete; only a job that waits') },
  ]);
});

describe('when the process that does it is killed', () => {
  test.each(['http.bulk_collected:kill', 'http.bulk_changed:kill#53'])(
    '%s: another one goes on, and no job is changed twice or left out',
    async (fault) => {
      const many = 300;
      await house.engine.query(statement('test.forget', 'truncate pawl.http_bulk cascade'));
      const word = 'bulkword';
      await fill(word, many);
      const child = spawnChild('http/routes/bulk.child.ts', [house.url], { PAWL_FAULT: fault });
      expect((await child.exited).signal).toBe('SIGKILL');
      const find = statement('test.bulk', 'select id::text from pawl.http_bulk');
      const [{ id } = expect.fail('no bulk')] = await house.engine.query<{ id: string }>(find);
      const left = (await api(`/bulk/${id}`)).body;
      expect(left).toMatchObject({ status: 'running', endedAt: null });
      await expire(id);
      const done = await ended(id);
      const found = Number(done['found']);
      expect(done).toMatchObject({ status: 'done', refused: 0, done: found });
      expect(await resultsOf(id)).toHaveLength(found);
      const counts = await moves(word, 'cancel');
      expect(counts.every((n) => n === 1)).toBe(true);
      expect(counts).toHaveLength(found);
    },
    60_000,
  );
});

test('a process that ends in order leaves its actions to another at once', async () => {
  await fill('handedword', 200);
  const first = house.open();
  const disarm = faults.arm('http.bulk_changed', () => void first.handler.stop(), { occurrence: 10 });
  onTestFinished(disarm);
  await visitor.handler.stop();
  visitor = house.open();
  const { body } = await first.ask('/api/v1/bulk', { method: 'POST', body: { action: 'cancel', query: 'handedword' } });
  const id = String(body['id']);
  expect(await ended(id)).toMatchObject({ status: 'done', done: 200, refused: 0 });
  const counts = await moves('handedword', 'cancel');
  expect(counts.every((n) => n === 1)).toBe(true);
});

test('it is stopped, whether somebody has it in hand or not', async () => {
  await fill('stopword', 400);
  let id = '';
  const disarm = faults.arm('http.bulk_changed', () => visitor.ask(`/api/v1/bulk/${id}/stop`, { method: 'POST' }), {
    occurrence: 5,
  });
  onTestFinished(disarm);
  id = String((await post('/bulk', { action: 'cancel', query: 'stopword' })).body['id']);
  const stopped = await ended(id);
  expect(stopped).toMatchObject({ status: 'stopped', found: 400 });
  expect(Number(stopped['done'])).toBeLessThan(100);
  const again = await post(`/bulk/${id}/stop`);
  expect([again.status, again.body.error?.code]).toEqual([409, 'conflict']);

  const looking = house.open({ readOnly: true });
  await visitor.handler.stop();
  const asked = house.open();
  const { body } = await asked.ask('/api/v1/bulk', { method: 'POST', body: { action: 'cancel', query: 'stopword' } });
  await asked.handler.stop();
  visitor = house.open();
  // Who only looks takes up nothing.
  const seen = await looking.ask(`/api/v1/bulk/${String(body['id'])}`);
  expect(seen.status).toBe(200);
  const last = await post(`/bulk/${String(body['id'])}/stop`);
  expect([200, 409]).toContain(last.status);
});

test('a handler stops within 5 s though the database answers no more', async () => {
  const proxy = await startProxy(house.url);
  const engine = postgres(proxy.url, { max: 3, logger: recordLog(), stopTimeoutMs: 500 });
  onTestFinished(async () => {
    await engine.stop();
    await proxy.stop();
  });
  await engine.describe(); // the connection is open
  proxy.silence();
  const { sent } = proxy;
  const handler = createHttp(engine);
  await handler(new Request('http://localhost/healthz'));
  await until('it asks for open actions', () => proxy.sent > sent);
  const since = awakeMs();
  await handler.stop();
  // 3 s more for a busy machine.
  expect(awakeMs() - since).toBeLessThan(5_000 + 3_000);
});
