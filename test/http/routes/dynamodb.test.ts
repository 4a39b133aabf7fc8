import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors, state } from '../../../src/actor/index.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createHttp, type HttpHandler } from '../../../src/http/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';

const local = await sharedDynamo();
const TABLE = 'http-queues';
const TOKEN = 'a-token-that-is-long-enough';
let engine: DynamoEngine;
let http: HttpHandler;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: TABLE });
  await engine.migrate();
  http = createHttp(engine, { auth: { tokens: [{ name: 'ci', token: TOKEN, role: 'admin' }] } });
  return () => http.stop();
});

interface Body {
  readonly id: string;
  readonly after: string;
  readonly items: readonly unknown[];
  readonly error?: { readonly code: string; readonly message: string };
}

async function ask(method: string, path: string, body?: object, key?: string): Promise<{ status: number; body: Body }> {
  const headers = {
    authorization: `Bearer ${TOKEN}`,
    ...(body && { 'content-type': 'application/json' }),
    ...(key !== undefined && { 'idempotency-key': key }),
  };
  const given = { method, headers, ...(body && { body: JSON.stringify(body) }) };
  const answer = await http(new Request(`http://localhost/api/v1${path}`, given), { remoteAddress: '127.0.0.1' });
  return { status: answer.status, body: (await answer.json()) as Body };
}

describe.skipIf(local.kind === 'dynalite')('the API on DynamoDB', () => {
  test('queues are shown, paused and resumed', async () => {
    await createQueue(engine, 'mail', { kinds: { send: {} } }).enqueue('send', {});
    expect(await ask('GET', '/queues')).toMatchObject({
      status: 200,
      body: { items: [{ name: 'mail', kinds: ['send'], stats: { ready: 1 } }] },
    });
    expect(await ask('POST', '/queues/mail/pause', {})).toMatchObject({ status: 200 });
    expect(await ask('GET', '/queues/mail')).toMatchObject({ status: 200, body: { stats: { paused: true } } });
    expect(await ask('GET', '/live')).toMatchObject({ status: 200, body: { totals: { ready: 1, paused: 1 } } });
    expect(await ask('POST', '/queues/mail/resume', {})).toMatchObject({ status: 200 });
    expect(await ask('GET', '/queues/none')).toMatchObject({ status: 404 });
    expect(await ask('GET', '/me')).toMatchObject({ body: { parts: { queues: true, locks: false, actors: true } } });
  });

  test('a job is added, shown, run, cancelled and retried', async () => {
    const queue = createQueue(engine, 'jobs', { kinds: { send: {} } });
    await queue.register();
    const { status, body } = await ask('POST', '/queues/jobs/jobs', { kind: 'send', payload: { to: 'ada' }, key: 'k' });
    expect(status).toBe(201);
    expect(body.id).toMatch(/^jobs:\d+$/);
    const path = `/jobs/${encodeURIComponent(body.id)}`;
    expect(await ask('GET', path)).toMatchObject({
      status: 200,
      body: { id: body.id, status: 'new', key: 'k', payload: { to: 'ada' }, explanation: { status: 'new' } },
    });
    expect(await ask('POST', `${path}/cancel`, { reason: 'no' })).toMatchObject({ body: { status: 'cancelled' } });
    expect(await ask('POST', `${path}/retry`, {})).toMatchObject({ body: { status: 'new' } });
    const worker = queue.work({ send: () => 'sent' }, { poll: '100ms' });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await queue.drain({ timeout: '50s' });
    expect(await ask('GET', `${path}?wait=20s`)).toMatchObject({ body: { status: 'complete', result: 'sent' } });
    expect((await ask('GET', `${path}/payload`)).body).toEqual({ to: 'ada' });
    expect(await ask('GET', '/workers')).toMatchObject({ body: { queues: [{ queue: 'jobs', pid: process.pid }] } });
  });

  test('actors are listed, shown, woken, moved and paused, and pages are looked after', async () => {
    // The types that this answer read count for two seconds, and the next one is not among them.
    await ask('GET', '/workers');
    const Door = actor('Door', {
      semaphores: ['knock'],
      initial: 'closed',
      states: {
        closed: state({ to: ['open'], run: (a) => (a.take('knock') ? a.to('open') : a.hibernate()) }),
        open: state({ run: (a) => a.hibernate() }),
      },
    });
    const actors = createActors(engine, [Door]);
    const { id } = await actors.create(Door, {});
    const known = { type: 'Door', state: 'closed', status: 'due' };
    expect(await ask('GET', '/actors?type=Door')).toMatchObject({ status: 200, body: { items: [{ id, ...known }] } });
    expect(await ask('GET', `/actors/${id}`)).toMatchObject({ body: { ...known, history: [{ reason: 'created' }] } });
    expect(await ask('POST', `/actors/${id}/incr`, { semaphore: 'knock' })).toMatchObject({ status: 200 });
    expect((await actors.get(id)).semaphores).toEqual({ knock: 1 });
    expect(await ask('POST', `/actors/${id}/pause`, {})).toMatchObject({ status: 200 });
    expect(await ask('GET', `/actors/${id}`)).toMatchObject({ body: { status: 'paused' } });
    const dispatcher = actors.run({ poll: '100ms' });
    onTestFinished(() => dispatcher.stop());
    await dispatcher.started;
    expect(await ask('POST', `/actors/${id}/resume`, {})).toMatchObject({ status: 200 });
    await actors.waitFor(id, { state: 'open', status: 'hibernating' });
    expect(await ask('GET', '/workers')).toMatchObject({ body: { actors: [{ pid: process.pid, types: ['Door'] }] } });
    expect(await ask('GET', '/actor-types')).toMatchObject({ body: { items: [{ name: 'Door', workers: 1 }] } });
    const page = await actors.page({ tag: 'door', summary: 'it creaks', severity: 'warning' });
    expect(await ask('GET', '/pages')).toMatchObject({
      body: { items: [{ id: page.id, tag: 'door', status: 'open' }] },
    });
    expect(await ask('POST', `/pages/${page.id}/ack`, {})).toMatchObject({ status: 200 });
    expect(await ask('GET', '/pages?status=acked')).toMatchObject({ body: { items: [{ ackedBy: 'ci' }] } });
    expect(await ask('POST', `/pages/${page.id}/resolve`, {})).toMatchObject({ status: 200 });
    expect((await ask('GET', '/pages')).body.items).toEqual([]);
    expect(await ask('GET', '/actors/987654321')).toMatchObject({ status: 404 });
  });

  test('asked again under the same Idempotency-Key, the first job is answered', async () => {
    const kinds = { send: {}, once: { unique: { by: 'payload' } } } as const;
    const queue = createQueue(engine, 'repeated', { kinds });
    await queue.register();
    const add = (key: string, payload: unknown, kind = 'send'): ReturnType<typeof ask> =>
      ask('POST', '/queues/repeated/jobs', { kind, payload }, key);
    const answers = await Promise.all(Array.from({ length: 4 }, () => add('first', 1)));
    const [first] = answers;
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1);
    expect(answers.filter(({ body }) => !Object(body).duplicate)).toHaveLength(1);
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    await queue.cancel(first?.body.id.split(':')[1] ?? '');
    expect(await add('first', 1)).toMatchObject({ body: { id: first?.body.id, status: 'cancelled', duplicate: true } });
    expect(await add('first', 2)).toMatchObject({ status: 409 });
    expect((await add('second', 1)).body.id).not.toBe(first?.body.id);
    // One that found a job of its unique kind is answered with that for good.
    const there = await add('third', { n: 1 }, 'once');
    const found = await add('fourth', { n: 1 }, 'once');
    await queue.cancel(there.body.id.split(':')[1] ?? '');
    expect(await add('fourth', { n: 1 }, 'once')).toMatchObject({ body: { id: found.body.id, duplicate: true } });
  });

  test('the jobs of a key are shown around one of them, in order', async () => {
    const queue = createQueue(engine, 'neighbours', { kinds: { send: {} }, shards: 2 });
    const jobs = Array.from({ length: 40 }, (_, n) => ({ kind: 'send' as const, payload: n, key: `k${n % 2}` }));
    const ids = await queue.enqueueMany(jobs);
    const last = await queue.enqueue('send', 40, { key: 'k0' });
    await queue.cancel(last.id);
    const ofKey = [...ids.filter((_, n) => n % 2 === 0), last.id].map((id) => `neighbours:${id}`);
    const { body } = await ask('GET', `/jobs/${encodeURIComponent(ofKey[2] ?? '')}/siblings`);
    expect(body.items.map((one) => Object(one).id)).toEqual([...ofKey.slice(0, 2), ...ofKey.slice(3, 18)]);
    const end = await ask('GET', `/jobs/${encodeURIComponent(ofKey[19] ?? '')}/siblings`);
    expect(end.body.items.at(-1)).toMatchObject({ id: `neighbours:${last.id}`, status: 'cancelled', processId: null });
    const plain = await queue.enqueue('send', 41);
    expect((await ask('GET', `/jobs/neighbours:${plain.id}/siblings`)).body.items).toEqual([]);
  });

  test('jobs are listed by status, kind and key, page by page', async () => {
    const queue = createQueue(engine, 'listed', { kinds: { send: {}, sweep: {} }, shards: 2 });
    const ids = await queue.enqueueMany([
      ...Array.from({ length: 5 }, (_, n) => ({ kind: 'send' as const, payload: n, key: `k${n % 2}` })),
      ...Array.from({ length: 3 }, (_, n) => ({ kind: 'sweep' as const, payload: n })),
      { kind: 'sweep', payload: 'later', delay: '1h' },
    ]);
    await queue.cancel(ids[0] ?? '');
    await queue.cancel(ids[5] ?? '');
    const list = async (query: string): Promise<string[]> => {
      const all: string[] = [];
      for (let after = ''; ; ) {
        const { body } = await ask('GET', `/jobs?queue=listed&${query}${after && `&after=${after}`}`);
        all.push(...body.items.map((item) => String(Object(item).id).slice('listed:'.length)));
        if (body.after === null) return all;
        ({ after } = body);
      }
    };
    const set = (some: readonly (string | undefined)[]): Set<string | undefined> => new Set(some);
    expect(set(await list('limit=2'))).toEqual(set(ids));
    expect(await list('limit=2')).toHaveLength(9);
    expect(set(await list('status=cancelled'))).toEqual(set([ids[0], ids[5]]));
    expect(set(await list('status=new&kind=sweep'))).toEqual(set(ids.slice(6)));
    expect(set(await list('key=k1&limit=1'))).toEqual(set([ids[1], ids[3]]));
    expect(await list('status=error')).toEqual([]);
    expect(await ask('GET', '/jobs?queue=listed&after=x')).toMatchObject({ status: 400 });
  });

  test('a job shows what it comes after, what waits for it, and the batch that does', async () => {
    const mail = createQueue(engine, 'related', { kinds: { send: {}, sum: {} }, shards: 2 });
    const other = createQueue(engine, 'related too', { kinds: { bill: {} } });
    await other.register();
    const batch = await mail.batch();
    const first = await batch.enqueue({ kind: 'send', payload: 1, key: 'a' });
    const second = await mail.enqueue('send', {});
    const child = await mail.enqueue('sum', {}, { after: [first, second.id], afterError: 'run', key: 'b' });
    const far = await other.enqueue('bill', {}, { after: [`related:${first}`] });
    const last = await mail.enqueue('sum', {}, { after: [batch] });
    const shown = async (id: string): Promise<unknown> => (await ask('GET', `/jobs/${encodeURIComponent(id)}`)).body;
    const job = (id: string, kind: string, queue = 'related'): object => ({ id, queue, kind, status: 'new' });
    const none = { parents: [], children: [], afterError: null, afterCancel: null, afterBatches: [], batches: [] };
    expect(await shown(`related:${first}`)).toMatchObject({
      ...none,
      children: [job(`related:${child.id}`, 'sum'), job(`related too:${far.id}`, 'bill', 'related too')],
      batches: [`related:${batch.id}`],
    });
    expect(await shown(`related:${child.id}`)).toMatchObject({
      ...none,
      parents: [job(`related:${first}`, 'send'), job(`related:${second.id}`, 'send')],
      afterError: 'run',
      afterCancel: 'cancel',
    });
    expect(await shown(`related too:${far.id}`)).toMatchObject({ parents: [job(`related:${first}`, 'send')] });
    expect(await shown(`related:${last.id}`)).toMatchObject({
      ...none,
      afterBatches: [`related:${batch.id}`],
      afterError: 'error',
      afterCancel: 'cancel',
    });
    await mail.cancel(first);
    expect(await shown(`related:${first}`)).toMatchObject({ ...none, status: 'cancelled' });
  });

  test('batches are made, filled, sealed, shown and listed, each request once for its Idempotency-Key', async () => {
    const queue = createQueue(engine, 'batched', { kinds: { send: {}, report: {} }, shards: 2 });
    await queue.register();
    const callback = { kind: 'report', payload: { done: true }, runAt: '2020-01-01T00:00:00Z' };
    const make = (key: string): ReturnType<typeof ask> =>
      ask('POST', '/batches', { queue: 'batched', onDone: callback }, key);
    const made = await make('batch-1');
    expect(made).toMatchObject({ status: 201, body: { duplicate: false } });
    expect(await make('batch-1')).toMatchObject({ body: { id: made.body.id, duplicate: true } });
    const path = `/batches/${encodeURIComponent(made.body.id)}`;
    const one = { kind: 'send', payload: 1, key: 'k' };
    const added = await ask('POST', `${path}/jobs`, one, 'one');
    expect(added).toMatchObject({ status: 201, body: { status: 'new', duplicate: false } });
    expect(await ask('POST', `${path}/jobs`, one, 'one')).toMatchObject({
      body: { id: added.body.id, duplicate: true },
    });
    const later = { kind: 'send', payload: 2, after: [added.body.id] };
    expect(await ask('POST', `${path}/jobs`, later)).toMatchObject({ status: 201 });
    expect((await ask('POST', `${path}/jobs`, [one, one])).body.items).toHaveLength(2);
    expect(await ask('POST', `${path}/jobs`, [one, one], 'two')).toMatchObject({ status: 501 });
    const nested = await ask('POST', '/batches', { queue: 'batched', parent: made.body.id });
    const list = async (query = ''): Promise<unknown[]> =>
      (await ask('GET', `/batches?queue=batched${query}`)).body.items.map((item) => Object(item).id);
    expect(await list()).toEqual([nested.body.id, made.body.id]);
    expect(await ask('GET', path)).toMatchObject({ body: { total: 5, outstanding: 5, sealedAt: null } });
    for (const id of [made.body.id, nested.body.id]) {
      expect(await ask('POST', `/batches/${encodeURIComponent(id)}/seal`, {})).toMatchObject({ status: 200 });
    }
    expect(await ask('POST', `${path}/jobs`, one)).toMatchObject({ status: 409 });
    const ran: unknown[] = [];
    const note = ({ payload }: { payload: unknown }): void => void ran.push(payload);
    const worker = queue.work({ send: note, report: note }, { poll: '100ms' });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await eventually(() => expect(ran).toHaveLength(5));
    expect(ran.at(-1)).toEqual({ done: true });
    expect(await ask('GET', path)).toMatchObject({ body: { outstanding: 0, complete: 5, problem: null } });
    // Both are done, and are listed as before.
    expect(await list()).toEqual([nested.body.id, made.body.id]);
    expect(await list('&limit=1')).toEqual([nested.body.id]);
    expect(await list(`&limit=1&after=${nested.body.id}`)).toEqual([made.body.id]);
    expect(await ask('GET', '/batches/batched:1')).toMatchObject({ status: 404 });
    expect(await ask('POST', '/batches', { queue: 'batched', onDone: { kind: 'sned' } })).toMatchObject({
      status: 400,
    });
  });

  test('a graph of jobs of several queues is added as a whole, and comes after what is there', async () => {
    const one = createQueue(engine, 'flow one', { kinds: { step: {} } });
    const two = createQueue(engine, 'flow two', { kinds: { step: {} } });
    await two.register();
    const first = await one.enqueue('step', 'first');
    const node = (name: string, after?: unknown[], queue = 'flow one'): object => ({
      name,
      queue,
      kind: 'step',
      payload: name,
      after,
    });
    const before = `flow one:${first.id}`;
    const graph = [node('last', ['left', 'right']), node('right', [before], 'flow two'), node('left', [before])];
    const added = await ask('POST', '/flows', graph);
    expect(added).toMatchObject({ status: 201, body: { duplicate: false } });
    const ids: Record<string, string> = Object(added.body).ids;
    expect(ids).toEqual({
      last: expect.stringMatching(/^flow one:/),
      left: expect.any(String),
      right: expect.stringMatching(/^flow two:/),
    });
    const last = (await ask('GET', `/jobs/${encodeURIComponent(ids['last'] ?? '')}`)).body;
    expect(last).toMatchObject({ payload: 'last', parents: [{ id: ids['right'] }, { id: ids['left'] }] });
    const ran: unknown[] = [];
    const workers = [one, two].map((queue) =>
      queue.work({ step: ({ payload }) => void ran.push(payload) }, { poll: '100ms' }),
    );
    onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop({ timeout: '1s' })))));
    await eventually(() => expect(ran).toHaveLength(4));
    expect([ran[0], ran[3]]).toEqual(['first', 'last']);
    expect(await ask('POST', '/flows', [node('a', ['b']), node('b', ['a'])])).toMatchObject({ status: 400 });
    expect(await ask('POST', '/flows', [node('a')], 'once')).toMatchObject({ status: 501 });
  });

  test('what people did is in the audit, newest first', async () => {
    await createQueue(engine, 'audited', { kinds: { send: {} } }).register();
    await ask('POST', '/queues/audited/pause', {});
    await ask('POST', '/queues/audited/resume', { kind: 'send' });
    const { items } = (await ask('GET', '/audit?limit=2')).body;
    expect(items).toMatchObject([
      { target: 'kind "send" of queue audited', outcome: 'refused', status: 501 },
      { who: 'ci (token)', action: 'queue:pause', target: 'queue audited', outcome: 'done', status: 200 },
    ]);
    const before = await ask('GET', `/audit?limit=1&after=${(await ask('GET', '/audit?limit=1')).body.after}`);
    expect(before.body.items).toMatchObject([{ target: 'queue audited', outcome: 'done' }]);
  });

  test('what needs Postgres, or an index, is answered 501 with the reason', async () => {
    await createQueue(engine, 'mail', { kinds: { send: {} } }).register();
    for (const path of ['/jobs?q=ada', '/locks', '/captures', '/files', '/history', '/admin', '/series', '/topics']) {
      const { status, body } = await ask('GET', path);
      expect({ path, status, code: body.error?.code }).toEqual({ path, status: 501, code: 'not_supported' });
      expect(body.error?.message).toMatch(/DynamoDB/);
    }
    const list = [{ kind: 'send', payload: 1 }];
    expect(await ask('POST', '/queues/mail/jobs', list)).toMatchObject({ status: 501 });
    expect(await ask('DELETE', '/queues/mail')).toMatchObject({ status: 501 });
    expect(await ask('POST', '/queues/mail/claim', {})).toMatchObject({ status: 501 });
  });
});
