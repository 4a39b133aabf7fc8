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
