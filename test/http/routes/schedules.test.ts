import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

const kinds = { daily: {}, keyed: { key: 'required' } } as const;

let house: House;
let visitor: Visitor;
let nth = 0;

beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

async function newQueue(): Promise<Queue<typeof kinds>> {
  nth += 1;
  const queue = createQueue(house.engine, `reports-${nth}`, { kinds });
  await queue.register();
  return queue;
}

async function limitedQueue(): Promise<Queue<typeof kinds>> {
  nth += 1;
  const queue = createQueue(house.engine, `reports-${nth}`, { kinds, concurrency: { perGroup: 2 } });
  await queue.register();
  return queue;
}

const put = (path: string, body: unknown, by = visitor): Promise<Answer> =>
  by.ask(`/api/v1/schedules/${path}`, { method: 'PUT', body });
const gone = (path: string): Promise<Answer> => visitor.ask(`/api/v1/schedules/${path}`, { method: 'DELETE' });

test('a schedule is set as a whole, again with the same effect, and removed', async () => {
  const queue = await newQueue();
  const path = `${queue.name}/nightly`;
  const body = {
    cron: '0 3 * * *',
    timezone: 'Europe/Berlin',
    kind: 'daily',
    payload: { of: 'orders' },
    key: 'k',
    priority: 7,
    missed: { all: '1d' },
    overlap: 'skip',
    jitter: '5m',
  };
  const made = await put(path, body);
  const shown = {
    queue: queue.name,
    name: 'nightly',
    cron: '0 3 * * *',
    timezone: 'Europe/Berlin',
    kind: 'daily',
    key: 'k',
    priority: 7,
    missed: 'all',
    missedForMs: 86_400_000,
    overlap: 'skip',
    jitterMs: 300_000,
    ofSet: false,
  };
  expect(made).toMatchObject({ status: 200, body: shown });
  expect(made.body['next']).toHaveLength(10);
  const [before] = await queue.schedules();
  expect(before).toMatchObject({ ...shown, payload: { of: 'orders' } });
  await visitor.ask(`/api/v1/schedules/${path}/pause`, { method: 'POST', body: {} });
  expect((await put(path, body)).body).toMatchObject({ pausedAt: expect.any(String) });
  await visitor.ask(`/api/v1/schedules/${path}/resume`, { method: 'POST', body: {} });
  expect((await put(path, body)).body).toMatchObject({ nextAt: before?.nextAt?.toISOString() });
  expect((await put(path, { cron: '0 4 * * *', kind: 'daily' })).body).toMatchObject({
    timezone: 'UTC',
    key: null,
    priority: 0,
    missed: 'last',
    missedForMs: null,
    overlap: 'queue',
    jitterMs: null,
  });
  expect((await gone(path)).status).toBe(200);
  expect(await queue.schedules()).toEqual([]);
  expect((await gone(path)).status).toBe(404);
});

test('what cannot be set is refused by its field, and changes nothing', async () => {
  const queue = await newQueue();
  const good = { cron: '0 3 * * *', kind: 'daily' };
  await queue.schedule('nightly', { cron: '0 3 * * *', kind: 'daily' });
  const before = await queue.schedules();
  const bad: readonly [object, number, string, string | undefined][] = [
    [{ kind: 'daily' }, 400, 'invalid_input', 'cron'],
    [{ ...good, cron: '0 3 * *' }, 400, 'invalid_input', 'cron'],
    [{ ...good, cron: '0 3 30 2 *' }, 400, 'invalid_input', 'cron'],
    [{ ...good, timezone: 'Mars/Olympus' }, 400, 'invalid_input', 'timezone'],
    [{ ...good, missed: 'some' }, 400, 'invalid_input', 'missed'],
    [{ ...good, missed: { all: '1s' } }, 400, 'invalid_input', 'missed.all'],
    [{ ...good, overlap: 'no' }, 400, 'invalid_input', 'overlap'],
    [{ ...good, jitter: '2d' }, 400, 'invalid_input', 'jitter'],
    [{ ...good, every: '1d' }, 400, 'invalid_input', 'every'],
    [{ ...good, kind: 'keyed' }, 400, 'invalid_input', 'key'],
    [{ ...good, kind: 'dayly' }, 404, 'not_found', undefined],
  ];
  for (const [body, status, code, field] of bad) {
    const answer = await put(`${queue.name}/nightly`, body);
    expect([answer.status, answer.body.error?.code, answer.body.error?.field], answer.text).toEqual([
      status,
      code,
      field,
    ]);
  }
  expect((await put('nowhere/nightly', good)).status).toBe(404);
  expect((await put(`${queue.name}/keyed`, { ...good, kind: 'keyed', key: 'k' })).status).toBe(200);
  expect((await queue.schedules()).filter(({ name }) => name === 'nightly')).toEqual(before);
});

test('a schedule of a set that a program declares is refused, and stays; next to it others are set', async () => {
  const queue = await newQueue();
  await queue.schedules({ nightly: { cron: '0 3 * * *', kind: 'daily' } });
  const body = { cron: '0 4 * * *', kind: 'daily' };
  const answer = await put(`${queue.name}/nightly`, body);
  expect([answer.status, answer.body.error?.code]).toEqual([409, 'conflict']);
  expect(answer.text).toContain('is of the set that a program declares by schedules()');
  expect((await put(`${queue.name}/mine`, body)).status).toBe(200);
  await queue.schedules({ nightly: { cron: '0 3 * * *', kind: 'daily' } });
  expect(await queue.schedules()).toMatchObject([
    { name: 'mine', cron: '0 4 * * *', ofSet: false },
    { name: 'nightly', cron: '0 3 * * *', ofSet: true },
  ]);
});

test('it takes the right to, and the audit says who did it', async () => {
  const queue = await newQueue();
  const body = { cron: '0 4 * * *', kind: 'daily' };
  const operator = house.open({
    auth: { authorize: () => ({ name: 'bob', permissions: ['view', 'schedule:pause'] }) },
  });
  onTestFinished(() => operator.handler.stop());
  const refused = await operator.ask(`/api/v1/schedules/${queue.name}/nightly`, {
    method: 'PUT',
    body,
    headers: { 'sec-fetch-site': 'same-origin' },
  });
  expect([refused.status, refused.body.error?.code]).toEqual([403, 'forbidden']);
  expect(await queue.schedules()).toEqual([]);
  await put(`${queue.name}/nightly`, body);
  const audit = await visitor.ask('/api/v1/audit');
  expect(audit.body.items).toContainEqual(
    expect.objectContaining({ target: `schedule nightly of queue ${queue.name}` }),
  );
});

test('the jobs of a schedule have its group, which is refused where the queue has no limit', async () => {
  const [queue, plain] = [await limitedQueue(), await newQueue()];
  const body = { cron: '0 3 * * *', kind: 'daily', group: 'acme' };
  const made = await put(`${queue.name}/nightly`, body);
  expect(made).toMatchObject({ status: 200, body: { group: 'acme' } });
  const { body: ran } = await visitor.ask(`/api/v1/schedules/${queue.name}/nightly/run`, { method: 'POST', body: {} });
  expect(await queue.get(String(ran['id']))).toMatchObject({ group: 'acme', schedule: { name: 'nightly' } });
  expect((await put(`${queue.name}/nightly`, { ...body, group: undefined })).body).toMatchObject({ group: null });
  const refused = await put(`${plain.name}/nightly`, body);
  expect(refused.status).toBe(400);
  expect(refused.body['error']).toMatchObject({ code: 'invalid_input', field: 'group' });
  expect(await plain.schedules()).toEqual([]);
});
