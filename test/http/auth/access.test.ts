import { SignJWT } from 'jose';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { ROUTES } from '../../../src/http/app.ts';
import { changes } from '../../../src/http/auth/permission.ts';
import { createHttp, hashPassword, PERMISSIONS, type Permission } from '../../../src/http/index.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';
import { startProvider } from './provider.ts';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

const TOKEN = {
  viewer: 'viewer-token-0123456789',
  operator: 'operator-token-012345',
  admin: 'admin-token-0123456789',
} as const;
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const guarded = (): Visitor =>
  house.open({
    auth: { tokens: Object.entries(TOKEN).map(([role, token]) => ({ name: role, token, role: role as 'viewer' })) },
  });

/** A request for each route; what it names need not exist, since who may not act is told so before anything is looked up. */
function pathOf(path: string): string {
  return `/api/v1${path.replaceAll(/\{(id)\}/g, '1').replaceAll(/\{\w+\}/g, 'x')}`;
}

describe('permissions are the server’s to enforce', () => {
  test('each route needs its own, and refuses every caller without it', async () => {
    for (const route of ROUTES) {
      const all: Permission[] = PERMISSIONS.filter((one) => one !== route.permission);
      const visitor = house.open({ auth: { tokens: [{ name: 'almost', token: TOKEN.admin, permissions: all }] } });
      const { status, body } = await visitor.ask(pathOf(route.path), {
        method: route.method,
        headers: bearer(TOKEN.admin),
        ...(route.method === 'GET' ? {} : { body: {} }),
      });
      const what = `${route.method} ${route.path}`;
      expect([what, status, body.error?.code]).toEqual([what, 403, 'forbidden']);
      expect(body.error?.message).toContain(route.permission);
      await visitor.handler.stop();
    }
  });

  test('a viewer cannot act by calling the API directly, and the attempt is in the audit', async () => {
    const visitor = guarded();
    const acting = ROUTES.filter(({ permission }) => permission !== undefined && changes(permission));
    expect(acting.length).toBeGreaterThan(15);
    for (const { method, path } of acting) {
      const { status } = await visitor.ask(pathOf(path), { method, headers: bearer(TOKEN.viewer), body: {} });
      expect([method, path, status]).toEqual([method, path, 403]);
    }
    const { body } = await visitor.ask('/api/v1/audit?limit=200', { headers: bearer(TOKEN.admin) });
    const mine = (body.items ?? []).filter(({ who }) => who === 'viewer (token)');
    expect(mine).toHaveLength(acting.length);
    expect(new Set(mine.map(({ outcome }) => outcome))).toEqual(new Set(['refused']));
  });

  test('whatever changes something is audited, and only that has a target', () => {
    // What is too long for an address, and renewals, of which a row each would hide all others.
    expect(ROUTES.filter(({ isQuiet }) => isQuiet).map(({ id }) => id)).toEqual([
      'completeJob',
      'failJob',
      'releaseJob',
      'extendClaim',
      'previewBulk',
      'renewLock',
    ]);
    for (const { permission, target, method } of ROUTES.filter(({ isQuiet }) => isQuiet !== true)) {
      expect([permission, target !== undefined]).toEqual([permission, permission !== undefined && changes(permission)]);
      expect([permission, method === 'GET']).toEqual([permission, target === undefined]);
    }
  });

  test('in read-only mode an administrator changes nothing, either', async () => {
    const visitor = house.open({ readOnly: true });
    const { status, body } = await visitor.ask('/api/v1/queues/mail/pause', { method: 'POST', body: {} });
    expect([status, body.error?.code]).toEqual([403, 'read_only']);
    expect((await visitor.ask('/api/v1/queues')).status).toBe(200);
    expect((await visitor.ask('/api/v1/me')).body).toMatchObject({
      readOnly: true,
      permissions: expect.not.arrayContaining(['queue:pause']),
    });
  });

  test('an action says who, what, when, from where, and how it ended', async () => {
    const visitor = guarded();
    const asked = { method: 'POST', headers: { ...bearer(TOKEN.operator), 'user-agent': 'a test' }, from: '10.1.2.3' };
    await visitor.ask('/api/v1/queues/mail/pause', { ...asked, body: {} });
    await visitor.ask('/api/v1/queues/mail/resume', { ...asked, body: {} });
    await visitor.ask(`/api/v1/jobs/${house.ids.complete}/cancel`, { ...asked, body: { reason: 'too late' } });
    const { body } = await visitor.ask('/api/v1/audit?limit=3', { headers: bearer(TOKEN.admin) });
    const common = { who: 'operator (token)', remote: '10.1.2.3', userAgent: 'a test', endedAt: expect.any(String) };
    expect(body.items).toMatchObject([
      {
        ...common,
        action: 'job:cancel',
        target: `job ${house.ids.complete}`,
        details: { reason: 'too late' },
        outcome: 'refused',
        status: 409,
        error: expect.stringContaining('conflict'),
      },
      { ...common, action: 'queue:pause', target: 'queue mail', outcome: 'done' },
      { ...common, action: 'queue:pause', target: 'queue mail', outcome: 'done' },
    ]);
  });

  test('no action is done that cannot be written down', async () => {
    const visitor = house.open();
    const { statement } = await import('../../../src/engine/postgres/index.ts');
    await house.engine.query(statement('test.rename', 'alter table pawl.http_audit rename to http_audit_gone'));
    const { status } = await visitor.ask('/api/v1/queues/mail/pause', { method: 'POST', body: {} });
    await house.engine.query(statement('test.rename_back', 'alter table pawl.http_audit_gone rename to http_audit'));
    expect(status).toBe(503);
    expect((await visitor.ask('/api/v1/queues/mail')).body).toMatchObject({ pausedAt: null });
  });
});

describe('payloads', () => {
  test('are shown without what is secret, everywhere', async () => {
    const visitor = house.open({ redact: { keys: ['Secret'] } });
    const job = `/api/v1/jobs/${house.ids.complete}`;
    const paths = [job, `${job}/payload`, '/api/v1/captures/person/changes'];
    for (const path of paths) {
      const { text } = await visitor.ask(path);
      expect(text).toContain('[redacted]');
      expect(text).not.toContain('s3');
    }
    const own = house.open({ redact: { payload: (_payload, { queue }) => `of ${queue}` } });
    expect((await own.ask(`/api/v1/jobs/${house.ids.complete}`)).body).toMatchObject({ payload: 'of mail' });
  });

  test('are not shown without the permission, and never in lists', async () => {
    const visitor = house.open({ auth: { tokens: [{ name: 'outside', token: TOKEN.viewer, permissions: ['view'] }] } });
    const asked = { headers: bearer(TOKEN.viewer) };
    const { body } = await visitor.ask(`/api/v1/jobs/${house.ids.complete}`, asked);
    expect(body).toMatchObject({ payloadHidden: true });
    expect(body).not.toHaveProperty('payload');
    expect((await visitor.ask(`/api/v1/jobs/${house.ids.complete}/payload`, asked)).status).toBe(403);
    expect((await house.open().ask('/api/v1/jobs')).text).not.toContain('ada@');
    expect((await house.open().ask('/api/v1/jobs')).body.items?.[0]).not.toHaveProperty('payload');
  });
});

describe('other sites', () => {
  test('cannot make a browser act here', async () => {
    const visitor = house.open();
    const from = (headers: Record<string, string>): Promise<Answer> =>
      visitor.ask('/api/v1/queues/mail/resume', { method: 'POST', body: {}, headers });
    for (const headers of [
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'none', origin: 'https://evil.example' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
    ]) {
      expect([headers, (await from(headers)).body.error?.code]).toEqual([headers, 'cross_site']);
    }
    for (const headers of [{}, { 'sec-fetch-site': 'same-origin' }, { origin: 'http://localhost' }]) {
      expect([headers, (await from(headers)).status]).toEqual([headers, 200]);
    }
  });

  test('every answer has a policy that lets nothing in', async () => {
    for (const path of ['/api/v1/me', '/api/v1/none', '/healthz', '/none.js']) {
      const { headers } = await house.open().ask(path);
      expect(headers.get('content-security-policy')).toMatch(
        /^default-src 'none';[^;]*;[^;]*; frame-ancestors 'none'$/,
      );
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.get('cache-control')).toBe('no-store');
    }
  });

  test('a page runs the scripts that it names, each time anew, and nothing that anybody has uploaded', async () => {
    const visitor = house.open();
    const nonceOf = async (): Promise<string> => {
      const { headers, text } = await visitor.ask('/queues/mail');
      const policy = headers.get('content-security-policy') ?? '';
      expect(policy).toMatch(/^default-src 'none'; script-src 'nonce-[\w-]{22}' 'strict-dynamic'; worker-src 'none'; /);
      expect(policy).not.toMatch(/unsafe|script-src[^;]*'self'/);
      const [, nonce = ''] = /'nonce-([\w-]+)'/.exec(policy) ?? [];
      for (const [tag] of text.matchAll(/<script\b[^>]*>/g)) expect(tag).toContain(`nonce="${nonce}"`);
      return nonce;
    };
    expect(await nonceOf()).not.toBe(await nonceOf());
  });
});

describe('people', () => {
  test('log in with a password that the server does not keep, and out again', async () => {
    const password = await hashPassword('correct horse battery');
    const visitor = house.open({ basePath: '/pawl', auth: { users: [{ name: 'ada', password, role: 'operator' }] } });
    const logIn = (name: string, given: string): Promise<Answer> =>
      visitor.ask('/pawl/api/v1/login', {
        method: 'POST',
        body: { name, password: given },
        headers: { 'sec-fetch-site': 'same-origin' },
      });
    const [unknown, wrong] = [await logIn('eve', 'correct horse battery'), await logIn('ada', 'correct horse')];
    expect([unknown.status, unknown.body.error?.message]).toEqual([wrong.status, wrong.body.error?.message]);
    const { status, headers } = await logIn('ada', 'correct horse battery');
    expect(status).toBe(204);
    const cookie = headers.getSetCookie()[0] ?? '';
    expect(cookie).toMatch(/^pawl_session=[\w.-]+; Path=\/pawl; Max-Age=43200; HttpOnly; SameSite=Strict$/);
    const value = cookie.split(';')[0] ?? '';
    expect((await visitor.ask('/pawl/api/v1/me', { headers: { cookie: value } })).body).toMatchObject({
      name: 'ada',
      role: 'operator',
      by: 'session',
    });
    // Sent by the browser by itself, so it proves nothing when no header says from where.
    const bare = await visitor.ask('/pawl/api/v1/queues/mail/resume', {
      method: 'POST',
      body: {},
      headers: { cookie: value },
    });
    expect(bare.body.error?.code).toBe('cross_site');
    for (const forged of [
      value.slice(0, -1),
      `${value}x`,
      value.replace(/=[^.]+/, `=${Buffer.from('root').toString('base64url')}`),
    ]) {
      expect((await visitor.ask('/pawl/api/v1/me', { headers: { cookie: forged } })).status).toBe(401);
    }
    const out = await visitor.ask('/pawl/api/v1/logout', {
      method: 'POST',
      headers: { 'sec-fetch-site': 'same-origin' },
    });
    expect(out.headers.get('set-cookie')).toContain('Max-Age=0');
  });

  test('may come with tokens of a provider, if these are for here and not over', async () => {
    const secret = 'a secret that is thirty-two long!';
    const visitor = house.open({ auth: { jwt: { secret, issuer: 'https://id.example', audience: 'pawl' } } });
    const sign = (claims: object, audience = 'pawl', expires = '5m'): Promise<string> =>
      new SignJWT({ ...claims })
        .setProtectedHeader({ alg: 'HS256' })
        .setIssuer('https://id.example')
        .setAudience(audience)
        .setSubject('ada')
        .setExpirationTime(expires)
        .sign(new TextEncoder().encode(secret));
    const me = async (token: string): Promise<Answer> =>
      visitor.ask('/api/v1/me', { headers: bearer(token), from: '10.0.0.1' });
    expect((await me(await sign({ role: 'operator' }))).body).toMatchObject({
      name: 'ada',
      role: 'operator',
      by: 'jwt',
    });
    expect((await me(await sign({ role: 'root' }))).status).toBe(403);
    expect((await me(await sign({ role: 'admin' }, 'other'))).status).toBe(401);
    expect((await me(await sign({ role: 'admin' }, 'pawl', '1m ago'))).status).toBe(401);
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"role":"admin","aud":"pawl","iss":"https://id.example"}').toString('base64url')}.`;
    expect((await me(none)).status).toBe(401);
  });

  test('may come with tokens whose keys the provider publishes, changes, and sometimes fails to give', async () => {
    const provider = await startProvider();
    const { issuer } = provider;
    const jwt = { jwks: `${issuer}/keys`, issuer, audience: 'pawl' };
    const visitor = house.open({ auth: { jwt } });
    const me = async (token: string, of: Visitor = visitor): Promise<unknown[]> => {
      const { status, body } = await of.ask('/api/v1/me', { headers: bearer(token), from: '10.0.0.1' });
      return [status, body['name'] ?? body.error?.code];
    };
    const first = await provider.newKey('first');
    expect(await me(await first.sign('ada'))).toEqual([200, 'ada']);
    expect(await me(await first.sign('bob'))).toEqual([200, 'bob']);
    expect(provider.asked()).toBe(1);
    // A key that another provider made under the same name, and one that is unknown.
    expect(await me(await (await provider.strangeKey('first')).sign('eve'))).toEqual([401, 'unauthorized']);
    // That one may have been made since the keys were fetched, a moment ago; later it is clear that it was not.
    const other = await (await provider.strangeKey('other')).sign('eve');
    expect(await me(other)).toEqual([503, 'identity_unavailable']);
    const second = await provider.newKey('second');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 31_000 });
    onTestFinished(() => void vi.useRealTimers());
    expect(await me(other)).toEqual([401, 'unauthorized']);
    vi.setSystemTime(Date.now() + 31_000);
    expect(await me(await second.sign('ada'))).toEqual([200, 'ada']);
    provider.withdraw('first');
    vi.setSystemTime(Date.now() + 11 * 60_000);
    expect(await me(await first.sign('ada'))).toEqual([401, 'unauthorized']);
    // Keys that are known need no provider; a caller that needs it reads that the token is not at fault.
    provider.behave('fails');
    expect(await me(await second.sign('ada'))).toEqual([200, 'ada']);
    for (const how of ['fails', 'hangs', 'nonsense'] as const) {
      provider.behave(how);
      const hurried = house.open({ auth: { jwt: { ...jwt, timeout: '3s' } } });
      expect([how, await me(await second.sign('ada'), hurried)]).toEqual([how, [503, 'identity_unavailable']]);
      // And is let in when the provider is back.
      provider.behave('well');
      expect([how, await me(await second.sign('ada'), hurried)]).toEqual([how, [200, 'ada']]);
    }
    await provider.stop();
    expect(await me(await second.sign('ada'), house.open({ auth: { jwt } }))).toEqual([503, 'identity_unavailable']);
  });

  test('may be known by a rule of your own, which may also send them elsewhere', async () => {
    const visitor = house.open({
      auth: {
        authorize: (request) => {
          const user = request.headers.get('x-user');
          if (user === null) return new Response(null, { status: 302, headers: { location: '/login' } });
          return user === 'nobody' ? undefined : { name: user, permissions: ['view'] };
        },
      },
    });
    expect((await visitor.ask('/api/v1/me', { headers: { 'x-user': 'ada' } })).body).toMatchObject({
      name: 'ada',
      role: null,
      permissions: ['view'],
    });
    expect((await visitor.ask('/api/v1/me')).status).toBe(302);
    expect((await visitor.ask('/api/v1/me', { headers: { 'x-user': 'nobody' } })).status).toBe(401);
  });

  test('are slowed down when they ask, or guess, too often', async () => {
    // Each second gives one back, and may pass between any two of these.
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const visitor = house.open({ rate: { burst: 5, perSecond: 1 } });
    const answers = await Promise.all(Array.from({ length: 8 }, () => visitor.ask('/api/v1/me')));
    expect(answers.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 200, 200, 200, 200, 429, 429, 429]);
    expect(answers.at(-1)?.headers.get('retry-after')).toMatch(/^\d+$/);
    expect((await visitor.ask('/healthz')).status).toBe(200);
    // Behind a proxy all have one address: no known caller takes from another, nor does a stranger.
    const two = house.open({
      rate: { burst: 5, perSecond: 1 },
      auth: { tokens: ['a', 'b'].map((name) => ({ name, token: `${TOKEN.viewer}-${name}`, role: 'viewer' as const })) },
    });
    const statuses = async (token: string): Promise<number[]> => {
      const asked = Array.from({ length: 6 }, () =>
        two.ask('/api/v1/me', { headers: bearer(token), from: '10.0.0.1' }),
      );
      return (await Promise.all(asked)).map(({ status }) => status).sort((a, b) => a - b);
    };
    expect(await statuses('nobody-knows-this-one')).toEqual([401, 401, 401, 401, 401, 429]);
    for (const name of ['a', 'b'])
      expect(await statuses(`${TOKEN.viewer}-${name}`)).toEqual([200, 200, 200, 200, 200, 429]);
  });
});

test.each([
  [{ readonly: true }, 'did you mean "readOnly"'],
  [{ basePath: 'pawl' }, 'basePath'],
  [{ auth: { tokens: [{ name: 'ci', token: 'short' }] } }, 'auth.tokens'],
  [{ auth: { users: [{ name: 'ada', password: 'plain password' }] } }, 'not the password itself'],
  [{ auth: { tokens: [{ name: 'ci', token: TOKEN.admin, role: 'root' }] } }, 'role'],
  [{ auth: { tokens: [{ name: 'ci', token: TOKEN.admin }] } }, 'neither a role nor permissions'],
  [{ auth: { tokens: [{ name: 'c\ni', token: TOKEN.admin, role: 'admin' }] } }, 'without control characters'],
  [
    { auth: { tokens: [{ name: 'ci', token: TOKEN.admin, role: 'admin', permissions: ['view'] }] } },
    'give one of them',
  ],
  [{ auth: { tokens: [{ name: 'ci', token: TOKEN.admin, permissions: ['job:eat'] }] } }, 'a permission'],
  [{ auth: { jwt: { issuer: 'a', audience: 'b' } } }, 'either jwks or secret'],
  [{ auth: { jwt: { jwks: 'http://id.example/keys', issuer: 'a', audience: 'b' } } }, 'https'],
  [{ auth: { loopback: 'admin' } }, 'dangerouslyTrustLoopback'],
  [{ statementTimeout: '1ms' }, 'statementTimeout'],
])('options that cannot be are refused: %j', (options, message) => {
  const make = (): unknown => createHttp(house.engine, options as object);
  expect(make).toThrow(message);
  expect(make).not.toThrow('plain password');
});
