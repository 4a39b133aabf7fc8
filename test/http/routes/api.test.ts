import * as v from 'valibot';
import { beforeAll, describe, expect, test } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { answersOf } from '../document.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
let document: Record<string, unknown> & { paths: Record<string, Record<string, { operationId: string }>> };

beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  document = (await visitor.ask('/api/v1/openapi.json')).body as typeof document;
  return () => house.stop();
});

const api = (path: string, asked?: Parameters<Visitor['ask']>[1]): Promise<Answer> =>
  visitor.ask(`/api/v1${path}`, asked);
const post = (path: string, body: unknown = {}): Promise<Answer> => api(path, { method: 'POST', body });

const NO_HANDLE = '00000000-0000-4000-8000-000000000000';

describe('every answer is what the OpenAPI document says', () => {
  /** One request for each operation; what they refuse is another test's. In order: some look at what others did. */
  const requests = (): Record<string, readonly [path: string, body?: object]> => ({
    me: ['/me'],
    listDevControls: ['/dev'],
    runDevControl: ['/dev/none', {}],
    live: ['/live'],
    series: ['/series?queue=mail'],
    queueSeries: ['/queues/mail/series?points=20'],
    attention: ['/attention'],
    listWorkers: ['/workers'],
    admin: ['/admin'],
    listQueues: ['/queues'],
    getQueue: ['/queues/mail'],
    diagnoseQueue: ['/queues/mail/diagnosis'],
    pauseQueue: ['/queues/mail/pause', {}],
    resumeQueue: ['/queues/mail/resume', {}],
    updateJob: [`/jobs/${house.ids.waiting}/update`, { priority: 4 }],
    claimJobs: ['/queues/mail/claim', { limit: 1, client: 'a script' }],
    completeJob: ['/claims/complete', { handle: 'none' }],
    failJob: ['/claims/fail', { handle: 'none', error: 'no paper' }],
    releaseJob: ['/claims/release', { handle: 'none' }],
    extendClaim: ['/claims/extend', { handle: 'none' }],
    releaseWorker: ['/workers/999999/release', {}],
    charts: ['/charts?range=24h'],
    listErrors: ['/errors'],
    listJobs: ['/jobs?limit=2'],
    getJob: [`/jobs/${house.ids.complete}`],
    getJobPayload: [`/jobs/${house.ids.complete}/payload`],
    getJobResult: [`/jobs/${house.ids.complete}/result`],
    getJobProgress: [`/jobs/${house.ids.complete}/progress`],
    listJobSiblings: [`/jobs/${house.ids.complete}/siblings`],
    jobEvents: [`/jobs/${house.ids.complete}/events`],
    enqueueJob: ['/queues/mail/jobs', { kind: 'send', payload: { to: 'eve' }, key: 'eve', priority: 3 }],
    retryJob: [`/jobs/${house.ids.failed}/retry`, {}],
    finishJob: [`/jobs/${house.ids.complete}/finish`, { result: 1 }],
    skipJob: [`/jobs/${house.ids.failed}/skip`, {}],
    redriveJob: [`/jobs/${house.ids.complete}/redrive`, {}],
    eraseJob: ['/jobs/999999'],
    addFlow: ['/flows', { name: 'first', queue: 'mail', kind: 'send' }],
    makeBatch: ['/batches', { queue: 'mail', onDone: { kind: 'send' } }],
    addToBatch: ['/batches/1/jobs', { kind: 'send' }],
    sealBatch: ['/batches/1/seal', {}],
    listBatches: ['/batches?queue=mail&limit=5'],
    getBatch: ['/batches/1'],
    listTopics: ['/topics'],
    publish: ['/topics/news/jobs', { payload: 1 }],
    removeQueue: ['/queues/unused'],
    cancelJob: [`/jobs/${house.ids.waiting}/cancel`, { reason: 'sent twice' }],
    previewBulk: ['/bulk/preview', { action: 'retry', query: 'status:error' }],
    startBulk: ['/bulk', { action: 'cancel', query: 'status:new', queue: 'later' }],
    listBulk: ['/bulk'],
    getBulk: ['/bulk/1'],
    listBulkResults: ['/bulk/1/results'],
    stopBulk: ['/bulk/999/stop', {}],
    listLocks: ['/locks?contended=true'],
    lockGraph: ['/locks/graph'],
    hottestLocks: ['/locks/hottest'],
    getLock: ['/locks/one?name=invoice:42'],
    breakLock: ['/locks/break', { name: 'invoice:42', reason: 'a test' }],
    lockHistory: ['/locks/one/history?name=invoice:42'],
    acquireLock: ['/locks', { name: 'deploy', lease: '1m' }],
    renewLock: ['/locks/renew', { name: 'deploy', handle: NO_HANDLE }],
    releaseLock: ['/locks/release', { name: 'deploy', handle: NO_HANDLE }],
    listActorTypes: ['/actor-types'],
    actorDiagram: ['/actor-types/server/diagram?format=svg&counts=true'],
    listActors: ['/actors?type=server'],
    getActor: [`/actors/${house.ids.actor}`],
    listActorHistory: [`/actors/${house.ids.actor}/history?limit=1`],
    listActorFields: [`/actors/${house.ids.actor}/fields?limit=1`],
    incrActor: [`/actors/${house.ids.actor}/incr`, { semaphore: 'configure' }],
    sendToActor: [`/actors/${house.ids.actor}/messages`, { name: 'hello', payload: { a: 1 } }],
    askActor: [`/actors/${house.ids.actor}/ask`, { name: 'hello', wait: '20ms' }],
    retryActor: [`/actors/${house.ids.actor}/retry`, {}],
    moveActor: [`/actors/${house.ids.actor}/move`, { state: 'running', patch: { starts: 3 }, reason: 'a test' }],
    pauseActor: [`/actors/${house.ids.actor}/pause`, {}],
    resumeActor: [`/actors/${house.ids.actor}/resume`, {}],
    pauseActorType: ['/actor-types/server/pause', { state: 'running' }],
    resumeActorType: ['/actor-types/server/resume', { state: 'running' }],
    workActor: [`/actors/${house.ids.actor}/work`, {}],
    destroyActor: [`/actors/${house.ids.actor}/destroy`, {}],
    listSchedules: ['/schedules'],
    runSchedule: ['/schedules/mail/nightly/run', {}],
    listScheduleRuns: ['/schedules/mail/nightly/runs?limit=5'],
    pauseSchedule: ['/schedules/mail/nightly/pause', {}],
    resumeSchedule: ['/schedules/mail/nightly/resume', {}],
    setSchedule: ['/schedules/mail/nightly', { cron: '0 4 * * *', kind: 'send' }],
    deleteSchedule: ['/schedules/mail/nightly'],
    listPages: ['/pages?status=all'],
    getPage: [`/pages/${house.ids.page}`],
    getPageHtml: [`/pages/${house.ids.page}/html`],
    ackPage: [`/pages/${house.ids.page}/ack`, {}],
    resolvePage: [`/pages/${house.ids.page}/resolve`, {}],
    listHistory: ['/history'],
    listAudit: ['/audit'],
    listCaptures: ['/captures'],
    getCapture: ['/captures/person'],
    listChanges: ['/captures/person/changes'],
    planCapture: ['/captures/person/plan'],
    verifyCapture: ['/captures/person/verify'],
    applyCapture: ['/captures/person/apply', {}],
    replayCapture: ['/captures/person/replay', { into: 'badge' }],
    reconcileCapture: ['/captures/person/reconcile', { dryRun: true }],
    detachCapture: ['/captures/person/detach', { confirm: 'another' }],
    listFiles: ['/files?prefix=doc'],
    listFileStores: ['/files/stores'],
    listFileReloads: ['/files/reloads'],
    getFile: ['/files/one?id=doc/1'],
    fileHistory: ['/files/one/history?id=doc/1'],
    readFile: ['/files/one/content?id=doc/1'],
    writeFile: ['/files/one/content?id=doc/2', { any: 'bytes' }],
    restoreFile: ['/files/restore', { id: 'doc/1', version: 1, ifVersion: 2 }],
    removeFile: ['/files/remove', { id: 'doc/2' }],
    sweepFiles: ['/files/sweep', {}],
    reconcileFiles: ['/files/reconcile', {}],
    quarantineFiles: ['/files/quarantine', {}],
    rearmFiles: ['/files/rearm', { confirm: '' }],
  });
  const REFUSED: Readonly<Record<string, number>> = {
    runDevControl: 404,
    // Nothing runs its actors.
    askActor: 504,
    stopBulk: 404,
    releaseWorker: 404,
    finishJob: 409,
    skipJob: 409,
    redriveJob: 400,
    eraseJob: 404,
    completeJob: 400,
    failJob: 400,
    releaseJob: 400,
    extendClaim: 400,
    detachCapture: 400,
    renewLock: 409,
    releaseLock: 409,
  };

  test('of each operation there is', async () => {
    const check = answersOf(document);
    await createQueue(house.engine, 'unused', { kinds: { one: {} } }).register();
    const asked = requests();
    const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => ({ path, method: method.toUpperCase(), operationId })),
    );
    expect(operations.map(({ operationId }) => operationId).sort()).toEqual(Object.keys(asked).sort());
    for (const operationId of Object.keys(asked)) {
      const operation = operations.find((one) => one.operationId === operationId);
      const [path = '', body] = asked[operationId] ?? [];
      const method = operation?.method ?? '';
      const answer = await api(path, { method, ...(method === 'POST' || method === 'PUT' ? { body } : {}) });
      const wanted = REFUSED[operationId];
      const what = `${operationId}: ${answer.text.slice(0, 300)}`;
      if (wanted === undefined) expect(answer.status, what).toBeLessThan(300);
      else expect(answer.status, what).toBe(wanted);
      if (answer.headers.get('content-type')?.startsWith('application/json') !== true) continue;
      const validate = check(method, operation?.path ?? '', answer.status);
      expect(validate(answer.body) || validate.errors, what).toBe(true);
    }
  });
});

test('numbers beyond 2^53 come back to the letter, and go in so', async () => {
  const body = '{"kind":"send","payload":{"order":12345678901234567890123,"rate":0.1000}}';
  const { body: added, status } = await api('/queues/mail/jobs', { method: 'POST', body });
  expect(status).toBe(201);
  const { text } = await api(`/jobs/${String(added['id'])}/payload`);
  expect(text.replaceAll(' ', '')).toBe('{"rate":0.1000,"order":12345678901234567890123}');
});

test('a list goes on where its page before ended, and misses and repeats nothing', async () => {
  for (let n = 0; n < 7; n += 1) await post('/queues/mail/jobs', { kind: 'send', payload: { paged: n } });
  const seen: unknown[] = [];
  let after: unknown = '';
  for (let pages = 0; after !== null && pages < 50; pages += 1) {
    const { body } = await api(`/jobs?q=paged&limit=3${after === '' ? '' : `&after=${after as string}`}`);
    seen.push(...(body.items ?? []).map((job) => job['id']));
    after = String(body['after']);
  }
  expect(new Set(seen).size).toBe(seen.length);
  expect(seen).toHaveLength(7);
  for (const path of ['/history', '/audit', '/actors', '/pages', '/locks', '/jobs']) {
    const { status, body } = await api(`${path}?after=bm9uc2Vuc2U`);
    expect([path, status, body.error?.code]).toEqual([path, 400, 'invalid_input']);
  }
});

test('what turns changed in the fields of an actor is listed, newest first, and goes on', async () => {
  const id = await house.addServer();
  for (let n = 1; n <= 3; n += 1) {
    const { body } = await post(`/actors/${id}/work`);
    expect(body['kind']).toBe('to');
  }
  const changes: unknown[] = [];
  let after: unknown = '';
  for (let pages = 0; after !== null && pages < 9; pages += 1) {
    const { body } = await api(`/actors/${id}/fields?limit=1${after === '' ? '' : `&after=${after as string}`}`);
    changes.push(...(body.items ?? []));
    after = String(body['after']);
  }
  expect(changes).toMatchObject([
    { state: 'creating', before: { starts: 1 }, after: { starts: 2 } },
    { state: 'creating', before: {}, after: { starts: 1 } },
  ]);
  expect((await api('/actors/999999/fields')).status).toBe(404);
  expect((await api(`/actors/${id}/fields?after=bm9uc2Vuc2U`)).body.error?.code).toBe('invalid_input');
});

test('the history over all parts goes on exactly where a page ended', async () => {
  const whole = (await api('/history?limit=100')).body.items ?? [];
  expect(whole.length).toBeGreaterThan(8);
  const until = encodeURIComponent(new Date().toISOString());
  const first = (await api(`/history?limit=4&until=${until}`)).body;
  const second = (await api(`/history?limit=4&until=${until}&after=${String(first['after'])}`)).body;
  const four = (await api(`/history?limit=8&until=${until}`)).body.items;
  expect([...(first.items ?? []), ...(second.items ?? [])]).toEqual(four);
});

test('the history has every event of a moment, however many there are and wherever a page ends', async () => {
  const queue = createQueue(house.engine, 'together', { kinds: { one: { attempts: 1 } } });
  let go = (): void => {};
  const gone = new Promise<void>((resolve) => {
    go = resolve;
  });
  let running = 0;
  const one = async ({ payload }: Unit): Promise<never> => {
    running += 1;
    await gone;
    throw new Error(`no. ${String(payload)}`); // alike ones would be one event
  };
  await queue.enqueueMany(Array.from({ length: 40 }, (_, payload) => ({ kind: 'one' as const, payload })));
  const worker = queue.work({ one }, { concurrency: 40 });
  await until('all run', () => running === 40);
  go(); // one settlement or two write all of them
  await until('all have failed', async () => (await queue.stats()).error === 40);
  await worker.stop();
  const end = encodeURIComponent(new Date(Date.now() + 60_000).toISOString());
  const of = `/history?part=job&of=together&until=${end}`;
  const ids: unknown[] = [];
  for (let after = ''; after !== 'null'; ) {
    const { body } = await api(`${of}&limit=3${after === '' ? '' : `&after=${after}`}`);
    ids.push(...(body.items ?? []).map(({ id }) => id));
    after = String(body['after']);
  }
  const whole = (await api(`${of}&limit=200`)).body.items ?? [];
  expect(whole).toHaveLength(40);
  expect(ids).toEqual(whole.map(({ id }) => id));
});

test('the history has each lock of a set, wherever a page ends', async () => {
  const locks = createLocks(house.engine, { namespace: 'sets' });
  const set = await locks.acquire(['a', 'b', 'c'], { lease: '1m' });
  const names: unknown[] = [];
  for (let after = ''; after !== 'null'; ) {
    const { body } = await api(`/history?part=lock&limit=1${after === '' ? '' : `&after=${after}`}`);
    names.push(...(body.items ?? []).filter(({ namespace }) => namespace === 'sets').map(({ subject }) => subject));
    after = String(body['after']);
  }
  expect(names).toEqual(expect.arrayContaining(['a', 'b', 'c']));
  expect(names).toHaveLength(3);
  await set.release();
  await locks.stop();
});

test('the moves of an actor go on exactly where a page ended, newest first', async () => {
  const id = await house.addServer();
  for (const verb of ['work', 'destroy', 'work', 'work']) await post(`/actors/${id}/${verb}`, {});
  const of = `/actors/${id}/history`;
  const whole = (await api(of)).body.items ?? [];
  expect(whole.at(-1)).toMatchObject({ from: null, reason: 'created' });
  const first = (await api(`${of}?limit=2`)).body;
  const second = (await api(`${of}?limit=1000&after=${String(first['after'])}`)).body;
  expect([...(first.items ?? []), ...(second.items ?? [])]).toEqual(whole);
  expect([first.items?.length, second['after']]).toEqual([2, null]);
  expect(whole.length).toBeGreaterThan(2);
  expect((await api('/actors/999999/history')).status).toBe(404);
});

test('errors have one shape, with a code and the field', async () => {
  const bad = await post('/queues/mail/jobs', { kind: 'send', prioritty: 1 });
  expect(bad.status).toBe(400);
  expect(bad.body.error).toMatchObject({
    code: 'invalid_input',
    field: 'prioritty',
    message: expect.stringContaining('priority'),
  });
  expect((await api('/jobs/999999999')).body.error).toMatchObject({ code: 'not_found', requestId: expect.any(String) });
  expect((await post(`/jobs/${house.ids.complete}/retry`)).status).toBe(409);
  expect((await api('/jobs?limit=5000')).body.error).toMatchObject({ code: 'invalid_input', field: 'limit' });
  expect((await api('/queues', { method: 'PUT', body: {} })).body.error).toMatchObject({ code: 'method_not_allowed' });
  expect((await house.open({ files: [] }).ask('/api/v1/files/one/content?id=doc/1')).body.error).toMatchObject({
    code: 'not_supported',
  });
  expect((await api('/nothing')).status).toBe(404);
  // A name is decoded once, so that one with a percent sign can be asked for; and what is no UTF-8 is said to be so.
  expect((await api('/queues/50%2541%2Fx')).body.error?.message).toContain('"50%41/x"');
  expect((await api('/queues/a%ff')).status).toBe(400);
  const plain = await api('/bulk', { method: 'POST', body: '{}', headers: { 'content-type': 'text/plain' } });
  expect([plain.status, plain.body.error?.code]).toEqual([415, 'unsupported_media_type']);
  const long = await post('/queues/mail/jobs', { kind: 'send', payload: 'x'.repeat(1024 * 1024) });
  expect([long.status, long.body.error?.code]).toEqual([413, 'body_too_large']);
});

test('a job shows the locks that its handler holds and held, though others run at the same time; and the locks name the job', async () => {
  const locks = createLocks(house.engine);
  const queue = createQueue(house.engine, 'locking', { kinds: { lock: { payload: v.number() } } });
  const seen = new Map<string, unknown>();
  const holder = async (name: string): Promise<unknown> => {
    const [held] = (await api(`/locks?name=${name}`)).body['items'] as { job: unknown }[];
    return held?.job;
  };
  const ids = (await queue.enqueueMany([1, 2].map((n) => ({ kind: 'lock' as const, payload: n })))).map(String);
  const worker = queue.work({
    lock: async ({ job: { id, payload } }) => {
      await locks.request(`given back ${payload}`, async () => {});
      await locks.request([`stock ${payload}`, `shelf ${payload}`], async () => {
        await until('both hold theirs', async () => (await locks.query()).held.length >= 4);
        seen.set(id, [(await api(`/jobs/${id}`)).body['locks'], await holder(`stock ${payload}`)]);
      });
    },
  });
  await queue.drain();
  const [first = ''] = ids;
  expect(seen.get(first)).toEqual([
    [
      expect.objectContaining({ name: 'shelf 1', state: 'held', endedAt: null, pid: process.pid }),
      expect.objectContaining({ name: 'stock 1', state: 'held', outcome: null }),
      expect.objectContaining({ name: 'given back 1', state: 'ended', outcome: 'released' }),
    ],
    first,
  ]);
  const after = (await api(`/jobs/${first}`)).body['locks'];
  expect(after).toMatchObject([{ name: 'shelf 1', state: 'ended' }, { name: 'stock 1' }, { name: 'given back 1' }]);
  expect((await api('/locks/one/history?name=stock%202')).body['items']).toMatchObject([{ job: ids[1] }]);
  await worker.stop();
  await locks.stop();
  expect((await api(`/jobs/${house.ids.waiting}`)).body['locks']).toEqual([]);
});

test('a capture is planned, filled anew, compared and taken out', async () => {
  const plan = async (): Promise<unknown> => (await api('/captures/person/plan')).body;
  expect(await plan()).toEqual({ by: 'declared', sql: '', differences: [] });
  await house.engine.query(statement('test.disable', 'alter table person disable trigger all'));
  expect(await plan()).toMatchObject({ sql: expect.stringContaining('enable always'), differences: expect.anything() });
  const undeclared = house.open({ captures: [] });
  expect((await undeclared.ask('/api/v1/captures/person/plan')).body).toMatchObject({
    by: 'installed',
    sql: expect.stringContaining('enable always'),
  });
  expect((await api('/captures/person/verify')).body).toMatchObject({ isWhole: false });
  const mended = await post('/captures/person/apply');
  expect(mended.body).toMatchObject({
    mended: expect.arrayContaining([expect.objectContaining({ object: 'person: insert' })]),
  });
  expect((await post('/captures/person/apply')).body).toEqual({ mended: [] });
  expect((await api('/captures/person/verify')).body).toEqual({ isWhole: true, differences: [] });

  const again = await post('/captures/person/replay', { again: true });
  expect(again.body).toMatchObject({ begun: ['badge'], consumers: [{ name: 'badge', sweepDone: 0 }] });
  expect((await post('/captures/person/replay', { into: 'none' })).status).toBe(404);
  const worker = house.capture.projections[0]?.run();
  await until('the worker has filled it', async () => {
    const [row] = await house.engine.query<{ n: number }>(statement('test.n', 'select count(*)::int as n from badge'));
    return row?.n === 1;
  });
  await house.capture.projections[0]?.settled();
  await worker?.stop();
  await house.engine.query(statement('test.drift', "update badge set name = 'wrong'"));
  const compared = await post('/captures/person/reconcile');
  expect(compared.body.items).toEqual([{ name: 'badge', checked: 1, drifted: 1, keys: ['1'] }]);
  const blind = await undeclared.ask('/api/v1/captures/person/reconcile', { method: 'POST', body: {} });
  expect([blind.status, blind.body.error?.code]).toEqual([501, 'not_supported']);

  expect((await post('/captures/person/detach', { confirm: 'persons' })).body.error?.field).toBe('confirm');
  expect((await post('/captures/person/detach', { confirm: 'person' })).body).toMatchObject({ detached: true });
  expect((await api('/captures/person')).status).toBe(404);
  expect((await api('/captures')).body).toMatchObject({ items: [], missing: ['person'] });
  expect((await post('/captures/person/apply')).status).toBe(200);
  expect((await api('/captures')).body).toMatchObject({ items: [{ entity: 'person' }], missing: [] });
});

test('a turn of an actor is run by hand, where the server has its program', async () => {
  const id = await house.addServer();
  expect((await api(`/actors/${id}`)).body).toMatchObject({ state: 'creating', hasProgram: true });
  await post(`/actors/${id}/pause`);
  expect((await post(`/actors/${id}/work`)).body).toEqual({ kind: 'to', from: 'creating', to: 'running', error: null });
  const blind = house.open({ actors: [] });
  const refused = await blind.ask(`/api/v1/actors/${id}/work`, { method: 'POST', body: {} });
  expect([refused.status, refused.body.error?.code]).toEqual([501, 'not_supported']);
  await post(`/actors/${id}/destroy`);
  expect((await post(`/actors/${id}/work`)).body).toMatchObject({ kind: 'to', to: 'gone' });
  expect((await post(`/actors/${id}/work`)).body).toMatchObject({ kind: 'done' });
  expect((await post(`/actors/${id}/work`)).body.error?.code).toBe('conflict');
  expect((await post('/actors/999999/work')).status).toBe(404);
});

test('what is enqueued is checked by the schema of its kind, where the server was given the queue', async () => {
  const send = { payload: v.object({ to: v.string(), copies: v.number() }), unique: 'key' } as const;
  const letters = createQueue(house.engine, 'letters', { kinds: { send } });
  await letters.register();
  const knowing = house.open({ queues: [letters] });
  const add = async (payload: unknown, of = knowing, key: string | undefined = 'k'): Promise<Answer> =>
    of.ask('/api/v1/queues/letters/jobs', { method: 'POST', body: { kind: 'send', payload, key } });
  const bad = await add({ to: 7, copies: 1 });
  expect([bad.status, bad.body.error?.field]).toEqual([400, 'payload.to']);
  expect((await add({ to: 'ada', copies: 1 }, knowing, '')).body.error?.field).toBe('key');
  expect((await add({ to: 'ada', copies: 1 })).status).toBe(201);
  // Who does not know it lets it in, and it fails when it runs.
  expect((await add({ to: 7 }, visitor, 'l')).status).toBe(201);
  expect(() => house.open({ queues: [{}] as never })).toThrow(/createQueue/);
});

test('a page is downloaded with its diagnostics, except where values are hidden', async () => {
  const { status, text, headers } = await api(`/pages/${house.ids.page}/html`);
  expect([status, headers.get('content-security-policy')]).toEqual([200, "default-src 'none'; sandbox"]);
  expect(text).toContain('the disk is full');
  const hiding = house.open({ redact: { keys: ['secret'] } });
  expect((await hiding.ask(`/api/v1/pages/${house.ids.page}/html`)).status).toBe(501);
  expect((await api(`/pages?status=all&actor=${house.ids.actor}`)).body.items).toEqual([]);
});

test('a statement that takes too long is broken off as 504, and the connection is used on', async () => {
  const hurried = house.open({ statementTimeout: '100ms' });
  await house.engine.transaction(async (tx) => {
    await tx.query(statement('test.lock', 'lock table pawl.http_audit in access exclusive mode'));
    const { status, body } = await hurried.ask('/api/v1/audit');
    expect([status, body.error?.code]).toEqual([504, 'statement_timeout']);
  });
  expect((await hurried.ask('/api/v1/audit')).status).toBe(200);
});

test('health, readiness and metrics are where monitors look for them', async () => {
  expect((await visitor.ask('/healthz', { from: null })).body).toEqual({ status: 'ok' });
  expect((await visitor.ask('/readyz', { from: null })).status).toBe(200);
  const { text, status, headers } = await visitor.ask('/metrics');
  expect(status).toBe(200);
  expect(headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
  expect(text).toMatch(/^pawl_queue_jobs\{queue="later",place="delayed"\} \d+$/m);
  for (const line of text.trim().split('\n')) {
    expect(line).toMatch(
      /^(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[\d.]+(e[+-]?\d+)?)$/,
    );
  }
});
