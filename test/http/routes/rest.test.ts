import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as v from 'valibot';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { serve } from '../../../src/http/index.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

const get = (path: string): Promise<Answer> => visitor.ask(`/api/v1${path}`);
const post = (path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  visitor.ask(`/api/v1${path}`, { method: 'POST', body, headers });
const add = (body: unknown, headers: Record<string, string> = {}): Promise<Answer> =>
  post('/queues/mail/jobs', body, headers);
const count = async (): Promise<number> => {
  const [row] = await house.engine.query<{ n: number }>(
    statement('test.count', 'select count(*)::int as n from pawl.queue_job'),
  );
  return row?.n ?? -1;
};

describe('a job that is enqueued again because its answer was lost', () => {
  test('is there once, when both times had the same Idempotency-Key', async () => {
    const before = await count();
    const key = { 'idempotency-key': 'order-77' };
    const first = await add({ kind: 'send', payload: { n: 1 } }, key);
    expect([first.status, first.body['duplicate']]).toEqual([201, false]);
    const again = await add({ kind: 'send', payload: { n: 1 } }, key);
    expect(again.status).toBe(201);
    expect(again.body).toEqual({ ...first.body, duplicate: true });
    expect(await count()).toBe(before + 1);
  });

  test('is there once, however many ask at the same time', async () => {
    const before = await count();
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => add({ kind: 'send', payload: {} }, { 'idempotency-key': 'at-once' })),
    );
    expect(new Set(answers.map(({ body }) => body['id'])).size).toBe(1);
    expect(answers.filter(({ body }) => body['duplicate'] === false)).toHaveLength(1);
    expect(await count()).toBe(before + 1);
  });

  test('is refused, when another one was asked for under that key', async () => {
    const key = { 'idempotency-key': 'used' };
    await add({ kind: 'send', payload: { n: 1 } }, key);
    const other = await add({ kind: 'send', payload: { n: 2 } }, key);
    expect([other.status, other.body.error?.code]).toEqual([409, 'conflict']);
    expect(other.body.error?.message).toContain('"used"');
    expect((await add({ kind: 'send' }, { 'idempotency-key': 'two words' })).body.error?.field).toBe('Idempotency-Key');
  });

  test('can be tried again under its key, when it was refused the first time', async () => {
    const key = { 'idempotency-key': 'second-try' };
    expect((await add({ kind: 'sned' }, key)).status).toBe(400);
    expect((await add({ kind: 'send' }, key)).status).toBe(201);
  });

  test('is told that no key helps, where a repeated request is carried out again', async () => {
    const key = { 'idempotency-key': 'in-vain' };
    const message = await post(`/actors/${house.ids.actor}/messages`, { name: 'hello' }, key);
    expect(message.body.error).toMatchObject({ code: 'invalid_input', field: 'Idempotency-Key' });
    expect(message.body.error?.message).toContain('carried out again');
    expect((await post('/schedules/mail/nightly/run', {}, key)).status).toBe(400);
    expect((await post('/claims/release', { handle: 'none' }, key)).body.error?.field).toBe('Idempotency-Key');
    expect((await visitor.ask('/api/v1/queues', { headers: key })).status).toBe(200);
  });

  test('is not shared: a key is its caller’s own', async () => {
    const roles = house.open({
      auth: {
        tokens: [
          { name: 'a', token: 'a-token-of-16-characters', role: 'operator' },
          { name: 'b', token: 'b-token-of-16-characters', role: 'operator' },
        ],
      },
    });
    const as = async (who: string): Promise<unknown> => {
      const headers = { 'idempotency-key': 'mine', authorization: `Bearer ${who}-token-of-16-characters` };
      const body = { kind: 'send', payload: who };
      return (await roles.ask('/api/v1/queues/mail/jobs', { method: 'POST', body, headers })).body['duplicate'];
    };
    expect([await as('a'), await as('b'), await as('a')]).toEqual([false, false, true]);
  });
});

describe('waiting for a job', () => {
  test('?wait= answers when it is settled, and when the time is over', async () => {
    const queue = createQueue(house.engine, 'slow', { kinds: { one: {} } });
    const { id } = await queue.enqueue('one', {});
    const early = await get(`/jobs/${id}?wait=100ms`);
    expect([early.status, early.body['status']]).toEqual([200, 'new']);
    const late = get(`/jobs/${id}?wait=30s`);
    const worker = queue.work({ one: async () => 'done' });
    expect((await late).body).toMatchObject({ status: 'complete', result: 'done' });
    await worker.stop();
    expect((await get(`/jobs/${id}?wait=2m`)).body.error?.field).toBe('wait');
    expect((await get('/jobs/987654321?wait=30s')).status).toBe(404);
  });

  test('?wait= for an id that no job has here keeps no other caller waiting', async () => {
    const queue = createQueue(house.engine, 'others', { kinds: { one: {} } });
    const { id } = await queue.enqueue('one', {});
    const begun = performance.now();
    const never = get('/jobs/mail:42?wait=30s'); // in the form of DynamoDB
    const late = get(`/jobs/${id}?wait=30s`);
    const worker = queue.work({ one: () => {} });
    expect((await late).body).toMatchObject({ status: 'complete' });
    expect(performance.now() - begun).toBeLessThan(25_000);
    expect((await never).body.error?.code).toBe('invalid_input');
    await worker.stop();
  });

  test('…/events sends every step, and ends when the job is settled', async () => {
    const queue = createQueue(house.engine, 'steps', { kinds: { one: {} } });
    const { id } = await queue.enqueue('one', {});
    const { handler } = house.open();
    const answer = await handler(new Request(`http://localhost/api/v1/jobs/${id}/events`), {
      remoteAddress: '127.0.0.1',
    });
    expect(answer.headers.get('content-type')).toContain('text/event-stream');
    let go = (): void => {};
    const gone = new Promise<void>((resolve) => {
      go = resolve;
    });
    let text = '';
    const reading = (async () => {
      for await (const chunk of answer.body ?? []) text += new TextDecoder().decode(chunk);
    })();
    await until('it is told that it waits', () => text.includes('"status":"new"'));
    const worker = queue.work({ one: () => gone });
    await until('it is told that it runs', () => text.includes('"status":"in-progress"'));
    go();
    await reading;
    expect(text).toContain(`event: job\ndata: {"id":"${id}","status":"complete"`);
    await worker.stop();
    expect((await get('/jobs/987654321/events')).status).toBe(404);
    // A client that comes back is told what it has not seen, and nothing twice.
    const steps = [...text.matchAll(/^id: (\S+)$/gm)].map(([, step = '']) => step);
    expect([steps.length, new Set(steps).size]).toEqual([3, 3]);
    const told = async (step: string): Promise<number> => {
      const headers = { 'last-event-id': step };
      const again = await visitor.ask(`/api/v1/jobs/${id}/events`, { headers });
      return again.text.split('event: job').length - 1;
    };
    expect([await told(steps.at(-1) ?? ''), await told(steps[0] ?? '')]).toEqual([0, 1]);
  });
});

test('a list of jobs is enqueued, all or none', async () => {
  const before = await count();
  const answer = await add([
    { kind: 'send', payload: 12345678901234567890n.toString() },
    { kind: 'fail', payload: 2, key: 'k', priority: 3 },
  ]);
  expect(answer.status).toBe(201);
  const ids = (answer.body.items ?? []).map(({ id }) => id);
  expect(ids).toHaveLength(2);
  expect((await get(`/jobs/${String(ids[1])}`)).body).toMatchObject({
    kind: 'fail',
    key: 'k',
    payload: 2,
    priority: 3,
  });
  const raw = '[{"kind":"send","payload":{"n":12345678901234567890123}}]';
  const [exact] = (await add(raw)).body.items ?? [];
  expect((await get(`/jobs/${String(exact?.['id'])}/payload`)).text).toContain('12345678901234567890123');
  const bad = await add([{ kind: 'send' }, { kind: 'send', priority: 'high' }]);
  expect([bad.status, bad.body.error?.field]).toEqual([400, '1.priority']);
  expect((await add([{ kind: 'send' }, { kind: 'sned' }])).status).toBe(400);
  expect((await add([])).status).toBe(400);
  expect((await post('/queues/mail/pause', [])).status).toBe(400);
  expect(await count()).toBe(before + 3);
});

test('a delay is taken, as a time is', async () => {
  const { body } = await add({ kind: 'send', delay: '10m' });
  const runAt = (await get(`/jobs/${String(body['id'])}`)).body['runAt'];
  const inMs = Date.parse(String(runAt)) - Date.now();
  expect(inMs).toBeGreaterThan(8 * 60_000);
  expect(inMs).toBeLessThan(11 * 60_000);
  expect((await add({ kind: 'send', delay: 'soon' })).body.error?.field).toBe('delay');
  expect((await add({ kind: 'send', delay: '1s', runAt: '2030-01-01' })).body.error?.field).toBe('delay');
});

describe('a job that is run again with another payload', () => {
  test('is for the same tick of the same schedule', async () => {
    const schedule = { name: 'nightly', at: '2026-11-20T01:30:00.000Z' };
    const asked = { queue: 'mail', kind: 'fail', schedule };
    const [row] = await house.engine.query<{ answer: { id: string } }>(
      statement('test.tick', 'select pawl.enqueue($1::jsonb) as answer', { prepare: false }),
      [asked],
    );
    const old = row?.answer.id ?? '';
    expect((await post(`/jobs/${old}/cancel`, {})).status).toBe(200);
    const again = await post(`/jobs/${old}/retry`, { payload: { mended: true } });
    expect((await get(`/jobs/${String(again.body['id'])}`)).body['schedule']).toEqual(schedule);
  });

  test('is a new one, and both say so', async () => {
    const old = house.ids.failed;
    const answer = await post(`/jobs/${old}/retry`, { payload: { mended: true } });
    expect(answer.status).toBe(201);
    const id = String(answer.body['id']);
    expect(answer.body).toMatchObject({ status: 'new', duplicate: false, retriedFrom: old });
    expect(answer.headers.get('location')).toBe(`/api/v1/jobs/${id}`);
    expect((await get(`/jobs/${id}`)).body).toMatchObject({
      kind: 'fail',
      payload: { mended: true },
      retriedFrom: old,
      retriedAs: [],
    });
    expect((await get(`/jobs/${old}`)).body).toMatchObject({ status: 'error', retriedFrom: null, retriedAs: [id] });
  });

  test('is one, when its answer was lost and it is asked for again', async () => {
    const key = { 'idempotency-key': 'rerun' };
    const first = await post(`/jobs/${house.ids.failed}/retry`, { payload: 1 }, key);
    const again = await post(`/jobs/${house.ids.failed}/retry`, { payload: 1 }, key);
    expect(again.body).toEqual({ ...first.body, duplicate: true });
  });

  test('with its own payload is made once, too, when its answer was lost', async () => {
    const { body: added } = await add({ kind: 'send', delay: '1h' });
    const path = `/jobs/${String(added['id'])}`;
    await post(`${path}/cancel`);
    const key = { 'idempotency-key': 'once-more' };
    const first = await post(`${path}/retry`, {}, key);
    expect(first.body).toEqual({ id: added['id'], status: 'new' });
    await post(`${path}/cancel`);
    expect((await post(`${path}/retry`, {}, key)).body).toEqual({ ...first.body, duplicate: true });
    expect((await get(path)).body).toMatchObject({ status: 'cancelled' });
    expect((await post(`${path}/retry`, { payload: 1 }, key)).status).toBe(409);
  });

  test('must have ended, and be none of a kind that is unique by its key', async () => {
    const waiting = await post(`/jobs/${house.ids.waiting}/retry`, { payload: 1 });
    expect([waiting.status, waiting.body.error?.code]).toEqual([409, 'conflict']);
    const only = createQueue(house.engine, 'only', { kinds: { one: { unique: 'key' } } });
    const { id } = await only.enqueue('one', {}, { key: 'k' });
    await only.cancel(id);
    const unique = await post(`/jobs/${id}/retry`, { payload: 1 });
    expect([unique.status, unique.body.error?.code]).toEqual([409, 'conflict']);
    expect((await post('/jobs/987654321/retry', { payload: 1 })).status).toBe(404);
  });
});

test('a job that was added is no refusal, although its end cannot be waited for', async () => {
  const before = await count();
  const asked = post('/queues/mail/jobs?wait=30s', { kind: 'send', payload: { erase: 'me' }, delay: '1h' });
  await until('it is there', async () => (await count()) === before + 1);
  const { body: found } = await get('/jobs?status=new&kind=send&limit=1');
  await visitor.ask(`/api/v1/jobs/${String(found.items?.[0]?.['id'])}`, { method: 'DELETE' });
  const { status, body } = await asked;
  expect([status, body['id'], body['duplicate']]).toEqual([201, found.items?.[0]?.['id'], false]);
});

test('a day that does not exist is refused, and is no day of the next month', async () => {
  const at = (day: string): Promise<Answer> => add({ kind: 'send', runAt: `${day}T09:30:00Z` });
  expect((await at('2126-02-31')).body.error).toMatchObject({ code: 'invalid_input', field: 'runAt' });
  expect((await at('2127-02-29')).status).toBe(400);
  expect((await at('2128-02-29')).status).toBe(201);
  for (const path of ['/jobs?since=2026-02-31', '/jobs?q=until:2026-04-31', '/errors?since=2026-06-31'])
    expect([path, (await get(path)).status]).toEqual([path, 400]);
});

test('the filters of a search are parameters, too', async () => {
  const failed = await get('/jobs?status=error&queue=mail');
  expect(failed.body.items?.map(({ status }) => status)).toContain('error');
  expect(new Set(failed.body.items?.map(({ status }) => status))).toEqual(new Set(['error']));
  const keyed = await get('/jobs?key=ada&kind=send&since=1h');
  expect(keyed.body.items?.map(({ id }) => id)).toEqual([house.ids.complete]);
  expect(keyed.body).toMatchObject({ after: null, indexBehind: 0 });
  expect((await get('/jobs?status=failed')).body.error?.field).toBe('status');
  expect((await get('/jobs?since=yesterday')).body.error?.field).toBe('since');
  expect((await get('/jobs?q=status:none')).body.error?.field).toBe('q');
  expect((await get('/jobs?q=status:new&status=error')).body.error?.field).toBe('q');
});

test('what cancels a running job says that this is under way', async () => {
  const queue = createQueue(house.engine, 'long', { kinds: { one: {} } });
  const { id } = await queue.enqueue('one', {});
  const worker = queue.work({
    one: (unit: Unit) => new Promise((_, reject) => unit.signal.addEventListener('abort', reject)),
  });
  await until('it runs', async () => (await get(`/jobs/${id}`)).body['status'] === 'in-progress');
  const running = await post(`/jobs/${id}/cancel`);
  expect([running.status, running.body]).toEqual([202, { id, status: 'in-progress', cancelling: true }]);
  await until('it is cancelled', async () => (await get(`/jobs/${id}?wait=5s`)).body['status'] === 'cancelled');
  await worker.stop();
  const { id: waiting } = await queue.enqueue('one', {});
  const at = await post(`/jobs/${waiting}/cancel`);
  expect([at.status, at.body]).toEqual([200, { id: waiting, status: 'cancelled', cancelling: false }]);
});

test('what was made says where it is, and every answer how many calls are left', async () => {
  // A call that comes back each second would count, too.
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const limited = house.open({ rate: { burst: 5, perSecond: 1 }, basePath: '/pawl' });
  const made = await limited.ask('/pawl/api/v1/queues/mail/jobs', { method: 'POST', body: { kind: 'send' } });
  expect(made.headers.get('location')).toBe(`/pawl/api/v1/jobs/${String(made.body['id'])}`);
  expect(made.headers.get('ratelimit-limit')).toBe('5');
  expect(made.headers.get('ratelimit-remaining')).toBe('4');
  const refused = await limited.ask('/pawl/api/v1/jobs/999999');
  expect([refused.status, refused.headers.get('ratelimit-remaining')]).toEqual([404, '3']);
  const wrong = await limited.ask('/pawl/api/v1/jobs?limit=none');
  expect([wrong.status, wrong.headers.has('ratelimit-limit')]).toEqual([400, true]);
  let last = made;
  for (let n = 0; n < 10 && last.status !== 429; n += 1) last = await limited.ask('/pawl/api/v1/me');
  expect(last.status).toBe(429);
  expect(last.headers.get('ratelimit-remaining')).toBe('0');
  expect(Number(last.headers.get('ratelimit-reset'))).toBeGreaterThan(0);
});

test('a body in another encoding is refused, and not stored with other letters; a mark of UTF-8 is none of its letters', async () => {
  const send = async (body: Uint8Array<ArrayBuffer>): Promise<Response> =>
    visitor.handler(
      new Request('http://localhost/api/v1/queues/mail/jobs', {
        method: 'POST',
        headers: { 'content-type': 'application/json; charset=iso-8859-1' },
        body,
      }),
      { remoteAddress: '127.0.0.1' },
    );
  const before = await count();
  const latin = await send(new Uint8Array(Buffer.from('{"kind":"send","payload":"Müller"}', 'latin1')));
  expect([latin.status, await latin.text()]).toEqual([400, expect.stringContaining('no UTF-8')]);
  expect(await count()).toBe(before);
  const marked = await send(new Uint8Array(Buffer.from('\u{feff}{"kind":"send","payload":"Müller"}')));
  const { id } = (await marked.json()) as { id: string };
  expect((await get(`/jobs/${id}/payload`)).text).toBe('"Müller"');
});

test('a parameter in another encoding names nothing; a lone "%" is one', async () => {
  expect((await get('/jobs?key=%FF')).body.error?.message).toContain('no UTF-8');
  expect((await get('/jobs?key=100%')).body.items).toEqual([]);
});

test('a body without its type is refused with what to send', async () => {
  const { status, body } = await visitor.ask('/api/v1/queues/mail/jobs', {
    method: 'POST',
    body: '{"kind":"send"}',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  });
  expect([status, body.error?.code]).toEqual([415, 'unsupported_media_type']);
  expect(body.error?.message).toContain('content-type: application/json');
});

test('curl saves a document under its name', async () => {
  const served = await serve(visitor.handler);
  onTestFinished(() => served.stop());
  const folder = await mkdtemp(join(tmpdir(), 'pawl-test-curl-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await house.files.write('letters/report "7" é.txt', 'text', { contentType: 'text/plain' });
  const id = encodeURIComponent('letters/report "7" é.txt');
  const headers = { disposition: '' };
  const answer = await fetch(`${served.url}api/v1/files/one/content?id=${id}`);
  headers.disposition = answer.headers.get('content-disposition') ?? '';
  expect(headers.disposition).toBe(
    `attachment; filename="report _7_ _.txt"; filename*=UTF-8''report%20%227%22%20%C3%A9.txt`,
  );
  await promisify(execFile)('curl', ['-sOJ', `${served.url}api/v1/files/one/content?id=doc%2F1`], { cwd: folder });
  expect(await readdir(folder)).toEqual(['1']);
});

test('a digest that is none is refused with what one is', async () => {
  const { status, body } = await visitor.ask('/api/v1/files/one/content?id=doc/2&sha256=abc', {
    method: 'PUT',
    body: 'text',
  });
  expect([status, body.error?.field]).toEqual([400, 'sha256']);
  expect(body.error?.message).toContain('64');
  expect(body.error?.message).not.toContain('1000');
});

test('a kind that is unknown is the same mistake, whether the server was given the queue or not', async () => {
  const letters = createQueue(house.engine, 'letters', { kinds: { send: { payload: v.object({}) } } });
  await letters.register();
  const of = async (server: Visitor): Promise<unknown> => {
    const { status, body } = await server.ask('/api/v1/queues/letters/jobs', {
      method: 'POST',
      body: { kind: 'sned' },
    });
    return [status, body.error?.code, body.error?.field];
  };
  expect(await of(house.open({ queues: [letters] }))).toEqual([400, 'invalid_input', 'kind']);
  expect(await of(visitor)).toEqual([400, 'invalid_input', 'kind']);
});
