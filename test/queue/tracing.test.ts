import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { telemetry } from '../../src/base/telemetry.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createHttp } from '../../src/http/index.ts';
import { createQueue, type Queue } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { OPEN_DOOR } from '../support/servers/open-door.ts';
import { type RecordedSpan, type Recorder, recordTelemetry } from '../support/strange/otel.ts';

const kinds = { send: {}, once: { unique: 'key' }, fail: { attempts: 1 } } as const;
const GIVEN = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
const TWO = [
  { kind: 'send', payload: 1 },
  { kind: 'send', payload: 2 },
] as const;
const SINK = statement('test.read', 'select 1 as one');

let engine: PostgresEngine;
let queue: Queue<typeof kinds>;
let recorder: Recorder;

beforeAll(async () => {
  engine = postgres((await freshDatabase()).url, { max: 6 });
  queue = createQueue(engine, 'mail', { kinds });
  await queue.register();
  return () => engine.stop();
});

const named = (name: string): RecordedSpan[] => recorder.spans.filter((span) => span.name === name);
const linked = (span: RecordedSpan | undefined): string | undefined => span?.links[0]?.context.traceId;
const traces = async (): Promise<number> => {
  const [row] = await engine.query<{ n: number }>(
    statement('test.traces', 'select count(*)::int as n from pawl.queue_trace'),
  );
  return row?.n ?? 0;
};

async function work(hold: 'lease' | 'transaction' = 'lease'): Promise<void> {
  const worker = queue.work(
    {
      send: async () => void (await engine.query(SINK)),
      once: () => {},
      fail: async () => {
        throw new TypeError('no such mailbox');
      },
    },
    { hold, concurrency: 2 },
  );
  await queue.drain();
  await worker.stop();
}

test('without OpenTelemetry only a given traceparent is written', async () => {
  await queue.enqueue('send', {});
  await queue.enqueueMany(TWO);
  expect(await traces()).toBe(0);
  const { id } = await queue.enqueue('send', {}, { traceparent: GIVEN });
  const http = createHttp(engine, { auth: OPEN_DOOR });
  const job = await http(new Request(`http://localhost/api/v1/jobs/${id}`), { remoteAddress: '127.0.0.1' });
  expect(await job.json()).toMatchObject({ traceparent: GIVEN });
  await expect(queue.enqueue('send', {}, { traceparent: 'nonsense' })).rejects.toMatchObject({ field: 'traceparent' });
  await work();
  expect(telemetry.api).toBeUndefined();
});

test('with OpenTelemetry, a run links to the trace of its enqueue, statements are spans, and both are measured', async () => {
  recorder = recordTelemetry();
  onTestFinished(() => recorder.stop());
  await telemetry.ready();

  // The run links to the trace of the enqueue, in a transaction and without one.
  await recorder.within('checkout', async () => {
    await queue.enqueue('send', {});
    await queue.enqueueMany(TWO);
    await engine.transaction((tx) => queue.enqueue('send', {}, { tx }));
    await engine.transaction((tx) => queue.enqueueMany(TWO, { tx }));
    for (let twice = 0; twice < 2; twice += 1) await queue.enqueue('once', {}, { key: 'a' });
  });
  const [checkout] = named('checkout');
  const sent = named('send mail');
  expect(sent).toHaveLength(6);
  for (const span of sent) expect([span.kind, span.parent]).toEqual([3, checkout?.context.spanId]);
  expect(sent[1]?.attributes).toMatchObject({
    'messaging.system': 'pawl',
    'messaging.destination.name': 'mail',
    'messaging.operation.type': 'send',
    'messaging.batch.message_count': 2,
  });
  const add = named('queue.add_traced')[0];
  expect(add?.attributes).toMatchObject({ 'db.system.name': 'postgresql', 'db.query.summary': 'queue.add_traced' });
  expect(add?.parent).toBe(sent[0]?.context.spanId);
  expect(await traces()).toBe(8);
  recorder.forget();

  await work();
  const processed = named('process mail');
  expect(processed).toHaveLength(7);
  expect(new Set(processed.map(linked))).toEqual(new Set([checkout?.context.traceId]));
  for (const { kind, context } of processed) {
    expect(kind).toBe(4);
    expect(context.traceId).not.toBe(checkout?.context.traceId);
  }
  // Statements of a handler are children of its span; statements of the worker itself have no trace.
  const own = named('test.read');
  expect(own).toHaveLength(6);
  expect(processed.map(({ context }) => context.spanId)).toContain(own[0]?.parent);
  expect(recorder.spans.filter(({ name }) => name.startsWith('queue.'))).toEqual([]);

  // The span of a failed job has the error.
  await queue.enqueue('fail', {}, { traceparent: GIVEN });
  await work('transaction');
  const failed = named('process mail').find(({ status }) => status.code !== 0);
  expect(failed).toMatchObject({
    status: { code: 2 },
    attributes: { 'error.type': 'TypeError', 'pawl.job.attempt': 1 },
  });
  expect(linked(failed)).toBe(GIVEN.slice(3, 35));

  const counts = await recorder.measured();
  // An enqueue of a unique job that exists already counts as sent, too.
  expect(counts).toMatchObject({ 'messaging.client.sent.messages': 9, 'messaging.process.duration': 8 });
  expect(counts['db.client.operation.duration']).toBeGreaterThan(20);
});

test('jobs of a unique kind that are sent together have their trace, and those that were there already have none', async () => {
  recorder = recordTelemetry();
  onTestFinished(() => recorder.stop());
  await telemetry.ready();
  const single = createQueue(engine, 'single', { kinds: { job: { unique: { by: 'key' } } } });
  const many = (...keys: string[]): { kind: 'job'; payload: null; key: string }[] =>
    keys.map((key) => ({ kind: 'job', payload: null, key }));
  const before = await traces();
  await recorder.within('checkout', async () => {
    expect((await single.enqueueMany(many('a', 'b', 'a'))).duplicates).toEqual([2]);
    const ids = await engine.transaction((tx) => single.enqueueMany(many('b', 'c', 'c'), { tx }));
    expect(ids.duplicates).toEqual([0, 2]);
  });
  expect(await traces()).toBe(before + 3);
});

test('a request is a span, and the job it enqueues is linked to it', async () => {
  recorder = recordTelemetry();
  onTestFinished(() => recorder.stop());
  const http = createHttp(engine, { auth: OPEN_DOOR });
  const response = await http(
    new Request('http://localhost/api/v1/queues/mail/jobs', {
      method: 'POST',
      body: '{"kind":"send"}',
      headers: { 'content-type': 'application/json', traceparent: GIVEN },
    }),
    { remoteAddress: '127.0.0.1' },
  );
  expect(response.status).toBe(201);
  const [request] = named('POST /queues/{queue}/jobs');
  expect(request).toMatchObject({ kind: 1, attributes: { 'http.response.status_code': 201 } });
  expect([request?.context.traceId, request?.parent]).toEqual(GIVEN.split('-').slice(1, 3));
  const { id } = (await response.json()) as { id: string };
  await work();
  const run = named('process mail').find(({ attributes }) => attributes['messaging.message.id'] === id);
  expect(linked(run)).toBe(request?.context.traceId);
});
