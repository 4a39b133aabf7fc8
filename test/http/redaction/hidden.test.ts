import { beforeAll, describe, expect, test } from 'vitest';
import { stderrLogger } from '../../../src/base/logger.ts';
import { ROUTES } from '../../../src/http/app.ts';
import type { Principal } from '../../../src/http/auth/permission.ts';
import { type HttpOptions, PERMISSIONS, type Permission } from '../../../src/http/index.ts';
import { PLAIN_ROUTES } from '../../../src/http/plain-routes.ts';
import type { AnyRoute } from '../../../src/http/protocol/route.ts';
import { errorOf, payloadOf } from '../../../src/http/redaction/hidden.ts';
import { Redaction, TOO_LARGE } from '../../../src/http/redaction/redaction.ts';
import { LONG, MODELS } from '../../support/long.ts';
import { type House, makeHouse, type Visitor } from '../house.ts';
import { BYTES, fillVault, PAYLOADS, SENTINEL, TEXTS, UNSEEN, type Vault } from './vault.ts';

let house: House;
let vault: Vault;
beforeAll(async () => {
  house = await makeHouse();
  vault = await fillVault(house);
  return async () => {
    await vault.stop();
    await house.stop();
  };
});

const GETS = ROUTES.filter(({ method }) => method === 'GET');

/** Everything there is to look at, with the ids of what holds values; a new route is in it by itself. */
function pathsOf(route: AnyRoute): string[] {
  let paths = [route.path];
  for (const [, name = ''] of route.path.matchAll(/\{(\w+)\}/g)) {
    const values = vault.params(name, route.tag);
    expect([route.path, name, values.length > 0]).toEqual([route.path, name, true]); // vault.ts says what else it can be
    paths = paths.flatMap((path) => values.map((value) => path.replace(`{${name}}`, encodeURIComponent(value))));
  }
  const wanted = Object.entries(route.query ?? {}).filter(([, { isRequired }]) => isRequired);
  const required = wanted.map(
    ([name]) => `${name}=${REQUIRED[`${route.tag} ${name}`] ?? expect.fail(`${route.path}: ${name}?`)}`,
  );
  return paths.flatMap((path) => [
    `${path}?${required.join('&')}`,
    ...(MORE[route.id] ?? []).map((more) => path + more),
  ]);
}

/** Of the fields of queries that must be there. */
const REQUIRED: Readonly<Record<string, string>> = { 'locks name': 'invoice:42', 'files id': 'doc/secret' };
/** Where the newest hundred of everything do not show what is to be seen. */
const MORE: Readonly<Record<string, readonly string[]>> = {
  listActors: ['?final=true'],
  listPages: ['?status=all'],
  listHistory: ['?part=job&of=vault', '?part=actor&of=vault', '?part=audit'],
  listAudit: ['?limit=200'],
};
/** What the document does not name; with the streams of single events. */
const OTHERS = [
  ...PLAIN_ROUTES.filter(({ method }) => method === 'GET').map(({ path }) => path),
  '/api/v1/events?part=job,lock,actor,page',
];

const allBut = (...less: Permission[]): readonly Permission[] => PERMISSIONS.filter((one) => !less.includes(one));
const HIDES = { keys: ['SECRET'] } as const;

interface Caller {
  readonly permissions: readonly Permission[];
  readonly redact?: HttpOptions['redact'];
  readonly sees: readonly string[];
}

const CALLERS: Readonly<Record<string, Caller>> = {
  everybody: { permissions: PERMISSIONS, sees: [...PAYLOADS, ...TEXTS, BYTES] },
  'who looks': { permissions: ['view'], sees: [] },
  'who reads payloads': { permissions: ['view', 'payload:read'], sees: PAYLOADS },
  'who reads errors': { permissions: ['view', 'error:read'], sees: TEXTS },
  'who reads files': { permissions: ['view', 'file:read'], sees: [BYTES] },
  'who reads the audit': { permissions: ['view', 'audit:read', 'metrics:read'], sees: [] },
  'who may do all except read payloads': { permissions: allBut('payload:read', 'file:read'), sees: TEXTS },
  'who may do all except read errors': { permissions: allBut('error:read', 'file:read'), sees: PAYLOADS },
  // The words of a search are no value under a key, and here no caller could search.
  'everybody, where keys are hidden': { permissions: PERMISSIONS, redact: HIDES, sees: ['sentquery', BYTES] },
  'everybody, where a rule hides all': {
    permissions: PERMISSIONS,
    redact: { payload: () => ({}) },
    sees: ['sentquery', BYTES],
  },
  'everybody, where a rule fails': {
    permissions: PERMISSIONS,
    redact: { payload: (of) => (of as { secret: { not: string } }).secret.not.trim(), error: () => expect.fail('no') },
    sees: ['sentquery', BYTES],
  },
};

function open({ permissions, redact }: Caller): Visitor {
  const authorize = ({ headers }: Request): { name: string; permissions: readonly Permission[] } => ({
    name: 'caller',
    permissions: headers.has('x-before') ? PERMISSIONS : permissions,
  });
  return house.open({ auth: { authorize }, ...(redact && { redact }) });
}

/** As somebody who may see everything has it asked a moment before: answers may be shared. */
async function readAfter(visitor: Visitor, path: string): Promise<{ readonly status: number; readonly text: string }> {
  await read(visitor, path, { 'x-before': 'yes' });
  return read(visitor, path);
}

/** A stream is read until it has told something. */
async function read(
  visitor: Visitor,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ readonly status: number; readonly text: string }> {
  const ending = new AbortController();
  const request = new Request(new URL(path, 'http://localhost'), { headers, signal: ending.signal });
  const response = await visitor.handler(request, { remoteAddress: '127.0.0.1' });
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true)
    return { status: response.status, text: await response.text() };
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('event:')) {
    const chunk = await reader?.read();
    if (chunk === undefined || chunk.done) break;
    text += chunk.value;
  }
  ending.abort();
  return { status: response.status, text };
}

/** In the usual run: callers that see all, none, and some, by a permission and by a rule. */
const USUAL = ['everybody', 'who looks', 'who may do all except read payloads', 'everybody, where keys are hidden'];
const usually = Object.entries(CALLERS).filter(([name]) => MODELS || USUAL.includes(name));

describe('values', () => {
  test.each(usually)('are shown where they may be seen, and nowhere else: %s', async (_name, caller) => {
    const visitor = open(caller);
    const seen = new Set<string>();
    const leaks: string[] = [];
    for (const path of [...GETS.flatMap((route) => pathsOf(route).map((of) => `/api/v1${of}`)), ...OTHERS]) {
      const { status, text } = await read(visitor, path);
      expect([path, status >= 500 && status !== 501]).toEqual([path, false]);
      for (const word of text.match(SENTINEL) ?? []) {
        seen.add(word);
        if (!caller.sees.includes(word)) leaks.push(`${path}: ${word}`);
      }
    }
    expect(leaks).toEqual([]);
    // And nothing is hidden that need not be; a test that sees nothing proves nothing.
    expect([...seen].sort()).toEqual([...caller.sees].sort());
  });
});

describe('what cannot be seen cannot be found', () => {
  /** All texts that one can search for, of every route; and jobs by what only their words say. */
  const searches = GETS.flatMap(({ id, path, query = {} }) =>
    Object.entries(query)
      .filter(([, { schema }]) => typeof schema === 'object' && Reflect.get(schema, 'type') === 'string')
      .filter(([, { schema }]) => !('enum' in Object(schema)) && !('format' in Object(schema)))
      .map(([name]) => ({ id, path, name })),
  );
  const WORDS = [...PAYLOADS, ...TEXTS, ...UNSEEN];
  /** Each search asks for one word in so many in the usual run, in turns. */
  const EVERY = LONG ? 1 : MODELS ? 9 : 18;

  const cannotSeeAll = ({ sees }: Caller): boolean => ![...PAYLOADS, ...TEXTS].every((word) => sees.includes(word));

  test.each(
    Object.entries(CALLERS)
      .filter(([, caller]) => cannotSeeAll(caller))
      .filter(([name]) => LONG || USUAL.includes(name)),
  )('a search for it answers as one for what is nowhere: %s', async (_name, caller) => {
    const visitor = open(caller);
    const differences: string[] = [];
    for (const [turn, { id, path, name }] of searches.entries()) {
      const route = GETS.find((one) => one.id === id);
      const [first = ''] = route === undefined ? [] : pathsOf(route);
      const ask = async (word: string): Promise<string> => {
        const url = new URL(`http://localhost/api/v1${first}`);
        url.searchParams.set(name, word);
        const { status, text } = await readAfter(visitor, url.href);
        return `${status} ${text.replaceAll(word, 'WORD').replaceAll(/"(requestId|at)":"[^"]*"|"(since|until)":\d+/g, '')}`;
      };
      const nowhere = await ask('standsnowhere');
      const unseen = WORDS.filter((one) => !caller.sees.includes(one));
      for (const word of unseen.filter((_, nth) => nth % EVERY === turn % EVERY))
        if ((await ask(word)) !== nowhere) differences.push(`${path}?${name}=${word}`);
    }
    expect(differences).toEqual([]);
  });

  test('while filters by name, and ids, need only the permission view', async () => {
    const visitor = open(CALLERS['who looks'] as Caller);
    const status = async (q: string): Promise<number> =>
      (await visitor.ask(`/api/v1/jobs?q=${encodeURIComponent(q)}`)).status;
    expect([await status('status:error'), await status('kind:keep'), await status(house.ids.failed)]).toEqual([
      200, 200, 200,
    ]);
    expect([await status('sentpayload'), await status('status:error "a phrase"')]).toEqual([403, 403]);
    // A number is an id, and may be what stands in a payload.
    await house.open().ask('/api/v1/queues/vault/jobs', { method: 'POST', body: { kind: 'idle', payload: 4111_1111 } });
    const { text } = await readAfter(visitor, '/api/v1/jobs?q=41111111');
    expect(JSON.parse(text)).toEqual({ items: [], after: null, indexBehind: 0 });
  });

  test('unless the program says that words may be searched for anyway', async () => {
    const { ask } = house.open({ redact: { ...HIDES, search: true } });
    expect((await ask('/api/v1/jobs?q=sentpayload')).body.items).toHaveLength(1);
  });
});

test('the audit keeps no value', async () => {
  const { ask } = house.open();
  const body = { kind: 'idle', payload: { secret: 'sentagain' }, key: 'ada' };
  await ask('/api/v1/queues/vault/jobs', { method: 'POST', body });
  await ask('/api/v1/bulk', { method: 'POST', body: { action: 'cancel', query: 'sentagain status:new' } });
  const { body: audit } = await ask('/api/v1/audit?limit=2');
  expect(audit.items).toMatchObject([
    { target: 'cancel of jobs that fit "status:\\"new\\" [hidden]"', details: { action: 'cancel' } },
    { target: 'queue vault', details: { kind: 'idle', key: 'ada' } },
  ]);
  expect(JSON.stringify(audit)).not.toContain('sentagain');
});

test('a payload that is nested deeper than any program would is hidden whole, and the job can be looked at', async () => {
  const { ask } = house.open({ redact: HIDES });
  const deep = `${'['.repeat(400)}{"secret":"sentdeep"}${']'.repeat(400)}`;
  const { body } = await ask('/api/v1/queues/vault/jobs', {
    method: 'POST',
    body: `{"kind":"idle","payload":${deep}}`,
  });
  const job = await ask(`/api/v1/jobs/${String(body['id'])}`);
  expect([job.status, job.text.includes('[redacted]'), job.text.includes('sentdeep')]).toEqual([200, true, false]);
});

const who: Principal = {
  name: 'ada',
  role: 'admin',
  permissions: new Set(PERMISSIONS),
  by: 'token',
  until: undefined,
};
const of = { queue: 'a', kind: 'b' };
const none = { keys: [], payload: undefined, error: undefined, search: false };
const door = (redact: object = {}): Redaction =>
  new Redaction({ ...none, ...redact }, stderrLogger({ level: 'silent' }));

describe('the door', () => {
  test('shows the fields next to a value that is nested too deep', () => {
    let deep: unknown = 'sentinel';
    for (let depth = 0; depth < 100_000; depth += 1) deep = [deep];
    const answer = { id: '1', payload: payloadOf(deep, of), result: payloadOf('fine', of) };
    expect(JSON.parse(door().write(answer, who))).toMatchObject({
      id: '1',
      payload: expect.any(Array),
      result: 'fine',
    });
    expect(door({ keys: ['secret'] }).write(answer, who)).not.toContain('sentinel');
  });

  test.each([
    ['{"secret":"a \\"b\\" sentinel"}'],
    ['{\\"secret\\":\\"sentinel\\"}'],
    ["secret: 'sentinel with spaces'"],
    ['secret=sentinel'],
    ['SECRET => sentinel'],
    ['"secret": "it was cut off, sentinel'],
    ['https://example.org/?a=b&secret=sentinel&c=d'],
    ['{"body":"{\\"secret\\":\\"a long sentinel\\"}"}'],
    [JSON.stringify(JSON.stringify(JSON.stringify({ secret: 'a "long" sentinel' })))],
    ['secret: a long sentinel'],
    ['secret: Bearer sentinel'],
    ['"secret": {"a": "}", "b": ["it is", "a sentinel"]}'],
    ['{"body":"{\\"secret\\":{\\"a\\":\\"it\\\\\\"s } a sentinel\\"}}"}'],
    ["secret: Map(1) {\n  'a' => 'sentinel'\n}"],
    ['secret: `it\'s a "long" sentinel`'],
    ["secret = 'it''s a sentinel'"],
    ['Key (tenant, secret, to)=(1, a sentinel, 2) already exists.'],
  ])('takes a value out of an error by its key: %s', (text) => {
    const shown = door({ keys: ['secret'] }).write(errorOf(`before ${text} after`, of), who);
    expect(shown).toMatch(/before .*\[redacted\]/);
    expect(shown).not.toContain('sentinel');
  });

  test.each([
    ['{"secret":"a b","to":"ada"}', '{"secret":[redacted],"to":"ada"}'],
    ['{"secret":{"a":["b"]},"to":"ada"}', '{"secret":[redacted],"to":"ada"}'],
    [
      '{"body":"{\\"secret\\":\\"a b\\",\\"to\\":\\"ada\\"}"}',
      '{"body":"{\\"secret\\":[redacted],\\"to\\":\\"ada\\"}"}',
    ],
    ["{ secret: 1234, to: 'ada' }", "{ secret: [redacted], to: 'ada' }"],
    ['secret: a b\n    at send (mail.js:1:2)', 'secret: [redacted]\n    at send (mail.js:1:2)'],
    ['GET /?secret=a&to=ada failed', 'GET /?secret=[redacted]&to=ada failed'],
  ])('leaves what stands next to such a value: %s', (text, shown) => {
    expect(JSON.parse(door({ keys: ['secret'] }).write(errorOf(text, of), who))).toBe(shown);
  });

  test('takes no longer for a text that was made to take long', () => {
    const begun = performance.now();
    for (const part of ['secret: {', 'secret, ', 'secret:"', 'secret:\\', '\\', '(', 'secret(', 'secret  '])
      door({ keys: ['secret'] }).write(errorOf(part.repeat(3_000_000 / part.length), of), who);
    expect(performance.now() - begun).toBeLessThan(20_000);
  });

  test('leaves alone what is only like a key, and prototypes are only names', () => {
    const shown = door({ keys: ['secret'] }).write(
      [errorOf('secretary: Ada, no secret', of), payloadOf(JSON.parse('{"__proto__":{"secret":1},"b":2}'), of)],
      who,
    );
    expect(shown).toBe('["secretary: Ada, no secret",{"__proto__":{"secret":"[redacted]"},"b":2}]');
  });
});

describe('redaction of large values', () => {
  /** One by one: to spread an object of so many takes ten times as long. */
  const properties = (count: number, secret = 'sentinel'): Record<string, unknown> => {
    const made: Record<string, unknown> = {};
    for (let n = 0; n < count; n += 1) made[`k${n}`] = n;
    made['secret'] = secret;
    return made;
  };

  test('hides a key among the 60,000 properties of a megabyte', () => {
    const shown = door({ keys: ['secret'] }).write(payloadOf(properties(60_000), of), who);
    expect(JSON.parse(shown)).toEqual(properties(60_000, '[redacted]'));
  });

  test('shows none of a value with more properties than it looks at, and all that stands next to it', () => {
    const answer = { id: '1', payload: payloadOf(properties(200_000), of), result: payloadOf('fine', of) };
    expect(JSON.parse(door({ keys: ['secret'] }).write(answer, who))).toEqual({
      id: '1',
      payload: TOO_LARGE,
      result: 'fine',
    });
  });

  test('looks at so many properties of one answer, however many values it has', () => {
    const value = properties(70_000);
    const answer = Array.from({ length: 10 }, () => payloadOf(value, of));
    const shown: unknown[] = JSON.parse(door({ keys: ['secret'] }).write(answer, who));
    expect(shown.map((value) => value === TOO_LARGE)).toEqual([false, false, ...Array(8).fill(true)]);
  });

  test('gives a rule of the user no copy of what takes long to copy', () => {
    let calls = 0;
    const rule = (value: unknown): unknown => {
      calls += 1;
      return value;
    };
    const asked = door({ payload: rule });
    expect(JSON.parse(asked.write(payloadOf(properties(60_000), of), who))).toBe(TOO_LARGE);
    expect(calls).toBe(0);
    expect(JSON.parse(asked.write(payloadOf(properties(40_000), of), who))).toEqual(properties(40_000));
  });

  test('shows no text in which it would search for long', () => {
    const text = `${'x'.repeat(4_000_000)} secret=sentinel`;
    expect(JSON.parse(door({ keys: ['secret'] }).write(errorOf(text, of), who))).toBe(TOO_LARGE);
  });

  test('lets a job with such a payload be looked at', async () => {
    const { ask } = house.open({ redact: HIDES, bodyLimit: 8_000_000 });
    const added = await ask('/api/v1/queues/vault/jobs', {
      method: 'POST',
      body: { kind: 'idle', payload: properties(201_000) },
    });
    const id = String(added.body['id']);
    const [job, payload] = [await ask(`/api/v1/jobs/${id}`), await ask(`/api/v1/jobs/${id}/payload`)];
    expect([job.status, job.body['payload'], payload.status, payload.body]).toEqual([200, TOO_LARGE, 200, TOO_LARGE]);
  });
});

test('what cannot become JSON without the door becomes nothing', () => {
  expect(JSON.stringify({ of: payloadOf('sentinel', { queue: 'a', kind: 'b' }) })).not.toContain('sentinel');
});
