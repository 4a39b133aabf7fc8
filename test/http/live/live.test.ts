import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import express from 'express';
import fastify from 'fastify';
import { Hono } from 'hono';
import pg from 'pg';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { fastifyPlugin, nextHandlers, nodeListener, serve } from '../../../src/http/index.ts';
import { until } from '../../support/eventually.ts';
import { type House, makeHouse } from '../house.ts';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

interface StreamEvent {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Reads a stream as a browser does. */
async function watch(url: string, lastId?: string): Promise<{ events: StreamEvent[]; close: () => void }> {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const headers = lastId === undefined ? {} : { 'last-event-id': lastId };
  const response = await fetch(new URL('api/v1/events', url), { headers, signal: ending.signal });
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  const events: StreamEvent[] = [];
  const read = async (): Promise<void> => {
    let rest = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      rest += decoder.decode(chunk, { stream: true });
      const parts = rest.split('\n\n');
      rest = parts.pop() ?? '';
      for (const part of parts) {
        const fields = Object.fromEntries(part.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
        if (fields['id'] !== undefined) events.push(fields as unknown as StreamEvent);
      }
    }
  };
  void read().catch(() => {});
  return { events, close: () => ending.abort() };
}

describe('live updates', () => {
  test('come when something has changed, and are taken up again where they broke off', async () => {
    const { handler, ask } = house.open({ live: '250ms' });
    const served = await serve(handler);
    onTestFinished(() => served.stop());
    const first = await watch(served.url);
    const picture = await until('the first picture', () => first.events[0]);
    expect(JSON.parse(picture.data)).toMatchObject({ queues: expect.any(Array), locks: { held: 1, waiting: 1 } });
    await ask('/api/v1/queues/mail/pause', { method: 'POST', body: {} });
    const paused = await until('the pause is told', () =>
      first.events.find(({ data }) => /"name":"mail","stats":\{[^}]*"pausedAt":"/.test(data)),
    );
    first.close();
    await ask('/api/v1/queues/mail/resume', { method: 'POST', body: {} });
    const again = await watch(served.url, paused.id);
    await until('the end of the pause is told', () => again.events.some(({ data }) => !/"pausedAt":"/.test(data)));
    expect(again.events.map(({ id }) => id)).not.toContain(paused.id);
    // Of another process, or of long ago: the whole picture.
    const stranger = await watch(served.url, 'elsewhere:7');
    await until('a picture', () => stranger.events.length > 0);
  });

  test('cost the database the same for a hundred watchers as for one, and nothing for none', async () => {
    const { handler } = house.open({ live: '250ms', streams: { perCaller: 100 } });
    const served = await serve(handler);
    onTestFinished(() => served.stop());
    const name = new URL(served.url);
    const watchers = await Promise.all(Array.from({ length: 100 }, () => watch(name.href)));
    await until('all are told', () => watchers.every(({ events }) => events.length > 0));
    const begun = performance.now();
    const asked = await snapshotsWithin(1000);
    // One each 250 ms, however long the machine takes to look.
    expect(asked).toBeLessThanOrEqual((performance.now() - begun) / 250 + 2);
    for (const { close } of watchers) close();
    await until('nothing is asked any more', async () => (await snapshotsWithin(700)) === 0);
  });
});

/** How often the picture was asked for, as the server counts its calls of what it is made with. */
async function snapshotsWithin(ms: number): Promise<number> {
  const before = await calls();
  await new Promise((resolve) => setTimeout(resolve, ms));
  return (await calls()) - before;
}

async function calls(): Promise<number> {
  const [row] = (await counter.query('select count(*)::int as n from test_snapshot_calls')).rows;
  return row.n;
}

let counter: pg.Client;
beforeAll(async () => {
  const { url } = await describeHouse();
  counter = new pg.Client(url);
  await counter.connect();
  // The picture reads each type of actors through this function, once.
  await counter.query(`
    create table test_snapshot_calls (at timestamptz default clock_timestamp());
    alter function pawl.actor_counts(smallint, int) rename to actor_counts_real;
    create function pawl.actor_counts(p_type smallint, p_limit int) returns json language plpgsql volatile as $$
    begin insert into public.test_snapshot_calls default values; return pawl.actor_counts_real(p_type, p_limit); end $$`);
  return () => counter.end();
});

async function describeHouse(): Promise<{ url: string }> {
  const [row] = await house.engine.query<{ name: string }>({
    name: 'test.name',
    text: 'select current_database() as name',
    prepare: false,
  });
  const { inject } = await import('vitest');
  const url = new URL(inject('serverUrl'));
  url.pathname = `/${row?.name}`;
  return { url: url.href };
}

describe('it can be mounted', () => {
  const put = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"kind":"send","payload":1}' };

  async function works(base: string): Promise<void> {
    const api = `${base}/pawl/api/v1`;
    expect((await fetch(`${api}/me`)).status).toBe(200);
    const added = await fetch(`${api}/queues/mail/jobs`, put);
    expect(added.status).toBe(201);
    expect(
      await (await fetch(`${base}/pawl/api/v1/jobs/${((await added.json()) as { id: string }).id}/payload`)).text(),
    ).toBe('1');
    expect((await fetch(`${base}/elsewhere`)).status).toBe(404);
  }

  test('in node:http', async () => {
    const server = createServer(nodeListener(house.open({ basePath: '/pawl' }).handler)).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await until('it listens', () => server.listening);
    await works(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });

  test('in Express, below a path', async () => {
    const app = express();
    app.use('/pawl', nodeListener(house.open({ basePath: '/pawl' }).handler));
    const server = app.listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await until('it listens', () => server.listening);
    await works(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  });

  test('in Fastify, next to routes with parsers of their own', async () => {
    const app = fastify();
    app.post('/own', async (request) => request.body);
    await app.register(fastifyPlugin(house.open({ basePath: '/pawl' }).handler) as never);
    const base = await app.listen({ port: 0, host: '127.0.0.1' });
    onTestFinished(() => app.close());
    await works(base);
    expect(await (await fetch(`${base}/own`, put)).json()).toEqual({ kind: 'send', payload: 1 });
  });

  test('in Hono and Next, by what they call with', async () => {
    const token = 'a-token-of-16-characters';
    const { handler } = house.open({ basePath: '/pawl', auth: { tokens: [{ name: 'ci', token, role: 'viewer' }] } });
    const headers = { authorization: `Bearer ${token}` };
    const app = new Hono().all('/pawl/*', (c) => handler(c.req.raw));
    expect((await app.request('/pawl/api/v1/me', { headers })).status).toBe(200);
    const { GET } = nextHandlers(handler);
    expect((await GET(new Request('https://app.example/pawl/api/v1/me', { headers }))).status).toBe(200);
  });
});
