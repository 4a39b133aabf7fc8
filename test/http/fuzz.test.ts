import fc from 'fast-check';
import { beforeAll, expect, test } from 'vitest';
import { ROUTES } from '../../src/http/app.ts';
import { writeCursor } from '../../src/http/protocol/cursor.ts';
import type { AnyRoute } from '../../src/http/protocol/route.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { answersOf } from './document.ts';
import { type House, makeHouse, type Visitor } from './house.ts';

/** PAWL_FUZZ: another number of requests. */
const RUNS = Number(process.env['PAWL_FUZZ'] ?? (LONG ? 100_000 : 150));

let house: House;
let visitor: Visitor;
let schemaOf: ReturnType<typeof answersOf>;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  schemaOf = answersOf((await visitor.ask('/api/v1/openapi.json')).body);
  return () => house.stop();
});

const nasty = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    '0',
    '-1',
    '1',
    '9223372036854775807',
    '9223372036854775808',
    '1e999',
    'NaN',
    "'; drop table x; --",
    '%',
    '%00',
    '\u0000',
    '\ud800',
    'x\udc00y',
    '..',
    '%2e%2e%2f',
    'a'.repeat(1100),
    'mail',
    'server',
    'person',
    'doc/1',
    'invoice:42',
    '2026-02-30',
    '2026-11-21T09:30:00Z',
    'true',
    '"',
    'key:',
    'status:error',
    'since:1h',
    '10ms',
    '*',
    '\\',
    '__proto__',
    'constructor',
    'toString',
    'WyIxIl0',
    writeCursor('9223372036854775808'),
    writeCursor('a', 'b'),
    '1:9223372036854775808',
    writeCursor('1', 'job', 'x', '1'),
    writeCursor('2026-11-22T00:00:00+00:00', 'job', 'x', '1'),
    '0000-01-01',
    '9999-12-31',
  ),
  fc.integer().map(String),
);
/** Values as JSON, which no JavaScript value could be: too deep, too large, said twice. */
const written = fc.constantFrom(
  '"\\ud800"',
  '"\\u0000"',
  '"\\\\u0000"',
  '{"\\ud800":1}',
  '1e400',
  '1e200000',
  '-1e-200000',
  '12345678901234567890123',
  `${'['.repeat(20_000)}${']'.repeat(20_000)}`,
  `${'{"a":'.repeat(3000)}1${'}'.repeat(3000)}`,
  '{"a":1,"a":2}',
  '{"__proto__":{"x":1},"constructor":1}',
);
const json = fc.oneof(nasty, fc.jsonValue({ maxDepth: 2 })).map((value) => JSON.stringify(value));
const value = fc.oneof({ arbitrary: json, weight: 3 }, { arbitrary: written, weight: 1 });

/** Names for the parts of a request: those that the route has, and others. */
function names(known: object | undefined): fc.Arbitrary<string> {
  const some = Object.keys(known ?? {});
  return some.length === 0
    ? nasty
    : fc.oneof({ arbitrary: fc.constantFrom(...some), weight: 4 }, { arbitrary: nasty, weight: 1 });
}

function bodies(route: AnyRoute): fc.Arbitrary<string> {
  const object = fc
    .array(fc.tuple(names(route.body), value), { maxLength: 4 })
    .map((fields) => `{${fields.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(',')}}`);
  const list = fc.array(object, { maxLength: 3 }).map((all) => `[${all.join(',')}]`);
  return fc.oneof({ arbitrary: object, weight: 6 }, { arbitrary: list, weight: 1 }, { arbitrary: value, weight: 1 });
}

/** Streams are asked by `openStream`; `/events` is no route of the table. */
const STREAMS = [...ROUTES.filter(({ givesStream }) => givesStream === true).map(({ path }) => path), '/events'];
const asked = ROUTES.filter(({ givesStream }) => givesStream !== true);

const requests = fc.constantFrom(...asked).chain((route) =>
  fc.record({
    route: fc.constant(route),
    params: fc.array(nasty, { minLength: 3, maxLength: 3 }),
    query: fc.array(fc.tuple(names(route.query), nasty), { maxLength: 3 }),
    body: bodies(route),
    type: fc.constantFrom('application/json', 'application/json', 'application/json', 'text/plain'),
  }),
);

const streams = fc.record({
  path: fc.constantFrom(...STREAMS),
  params: fc.array(nasty, { minLength: 1, maxLength: 1 }),
  query: fc.array(fc.tuple(names({ part: 0, of: 0, event: 0, lastEventId: 0 }), nasty), { maxLength: 3 }),
  lastEventId: fc.option(nasty, { nil: undefined }),
});

/** A stream is left as soon as something came: it says how long to wait before coming back, at once. */
async function openStream(path: string, lastEventId: string | undefined): Promise<object[]> {
  const leaving = new AbortController();
  const headers = lastEventId === undefined ? {} : { 'last-event-id': encode(lastEventId) };
  const request = new Request(`http://localhost${path}`, { headers, signal: leaving.signal });
  const response = await visitor.handler(request, { remoteAddress: '127.0.0.1' });
  const what = { status: response.status, path };
  if (response.status >= 500) return [what];
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
    await response.text();
    return response.status < 400 ? [what] : [];
  }
  const first = await response.body?.getReader().read();
  leaving.abort();
  return new TextDecoder().decode(first?.value).startsWith('retry: ') ? [] : [what];
}

async function ask(of: AnyRoute, path: string, asked: Parameters<Visitor['ask']>[1] = {}): Promise<object[]> {
  const { status, text, headers, body } = await visitor.ask(path, { method: of.method, ...asked });
  const what = { route: of.id, status, path, body: String(asked.body).slice(0, 300), text: text.slice(0, 500) };
  if (status >= 500 && status !== 501) return [what];
  if (headers.get('content-type')?.startsWith('application/json') !== true) return [];
  // Bytes of a document are what somebody wrote, whatever their type says.
  if (status < 300 && of.givesBytes === true) return [];
  const isRight = schemaOf(of.method, of.path, status);
  return isRight(body) ? [] : [{ ...what, errors: isRight.errors }];
}

const encode = (text: string): string => encodeURIComponent(text.replace(/\p{Surrogate}/gu, '?'));

/** An address with these values, of which some may be empty. */
function addressOf(path: string, params: readonly string[], query: readonly (readonly [string, string])[]): string {
  let next = 0;
  const filled = path.replaceAll(/\{\w+\}/g, () => encode(params[next++] ?? '') || 'x');
  return `/api/v1${filled}?${query.map(([name, text]) => `${encode(name)}=${encode(text)}`).join('&')}`;
}

test('whatever is sent, the answer is as the document says, and never a failure of the server', async () => {
  await fc.assert(
    fc.asyncProperty(requests, async ({ route, params, query, body, type }) => {
      const sent = route.method === 'GET' ? {} : { body, headers: { 'content-type': type } };
      expect(await ask(route, addressOf(route.path, params, query), sent)).toEqual([]);
    }),
    { numRuns: RUNS, seed: 8, endOnFailure: true },
  );
  expect(await brokenGets()).toEqual([]);
});

test('whatever a stream is asked for, it begins or says what is wrong, and leaves nothing behind', async () => {
  expect(STREAMS.length).toBeGreaterThan(1);
  const ids = fc.constantFrom(...Object.values(house.ids));
  await fc.assert(
    fc.asyncProperty(streams, fc.option(ids, { nil: undefined }), async ({ path, params, query, lastEventId }, id) => {
      const address = addressOf(path, id === undefined ? params : [id], query);
      expect(await openStream(address, lastEventId)).toEqual([]);
    }),
    { numRuns: RUNS / 10, seed: 8, endOnFailure: true },
  );
  await until('nothing is watched', async () => {
    const { body } = await visitor.ask('/api/v1/admin');
    return (body['process'] as { watchers: number }).watchers === 0;
  });
});

/** Of everything that is there now, whatever was written: each GET of each thing. */
async function brokenGets(): Promise<object[]> {
  const idsOf = async (path: string): Promise<string[]> => {
    const all: string[] = [];
    for (let after = ''; all.length < 2000; ) {
      const { body } = await visitor.ask(`/api/v1/${path}?limit=200${after}`);
      all.push(...(body.items ?? []).map(({ id, name, entity }) => String(id ?? name ?? entity)));
      if (typeof body['after'] !== 'string') break;
      after = `&after=${body['after']}`;
    }
    return all;
  };
  const things: Record<string, readonly string[]> = {
    '/jobs/{id}': await idsOf('jobs'),
    '/actors/{id}': await idsOf('actors'),
    '/pages/{id}': await idsOf('pages'),
    '/bulk/{id}': await idsOf('bulk'),
    '/queues/{queue}': await idsOf('queues'),
    '/captures/{entity}': [house.capture.entity],
  };
  const broken: object[] = [];
  for (const route of asked.filter(({ method, query = {} }) => method === 'GET' && isOptional(query))) {
    const [, thing = '', rest = ''] = /^(\/\w+\/\{\w+\})?(.*)$/.exec(route.path) ?? [];
    for (const name of thing === '' ? [''] : (things[thing] ?? [])) {
      const place = thing.replace(/\{\w+\}/, encodeURIComponent(name));
      broken.push(...(await ask(route, `/api/v1${place}${rest}`)));
    }
  }
  return broken;
}

function isOptional(query: NonNullable<AnyRoute['query']>): boolean {
  return Object.values(query).every(({ isRequired }) => !isRequired);
}

test('a name that every object has is a parameter like any other: refused, and not taken for one given twice', async () => {
  for (const name of ['toString', 'constructor', '__proto__', 'hasOwnProperty']) {
    const { status, body } = await visitor.ask(`/api/v1/me?${name}=x`);
    expect([status, body.error?.message]).toEqual([400, expect.stringContaining(name)]);
    expect(body.error?.message).not.toContain('twice');
    const sent = await visitor.ask('/api/v1/queues/mail/jobs', { method: 'POST', body: `{"kind":"send","${name}":1}` });
    expect([sent.status, sent.body.error?.field]).toEqual([400, name]);
  }
});

test('a payload that no reader could have back is refused with its field, and what looks like one is not', async () => {
  const add = async (payload: string): Promise<unknown[]> => {
    const { status, body } = await visitor.ask('/api/v1/queues/mail/jobs', {
      method: 'POST',
      body: `{"kind":"send","payload":${payload}}`,
    });
    return [status, body.error?.field];
  };
  const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  for (const bad of ['"\\ud800"', '{"\\udc00":1}', '"\\u0000"', '1e400', '1e200000', nested(501), nested(20_000)]) {
    expect([bad.slice(0, 20), ...(await add(bad))]).toEqual([bad.slice(0, 20), 400, 'payload']);
  }
  for (const good of ['"\\\\u0000"', '"\\\\ud800"', '12345678901234567890123', nested(500)]) {
    expect([good.slice(0, 20), ...(await add(good))]).toEqual([good.slice(0, 20), 201, undefined]);
  }
});

test('a job that is nested deeper than any stack, by any writer, can be shown', async () => {
  const { engine } = house;
  const [row] = await engine.query<{ id: string }>({
    name: 'test.deep',
    text: `select pawl.enqueue(jsonb_build_object('queue', 'mail', 'kind', 'send', 'payload', (repeat('[', 5000) || repeat(']', 5000))::jsonb)) ->> 'id' as id`,
    prepare: false,
  });
  const { status, text } = await visitor.ask(`/api/v1/jobs/${row?.id}`);
  expect([status, text.includes('nested too deep')]).toEqual([200, true]);
  expect((await visitor.ask(`/api/v1/jobs/${row?.id}/payload`)).text).toBe(`${'['.repeat(5000)}${']'.repeat(5000)}`);
});
