import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import pg from 'pg';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createHttp, type HttpServer, nodeListener, serve } from '../../../src/http/index.ts';
import { until } from '../../support/eventually.ts';
import { type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

// The first test of this file: a class that was put in place of a global one stays there.
test('the classes of Node stay those of the program that mounts the API', () => {
  const before = { Request, Response };
  nodeListener(house.open().handler);
  expect({ Request, Response }).toEqual(before);
  expect(globalThis.Request).toBe(before.Request);
  expect(Response.json({}) instanceof before.Response).toBe(true);
});

async function served(visitor: Visitor = house.open()): Promise<HttpServer> {
  const server = await serve(visitor.handler);
  onTestFinished(() => server.stop());
  return server;
}

describe('a server that is told to end', () => {
  const waitsForLock = statement(
    'test.waits',
    `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%http_enqueue%'`,
  );

  test('finishes the requests that are under way', async () => {
    const server = await served();
    let ended: Promise<void> | undefined;
    const answer = await house.engine.transaction(async (tx) => {
      await tx.query(statement('test.lock', 'lock table pawl.http_once in access exclusive mode'));
      const asked = fetch(new URL('api/v1/queues/mail/jobs', server.url), {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': 'under-way' },
        body: JSON.stringify({ kind: 'send' }),
      });
      await until('it waits', async () => (await house.engine.query(waitsForLock)).length > 0);
      ended = server.stop();
      return { asked };
    });
    const response = await answer.asked;
    expect([response.status, await response.json()]).toMatchObject([201, { duplicate: false }]);
    await ended;
  });

  test('answers those who wait for a job, with its status by then', async () => {
    const visitor = house.open();
    const server = await served(visitor);
    const asked = fetch(new URL('api/v1/queues/mail/jobs?wait=30s', server.url), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ kind: 'send', delay: '1h', key: 'waited-for' }),
    });
    const found = statement('test.found', `select 1 from pawl.queue_job where key = 'waited-for'`);
    await until('it is there', async () => (await house.engine.query(found)).length > 0);
    await server.stop();
    expect(await (await asked).json()).toMatchObject({ status: 'new' });
  });
});

test('an upload may take an hour: Node would end it after five minutes', async () => {
  const { url } = await served();
  let limitMs = 0;
  const note = (message: unknown): void => {
    const server: Server = Reflect.get(Object(message), 'server');
    limitMs = server.requestTimeout;
  };
  subscribe('http.server.request.start', note);
  onTestFinished(() => void unsubscribe('http.server.request.start', note));
  await fetch(new URL('healthz', url));
  expect(limitMs).toBe(3_600_000);
});

test('a stranger who sends the body of a login slowly does not hold a connection', async () => {
  const { handler } = house.open({ auth: { users: [{ name: 'ada', password: PASSWORD, role: 'viewer' }] } });
  const body = new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode('{')) });
  const init: RequestInit & { duplex: 'half' } = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    duplex: 'half',
  };
  const answer = await handler(new Request('http://localhost/api/v1/login', init), { remoteAddress: '203.0.113.1' });
  expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code: 'body_incomplete' } }]);
});

const PASSWORD = `scrypt$17$8$1$${'A'.repeat(22)}$${'A'.repeat(43)}`;

test('readyz asks the database once a second, however many ask', async () => {
  const pool = new pg.Pool({ connectionString: house.url });
  onTestFinished(() => pool.end());
  let asked = 0;
  pool.on('acquire', () => void (asked += 1));
  await using engine = postgres(pool);
  await using handler = createHttp(engine);
  const begun = performance.now();
  for (let n = 0; n < 20; n += 1) {
    const ready = Array.from({ length: 10 }, () => handler(new Request('http://localhost/readyz'), {}));
    expect(new Set((await Promise.all(ready)).map(({ status }) => status))).toEqual(new Set([200]));
  }
  expect(asked).toBeLessThanOrEqual(3 + (performance.now() - begun) / 1000);
});
