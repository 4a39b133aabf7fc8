import { beforeAll, expect, test } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

interface ClaimAnswer {
  readonly items: readonly {
    readonly handle: string;
    readonly kind: string;
    readonly attempt: number;
    readonly token: string;
    readonly jobs: readonly { readonly id: string; readonly payload: unknown }[];
  }[];
}

let house: House;
let visitor: Visitor;
let queue: Queue<{ send: object }>;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  queue = createQueue(house.engine, 'pulled', { kinds: { send: {} }, retry: { attempts: 2 } });
  await queue.register();
  return () => house.stop();
});

const post = (path: string, body: object): Promise<Answer> => visitor.ask(`/api/v1${path}`, { method: 'POST', body });
const claim = async (body: object = {}): Promise<ClaimAnswer['items']> =>
  ((await post('/queues/pulled/claim', body)).body as unknown as ClaimAnswer).items;

test('a program in another language claims jobs, completes, fails and releases them', async () => {
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'send', payload })));
  const [first, second, third] = await claim({ limit: 3, lease: '1m', client: 'a script' });
  expect(first).toMatchObject({
    kind: 'send',
    attempt: 1,
    token: expect.stringMatching(/^\d+$/),
    jobs: [{ payload: 1 }],
  });
  const { body } = await post('/claims/extend', { handle: second?.handle, lease: '2m' });
  expect(body).toMatchObject({ isCancelled: false, reason: null, expiresAt: expect.any(String) });
  expect((await post('/claims/complete', { handle: first?.handle, result: { rows: 3 } })).body).toEqual({
    to: 'complete',
  });
  expect((await post('/claims/release', { handle: second?.handle })).body).toEqual({ to: 'release' });
  const failed = { handle: third?.handle, error: 'no paper', retryIn: '1h' };
  expect((await post('/claims/fail', failed)).body).toEqual({ to: 'retry' });
  expect(await queue.get(ids[0] ?? '')).toMatchObject({ status: 'complete', result: { rows: 3 } });
  const [again] = await claim();
  expect(again?.jobs).toMatchObject([{ id: ids[1], payload: 2 }]);
  expect((await post('/claims/fail', { handle: again?.handle, error: 'never', final: true })).body).toEqual({
    to: 'error',
  });
  expect(await queue.get(ids[1] ?? '')).toMatchObject({ status: 'error', error: 'never' });
  const late = await post('/claims/complete', { handle: first?.handle });
  expect([late.status, late.body.error?.code]).toEqual([409, 'lease_lost']);
});

test('a lease is renewed for as long as it was claimed for', async () => {
  const { id } = await queue.enqueue('send', 1);
  const [unit] = await claim({ lease: '1h' });
  const { body } = await post('/claims/extend', { handle: unit?.handle });
  expect(Date.parse(String(body['expiresAt'])) - Date.now()).toBeGreaterThan(3_500_000);
  await post('/claims/release', { handle: unit?.handle });
  await queue.erase(id);
});

test('a worker gets what is hidden from others, and the audit says once an hour that it claims', async () => {
  const careful = house.open({ redact: { keys: ['secret'] } });
  const other = createQueue(house.engine, 'audited', { kinds: { send: {} } });
  await other.enqueueMany([1, 2].map((n) => ({ kind: 'send', payload: { n, secret: 'sentinel' } })));
  const take = async (): Promise<Answer> =>
    careful.ask('/api/v1/queues/audited/claim', { method: 'POST', body: { client: 'a script' } });
  for (const n of [1, 2]) {
    const { body } = await take();
    expect(body.items).toMatchObject([{ jobs: [{ payload: { n, secret: 'sentinel' } }] }]);
  }
  expect((await careful.ask('/api/v1/queues/none/claim', { method: 'POST', body: {} })).status).toBe(404);
  const { body: audit } = await careful.ask('/api/v1/audit?action=job:work&limit=200');
  expect(audit.items?.filter(({ target }) => target === 'queue audited')).toMatchObject([
    { outcome: 'done', status: 200, details: { limit: 1, client: 'a script' } },
  ]);
  expect(audit.items?.filter(({ target }) => target === 'queue none')).toMatchObject([{ outcome: 'refused' }]);
});

test('no claim is answered that cannot be written down', async () => {
  const { id } = await queue.enqueue('send', 1);
  const stranger = house.open();
  await house.engine.query(statement('test.rename', 'alter table pawl.http_audit rename to http_audit_gone'));
  const { status } = await stranger.ask('/api/v1/queues/pulled/claim', { method: 'POST', body: { lease: '1s' } });
  await house.engine.query(statement('test.rename_back', 'alter table pawl.http_audit_gone rename to http_audit'));
  expect(status).toBe(503);
  await house.engine.query(
    statement('test.expire_all', `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 ms'`),
  );
  const [again] = await claim();
  expect(again?.jobs).toMatchObject([{ id }]);
  await post('/claims/complete', { handle: again?.handle });
});

test('a job that fails waits as it was enqueued to, unless its program says how long', async () => {
  const backoff = { kind: 'fixed', min: 3_600_000, max: 3_600_000, jitter: 0 };
  const added = await post('/queues/pulled/jobs', { kind: 'send', backoff });
  const id = String(added.body['id']);
  const [unit] = await claim();
  expect(unit?.jobs).toMatchObject([{ id }]);
  expect((await post('/claims/fail', { handle: unit?.handle, error: 'no paper' })).body).toEqual({ to: 'retry' });
  const { runAt } = await queue.get(id);
  expect(Number(runAt) - Date.now()).toBeGreaterThan(3_500_000);
  await queue.erase(id);
});

test('what a program claimed that died is given out again, and what it says later is refused', async () => {
  const { id } = await queue.enqueue('send', 'once more');
  const [dead] = await claim({ lease: '1s' });
  await house.engine.query(
    statement(
      'test.expire',
      `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 ms' where host <> 'none'`,
    ),
  );
  const [alive] = await claim();
  expect(alive).toMatchObject({ attempt: 2, jobs: [{ id }] });
  for (const path of ['complete', 'release', 'extend']) {
    const { status, body } = await post(`/claims/${path}`, { handle: dead?.handle });
    expect([path, status, body.error?.code]).toEqual([path, 409, 'lease_lost']);
  }
  expect((await post('/claims/complete', { handle: alive?.handle })).status).toBe(200);
  expect((await post('/queues/none/claim', {})).status).toBe(404);
  expect(await claim()).toEqual([]);
});
