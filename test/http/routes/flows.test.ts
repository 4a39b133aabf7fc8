import { beforeAll, expect, test } from 'vitest';
import { createQueue, createTopic, NoRetry, type Queue } from '../../../src/queue/index.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

const kinds = { job: {}, bill: { attempts: 1, onError: 'unbilled' }, unbilled: {} } as const;
type Any = Queue<typeof kinds>;

let house: House;
let visitor: Visitor;
let nth = 0;

beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

async function newQueue(): Promise<Any> {
  nth += 1;
  const queue = createQueue(house.engine, `front ${nth}`, { kinds });
  await queue.register();
  return queue;
}

async function run(queue: Any): Promise<void> {
  const fail = (): void => {
    throw new Error('no money');
  };
  const worker = queue.work({ job: () => 'done', bill: fail, unbilled: () => undefined });
  await queue.drain();
  await worker.stop();
}

const post = (path: string, body: unknown = {}, key?: string): Promise<Answer> =>
  visitor.ask(`/api/v1${path}`, { method: 'POST', body, ...(key && { headers: { 'idempotency-key': key } }) });
const get = (path: string): Promise<Answer> => visitor.ask(`/api/v1${path}`);
const gone = (path: string): Promise<Answer> => visitor.ask(`/api/v1${path}`, { method: 'DELETE' });
const refusal = ({ status, body }: Answer): unknown[] => [status, body.error?.code, body.error?.field];

test('a flow is added as a whole, in any order of its nodes, once for an Idempotency-Key; payloads to the letter', async () => {
  const queue = await newQueue();
  const node = { queue: queue.name, kind: 'job' };
  const flow = `[${JSON.stringify({ ...node, name: 'last', after: ['left', 'right'], key: 'k' })},
    ${JSON.stringify({ ...node, name: 'left', after: ['first'] })}, ${JSON.stringify({ ...node, name: 'right', after: ['first'] })},
    {"queue": "${queue.name}", "kind": "job", "name": "first", "payload": {"order": 12345678901234567890123}, "tags": ["blue"]}]`;
  const [one, two] = [await post('/flows', flow, 'flow 1'.replace(' ', '-')), await post('/flows', flow, 'flow-1')];
  expect([one.status, one.body['duplicate'], two.body['duplicate']]).toEqual([201, false, true]);
  expect(two.body['ids']).toEqual(one.body['ids']);
  const ids = one.body['ids'] as Record<string, string>;
  expect((await get(`/jobs/${ids['first']}/payload`)).text).toContain('12345678901234567890123');
  expect((await queue.stats()).delayed).toBe(3);
  await run(queue);
  expect(await queue.get(ids['last'] ?? '')).toMatchObject({ status: 'complete', key: 'k' });
});

test('a flow with a cycle, an unknown parent, two nodes of a name or a bad node adds nothing', async () => {
  const queue = await newQueue();
  const node = (name: string, after: string[] = [], more: object = {}): object => ({
    queue: queue.name,
    kind: 'job',
    name,
    after,
    ...more,
  });
  const bad: readonly object[][] = [
    [node('a', ['b']), node('b', ['a'])],
    [node('a', ['c']), node('b')],
    [node('a'), node('a')],
    [node('a'), node('b', ['a'], { kind: 'jbo' })],
    [node('a'), node('b', ['a'], { attempts: 0 })],
    [node('7')],
  ];
  for (const nodes of bad) {
    const body = nodes.map((one) => {
      const { after, ...rest } = one as { after: string[] };
      return after.length === 0 ? rest : one;
    });
    const answer = await post('/flows', body);
    expect([answer.status, answer.body.error?.code, body]).toEqual([400, 'invalid_input', body]);
  }
  expect((await post('/flows', [{ queue: 'none', kind: 'job', name: 'a' }])).status).toBe(404);
  expect((await queue.stats()).new).toBe(0);
});

test('a batch is made, filled, sealed and done, and its callback is enqueued once', async () => {
  const queue = await newQueue();
  const asked = { queue: queue.name, onDone: { kind: 'job', payload: { n: 12 } } };
  const made = await post('/batches', asked, `batch-${queue.name}`.replace(' ', '-'));
  expect((await post('/batches', asked, `batch-${queue.name}`.replace(' ', '-'))).body).toEqual({
    id: made.body['id'],
    duplicate: true,
  });
  const id = String(made.body['id']);
  const many = [{ kind: 'job' }, { kind: 'job', key: 'k' }];
  expect((await post(`/batches/${id}/jobs`, many, 'many')).body.items).toHaveLength(2);
  expect((await post(`/batches/${id}/jobs`, many, 'many')).body.items?.every((one) => one['duplicate'])).toBe(true);
  expect((await post(`/batches/${id}/jobs`, { kind: 'job' })).status).toBe(201);
  expect((await get(`/batches/${id}`)).body).toMatchObject({
    queue: queue.name,
    total: 3,
    outstanding: 3,
    sealedAt: null,
  });
  for (let n = 0; n < 2; n += 1)
    expect((await post(`/batches/${id}/seal`)).body).toMatchObject({ id, sealedAt: expect.any(String) as string });
  await run(queue);
  expect((await get(`/batches/${id}`)).body).toMatchObject({ outstanding: 0, complete: 3, problem: null });
  expect((await queue.search('')).jobs).toHaveLength(4);
  expect(refusal(await post(`/batches/${id}/jobs`, { kind: 'job' })).slice(0, 2)).toEqual([409, 'conflict']);
  expect((await get('/batches/999999')).status).toBe(404);
  expect((await post('/batches/999999/seal')).status).toBe(404);
  // As batches are named on a table of DynamoDB.
  for (const path of ['', '/jobs', '/seal']) {
    const answer = path === '' ? await get('/batches/mail:42') : await post(`/batches/mail:42${path}`, { kind: 'job' });
    expect([path, answer.status]).toEqual([path, 400]);
  }
  expect((await post('/batches', { queue: queue.name, parent: 'mail:42' })).status).toBe(400);
  expect(refusal(await post('/batches', { queue: queue.name, onError: { kind: 'jbo' } }))).toEqual([
    400,
    'invalid_input',
    'onError',
  ]);
  expect((await queue.stats()).new).toBe(0);
});

test('a topic is listed, and publishing adds a job to each subscribed queue, once', async () => {
  const [one, two] = [await newQueue(), await newQueue()];
  const topic = createTopic(house.engine, 'orders');
  for (const queue of [one, two]) await topic.subscribe(queue.name, 'job');
  const { body } = await get('/topics');
  expect(body.items).toEqual([
    {
      name: 'orders',
      subscriptions: [
        { queue: one.name, kind: 'job' },
        { queue: two.name, kind: 'job' },
      ],
    },
  ]);
  const asked = { payload: { n: 1 }, key: 'ada', tags: ['new'] };
  const first = await post('/topics/orders/jobs', asked, 'p1');
  expect([first.status, first.body.items?.length]).toEqual([201, 2]);
  expect((await post('/topics/orders/jobs', asked, 'p1')).body).toMatchObject({
    duplicate: true,
    items: first.body.items,
  });
  expect(await two.get({ key: 'ada' })).toMatchObject({ payload: { n: 1 }, tags: ['new'] });
  expect((await post('/topics/nothing/jobs', {})).body).toEqual({ items: [], duplicate: false });
  expect(refusal(await post('/topics/orders/jobs', { priority: 1e9 }))).toEqual([400, 'invalid_input', 'priority']);
});

test('a job has the group that it is given, where its queue has places for groups', async () => {
  const plain = await newQueue();
  const jobs = (name: string): string => `/queues/${encodeURIComponent(name)}/jobs`;
  const asked = { kind: 'job', payload: {}, group: 'acme' };
  expect(refusal(await post(jobs(plain.name), asked))).toEqual([400, 'invalid_input', 'group']);
  const queue = createQueue(house.engine, `${plain.name} in groups`, {
    kinds: { job: {} },
    concurrency: { perGroup: 1 },
  });
  await queue.register();
  const { status, body } = await post(jobs(queue.name), asked);
  expect(status).toBe(201);
  expect((await get(`/jobs/${String(body['id'])}`)).body).toMatchObject({ group: 'acme', status: 'new' });
});

test('unique jobs, jobs after others, and an answer that waits for the end', async () => {
  const queue = await newQueue();
  const path = `/queues/${encodeURIComponent(queue.name)}/jobs`;
  const unique = { by: ['user'], while: 'outstanding', per: '1 hour' };
  const first = await post(path, { kind: 'job', payload: { user: 1, n: 1 }, unique });
  expect((await post(path, { kind: 'job', payload: { user: 1, n: 2 }, unique })).body).toMatchObject({
    id: first.body['id'],
    duplicate: true,
  });
  const child = await post(path, { kind: 'job', after: [first.body['id']], afterError: 'run' });
  expect((await queue.explain(String(child.body['id']))).reasons[0]?.code).toBe('waits_for_jobs');
  expect(refusal(await post(path, { kind: 'job', unique: { by: 'nme' } }))).toEqual([400, 'invalid_input', 'unique']);
  expect(refusal(await post(path, { kind: 'job', after: ['999999'] }))[0]).toBe(404);
  expect((await post(`${path}?wait=1ms`, { kind: 'job' })).body).toMatchObject({ status: 'new' });
  const waiting = post(`${path}?wait=20s`, { kind: 'job' });
  const worker = queue.work({ job: () => 1, bill: () => 1, unbilled: () => 1 });
  expect((await waiting).body).toMatchObject({ status: 'complete', duplicate: false });
  await worker.stop();
});

test('a job that waits is changed; one that has ended, and bad fields, are refused', async () => {
  const queue = await newQueue();
  const { id } = await queue.enqueue('job', 1, { delay: '1h' });
  const change =
    '{"payload": {"n": 12345678901234567890123}, "priority": 4, "attempts": 2, "delay": "2h", "tags": ["red"]}';
  for (let n = 0; n < 2; n += 1) expect((await post(`/jobs/${id}/update`, change)).body).toEqual({ id, status: 'new' });
  expect((await get(`/jobs/${id}/payload`)).text).toContain('12345678901234567890123');
  expect(await queue.get(id)).toMatchObject({ priority: 4, attempts: 2, tags: ['red'] });
  expect(refusal(await post(`/jobs/${id}/update`, {})).slice(0, 2)).toEqual([400, 'invalid_input']);
  expect(refusal(await post(`/jobs/${id}/update`, { attempts: 0 }))).toEqual([400, 'invalid_input', 'attempts']);
  await queue.cancel(id);
  expect(refusal(await post(`/jobs/${id}/update`, { priority: 1 })).slice(0, 2)).toEqual([409, 'conflict']);
});

test('a dead letter is redriven, and a job is erased: once', async () => {
  const queue = await newQueue();
  const { id } = await queue.enqueue('bill', { to: 'ada' });
  const worker = queue.work({ job: () => 1, bill: () => Promise.reject(new Error('no money')), unbilled: () => 1 });
  await queue.waitFor(id).catch(() => undefined);
  await worker.stop();
  const letter = (await queue.search('kind:unbilled')).jobs[0]?.id ?? '';
  const answer = await post(`/jobs/${letter}/redrive`);
  if ((await queue.get(letter)).status !== 'complete') expect((await queue.get(letter)).status).toBe('cancelled');
  expect(answer.body).toEqual({ id, status: 'new', letter });
  expect(refusal(await post(`/jobs/${id}/redrive`)).slice(0, 2)).toEqual([400, 'invalid_input']);
  expect((await gone(`/jobs/${id}`)).body).toEqual({ id, erased: true });
  expect((await gone(`/jobs/${id}`)).status).toBe(404);
  expect((await get('/audit?limit=5')).body.items?.map((one) => one['action'])).toContain('job:erase');
});

test('a job is given its own kind of dead letter, when it is added or while it waits', async () => {
  const queue = await newQueue();
  const path = `/queues/${encodeURIComponent(queue.name)}/jobs`;
  const { body } = await post(path, { kind: 'job', onError: 'unbilled' });
  const other = await queue.enqueue('job', 1, { attempts: 1 });
  expect((await post(`/jobs/${other.id}/update`, { onError: 'unbilled', attempts: 1 })).status).toBe(200);
  expect(refusal(await post(path, { kind: 'job', onError: 'unbiled' }))).toEqual([400, 'invalid_input', 'onError']);
  const fails = (): Promise<never> => Promise.reject(new NoRetry('no money'));
  const worker = queue.work({ job: fails, bill: fails, unbilled: () => 1 });
  await Promise.all([body['id'], other.id].map((id) => queue.waitFor(String(id)).catch(() => undefined)));
  await worker.stop();
  const letters = (await queue.search('kind:unbilled')).jobs.map(({ payload }) => Object(payload).job);
  expect(new Set(letters)).toEqual(new Set([body['id'], other.id]));
});

test('a key that is blocked needs attention until its job is skipped', async () => {
  nth += 1;
  const queue = createQueue(house.engine, `front ${nth}`, { kinds: { job: { attempts: 1 } }, keyOnError: 'block' });
  const { id } = await queue.enqueue('job', 1, { key: 'ada' });
  const worker = queue.work({ job: () => Promise.reject(new Error('no money')) });
  await queue.waitFor(id).catch(() => undefined);
  await worker.stop();
  const attention = async (): Promise<unknown[]> =>
    ((await get('/attention')).body.items ?? []).map((item) => item['text']);
  const text = `key "ada" of queue "${queue.name}" is blocked by job ${id}, which ended in error`;
  expect(await attention()).toContain(text);
  const diagnosis = await get(`/queues/${encodeURIComponent(queue.name)}/diagnosis`);
  expect(diagnosis.body['findings']).toContainEqual(
    expect.objectContaining({ code: 'keys_blocked', text: '1 key is blocked by a job that ended in error' }),
  );
  expect((await post(`/jobs/${id}/skip`)).body).toEqual({ id, status: 'error' });
  expect(refusal(await post(`/jobs/${id}/skip`)).slice(0, 2)).toEqual([409, 'conflict']);
  expect(await attention()).not.toContain(text);
});

test('a queue is removed when no program uses it, or by force, and the audit has it', async () => {
  const queue = await newQueue();
  const path = `/queues/${encodeURIComponent(queue.name)}`;
  await queue.enqueue('job', 1);
  expect(refusal(await gone(path)).slice(0, 2)).toEqual([409, 'conflict']);
  expect((await gone(`${path}?force=true`)).body).toMatchObject({ queue: queue.name, jobs: 1, cancelled: 1 });
  expect((await gone(path)).status).toBe(404);
  expect((await get(path)).status).toBe(404);
  const { body } = await get('/audit?limit=5');
  expect(body.items?.map(({ target }) => target)).toContain(`queue ${queue.name}, by force`);
});

test('bulk actions move, erase and redrive what a search finds', async () => {
  const [queue, other] = [await newQueue(), await newQueue()];
  await queue.enqueueMany([1, 2, 3].map((n) => ({ kind: 'job', payload: n, key: 'line' }) as const));
  const done = async (asked: object): Promise<unknown> => {
    const { body } = await post('/bulk', { queue: queue.name, query: 'status:new', ...asked });
    for (;;) {
      const now = await get(`/bulk/${String(body['id'])}`);
      if (now.body['endedAt'] !== null) return now.body;
    }
  };
  expect(await done({ action: 'move', to: other.name })).toMatchObject({ done: 3, refused: 0, to: other.name });
  expect((await other.stats()).new).toBe(3);
  expect(await done({ action: 'erase', queue: other.name })).toMatchObject({ done: 3 });
  expect((await other.search('')).jobs).toEqual([]);
  const kept = await queue.enqueueMany([1, 2].map((n) => ({ kind: 'job', payload: n }) as const));
  expect(await done({ action: 'finish' })).toMatchObject({ done: 2, refused: 0 });
  expect(await queue.get(kept[1] ?? '')).toMatchObject({ status: 'complete', attempt: 0 });
  await queue.enqueue('bill', 1);
  await run(queue);
  expect(await done({ action: 'redrive', query: 'kind:unbilled' })).toMatchObject({ done: 1 });
  expect((await queue.stats()).new).toBe(1);
  expect(await done({ action: 'redrive', query: 'kind:bill' })).toMatchObject({ done: 0, refused: 1 });
  for (const [asked, field] of [
    [{ action: 'move' }, 'to'],
    [{ action: 'move', to: 'nowhere' }, 'to'],
    [{ action: 'move', to: other.name, toKind: 'jbo' }, 'toKind'],
    [{ action: 'erase', to: other.name }, 'to'],
  ] as const) {
    expect(refusal(await post('/bulk', { query: 'status:new', ...asked }))).toEqual([400, 'invalid_input', field]);
  }
});
