import { SignJWT } from 'jose';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { ROUTES } from '../../../src/http/app.ts';
import { type AuthOptions, serve } from '../../../src/http/index.ts';
import { PLAIN_ROUTES } from '../../../src/http/plain-routes.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type RequestOptions, type Visitor } from '../house.ts';
import { hashCheaply } from './cheap-password.ts';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

const TOKEN = 'a-token-0123456789';
const ME = '/api/v1/me';
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const SAME_ORIGIN = { 'sec-fetch-site': 'same-origin' } as const;

function pathOf(path: string): string {
  return `/api/v1${path.replaceAll(/\{(id)\}/g, '1').replaceAll(/\{\w+\}/g, 'x')}`;
}

test('a rule of your own may answer with a Response of any class, also behind a server of node', async () => {
  // The server of node puts a class of its own in place of the global one; an answer of fetch is of the old one.
  const authorize = (): Promise<Response> => fetch('data:text/plain,who%20are%20you');
  const server = await serve(house.open({ auth: { authorize } }).handler);
  onTestFinished(() => server.stop());
  const answer = await fetch(`${server.url}api/v1/me`);
  expect([answer.status, await answer.text()]).toEqual([200, 'who are you']);
});

describe('without auth', () => {
  test('no caller gets in from any address; only the health is public', async () => {
    const visitor = house.open({ auth: undefined });
    const guarded = PLAIN_ROUTES.filter(({ permission }) => permission !== undefined).map(({ path }) => path);
    const paths = [...guarded, '/', '/queues', '/?token=x'];
    for (const path of [...paths, ...ROUTES.map(({ path: of }) => pathOf(of))]) {
      const { status, body } = await visitor.ask(path);
      if (status !== 405) expect([path, status, body.error?.code]).toEqual([path, 401, 'unauthorized']);
    }
    for (const path of ['/healthz', '/readyz']) expect((await visitor.ask(path)).status).toBe(200);
    // What nginx with its defaults makes of a request from anywhere, reads and changes alike.
    const headers = { ...SAME_ORIGIN, origin: 'http://127.0.0.1:7295', host: '127.0.0.1:7295' };
    const url = 'http://127.0.0.1:7295/api/v1';
    expect((await visitor.ask(`${url}/me`, { headers })).status).toBe(401);
    expect((await visitor.ask(`${url}/queues/mail/pause`, { method: 'POST', body: {}, headers })).status).toBe(401);
  });

  test.each([{}, { tokens: [] }, { users: [] }, { authorize: undefined }] satisfies AuthOptions[])(
    'an auth without callers lets no caller in: %j',
    async (auth) => {
      expect((await house.open({ auth }).ask(ME)).status).toBe(401);
    },
  );
});

describe('this machine', () => {
  test('is trusted only when it was said so, by its own name and without a proxy', async () => {
    const visitor = house.open({ auth: { dangerouslyTrustLoopback: 'operator' } });
    const me = (asked: RequestOptions, host = 'localhost'): Promise<Answer> =>
      visitor.ask(`http://${host}${ME}`, asked);
    expect((await me({})).body).toMatchObject({ name: 'this machine', role: 'operator', by: 'loopback' });
    expect((await me({ from: '::1' }, '[::1]')).status).toBe(200);
    expect((await me({ from: '::ffff:127.0.0.1' }, '127.0.0.1:8080')).status).toBe(200);
    const proxies = ['x-forwarded-for', 'x-forwarded-proto', 'forwarded', 'via', 'x-real-ip', 'cf-connecting-ip'];
    const more = ['true-client-ip', 'x-client-ip', 'fly-client-ip', 'x-envoy-external-address', 'cf-ray'];
    const outside: RequestOptions[] = [
      { from: '10.0.0.7' },
      { from: null },
      ...[...proxies, ...more].map((name) => ({ headers: { [name]: '127.0.0.1' } })),
    ];
    for (const asked of outside) expect([asked, (await me(asked)).status]).toEqual([asked, 401]);
    // A name that leads here, made up by a page elsewhere.
    for (const host of ['rebound.example.org', 'localhost.example.org', 'evil.localhost'])
      expect([host, (await me({}, host)).status]).toEqual([host, 401]);
  });

  test('needs what everybody needs, where there is a way in', async () => {
    const tokens = [{ name: 'ci', token: TOKEN, role: 'admin' }] as const;
    const visitor = house.open({ auth: { tokens } });
    expect((await visitor.ask(ME)).status).toBe(401);
    expect((await visitor.ask(ME, { headers: bearer('not-this-one-012345') })).status).toBe(401);
    const half = house.open({ auth: { tokens, dangerouslyTrustLoopback: 'viewer' } });
    expect((await half.ask(ME)).body).toMatchObject({ role: 'viewer' });
    expect((await half.ask(ME, { headers: bearer('not-this-one-012345') })).status).toBe(401);
  });
});

describe('what a rule of the user’s own gives', () => {
  const asWhom = async (answer: unknown): Promise<Answer> =>
    house.open({ auth: { authorize: () => answer as undefined } }).ask(ME, { from: '203.0.113.9' });

  test.each([
    [false],
    [''],
    [0],
    [true],
    [null],
    [undefined],
    [{}],
    [[]],
    ['ada'],
    [{ name: 'ada' }],
    [{ role: 'admin' }],
    [{ name: 'ada', role: 'superadmin' }],
    [{ name: 'ada', role: 'constructor' }],
    [{ name: 'ada', role: 'admin', permissions: ['view'] }],
    [{ name: 'ada', permissions: 'view' }],
    [{ name: 'ada', permissions: ['view', 'all'] }],
    [{ name: '', role: 'viewer' }],
    [{ name: 'a'.repeat(101), role: 'viewer' }],
    [{ name: 'a\0b', role: 'viewer' }],
    [{ name: 'a\ud800', role: 'viewer' }],
    [{ name: 7, role: 'viewer' }],
  ])('is refused without a name and permissions: %j', async (answer) => {
    const { status, body } = await asWhom(answer);
    expect([status, body.error?.code]).toEqual([401, 'unauthorized']);
  });

  test('is somebody with a name and a role, or permissions', async () => {
    expect((await asWhom({ name: 'ada', role: 'viewer' })).body).toMatchObject({ name: 'ada', role: 'viewer' });
    expect((await asWhom({ name: 'ada', permissions: [] })).status).toBe(403);
    expect((await asWhom(Promise.resolve({ name: 'ada', permissions: ['view'] }))).body).toMatchObject({
      permissions: ['view'],
    });
  });
});

describe('a refusal says what the caller can do', () => {
  const authorize = (): undefined => undefined;
  const users = [
    { name: 'ada', password: `scrypt$17$8$1$${'A'.repeat(22)}$${'A'.repeat(43)}`, role: 'viewer' },
  ] as const;
  const tokens = [{ name: 'ci', token: TOKEN, role: 'admin' }] as const;
  const BY_RULE = `send what auth.authorize of this server reads, such as its app's session cookie`;
  const BY_TOKEN = 'send a token (Authorization: Bearer …)';
  const NOBODY = 'the caller is unknown; ';

  test.for([
    [{ authorize }, `${NOBODY}${BY_RULE}`],
    [{ tokens }, `${NOBODY}${BY_TOKEN}`],
    [{ users }, `${NOBODY}log in`],
    [{ users, tokens, authorize }, `${NOBODY}log in, or ${BY_TOKEN}, or ${BY_RULE}`],
    [
      { dangerouslyTrustLoopback: 'viewer' },
      `${NOBODY}send the request from the server's machine, without a token or a proxy`,
    ],
  ] satisfies [AuthOptions, string][])('%j', async ([auth, message]) => {
    const { body } = await house.open({ auth }).ask(ME, { from: '203.0.113.9' });
    expect(body.error?.message).toBe(message);
  });

  test('where the token is wrong, too', async () => {
    const { body } = await house.open({ auth: { authorize } }).ask(ME, { headers: bearer('not-this-one-012345') });
    expect(body.error?.message).toBe(`this server does not know this token; ${BY_RULE}`);
  });

  test('and a token that no header can carry is refused before', () => {
    const open = (token: string): Visitor => house.open({ auth: { tokens: [{ name: 'ci', token, role: 'admin' }] } });
    expect(() => open('a token with spaces in it')).toThrow(/must be one word of visible ASCII of 16 to 4096/);
    expect(() => open('schlüssel-0123456789')).toThrow(/its value is secret and not shown/);
  });
});

describe('a token of a provider', () => {
  const secret = 'a secret that is thirty-two long!';
  const key = new TextEncoder().encode(secret);
  const now = (): number => Math.floor(Date.now() / 1000);
  const sign = (claims: Record<string, unknown>): Promise<string> =>
    new SignJWT({ role: 'admin', iss: 'https://id.example', aud: 'pawl', ...claims })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(key);
  const jwt = { secret, issuer: 'https://id.example', audience: 'pawl' };
  const asked = async (claims: Record<string, unknown>, of: object = {}): Promise<unknown[]> => {
    const visitor = house.open({ auth: { jwt: { ...jwt, ...of } } });
    const { status, body } = await visitor.ask(ME, { headers: bearer(await sign(claims)), from: '10.0.0.1' });
    return [status, body['name'] ?? body.error?.code];
  };

  test('must say who it is, and until when', async () => {
    const [sub, exp] = ['ada', now() + 60];
    expect(await asked({ sub, exp })).toEqual([200, 'ada']);
    for (const claims of [
      { sub },
      { exp },
      { sub, iat: now() - 315_360_000 },
      { sub: '', exp },
      { sub: 7, exp },
      { sub: 'a\0b', exp },
      { sub: 'a'.repeat(5000), exp },
    ])
      expect([claims, await asked(claims)]).toEqual([claims, [401, 'unauthorized']]);
  });

  test('is taken where the clocks differ by seconds, and not by more', async () => {
    const sub = 'ada';
    const [soon, ago] = [now() + 60, now() - 60];
    expect(await asked({ sub, exp: now() - 10 })).toEqual([200, 'ada']);
    expect(await asked({ sub, exp: soon, nbf: now() + 10 })).toEqual([200, 'ada']);
    expect(await asked({ sub, exp: ago })).toEqual([401, 'unauthorized']);
    expect(await asked({ sub, exp: soon, nbf: soon })).toEqual([401, 'unauthorized']);
    expect(await asked({ sub, exp: now() - 10 }, { clockTolerance: 0 })).toEqual([401, 'unauthorized']);
  });

  test('is worth nothing beyond the age that was set, whatever it says', async () => {
    const [sub, exp] = ['ada', now() + 86_400];
    expect(await asked({ sub, exp, iat: now() - 30 }, { maxAge: '5m' })).toEqual([200, 'ada']);
    expect(await asked({ sub, exp, iat: now() - 600 }, { maxAge: '5m' })).toEqual([401, 'unauthorized']);
    expect(await asked({ sub, exp }, { maxAge: '5m' })).toEqual([401, 'unauthorized']);
  });
});

describe('a session', () => {
  const password = 'correct horse battery';
  const secret = 'the secret that all processes have';
  const login = (visitor: Visitor, body: object): Promise<Answer> =>
    visitor.ask('/api/v1/login', { method: 'POST', body, headers: SAME_ORIGIN });
  const cookieOf = ({ headers }: Answer): Record<string, string> => ({
    cookie: headers.getSetCookie()[0]?.split(';')[0] ?? '',
  });
  const statusOf = async (visitor: Visitor, headers: Record<string, string>): Promise<number> =>
    (await visitor.ask(ME, { headers, from: '203.0.113.9' })).status;

  test('is over when it was ended, wherever its cookie was copied to, in every process', async () => {
    const auth = { users: [{ name: 'ada', password: hashCheaply(password), role: 'admin' }], secret } as const;
    const [here, there] = [house.open({ auth }), house.open({ auth })];
    const cookie = cookieOf(await login(here, { name: 'ada', password }));
    const other = cookieOf(await login(here, { name: 'ada', password }));
    expect([await statusOf(here, cookie), await statusOf(there, cookie)]).toEqual([200, 200]);
    const headers = { ...cookie, ...SAME_ORIGIN };
    expect((await here.ask('/api/v1/logout', { method: 'POST', headers })).status).toBe(204);
    expect(await statusOf(here, cookie)).toBe(401);
    // Another process has read what was ended a moment ago, and reads it again within seconds.
    await until('it knows', async () => (await statusOf(there, cookie)) === 401);
    expect(await statusOf(house.open({ auth }), cookie)).toBe(401);
    expect(await statusOf(there, other)).toBe(200);
  });

  test('is over when the password, the token or the person is not there any more', async () => {
    const hash = hashCheaply(password);
    const users = [{ name: 'ada', password: hash, role: 'admin' }] as const;
    const tokens = [{ name: 'ci', token: TOKEN, role: 'admin' }] as const;
    const before = house.open({ auth: { users, tokens, secret } });
    const ofPassword = cookieOf(await login(before, { name: 'ada', password }));
    const ofToken = cookieOf(await login(before, { token: TOKEN }));
    const after = async (auth: AuthOptions): Promise<number[]> => {
      const visitor = house.open({ auth: { ...auth, secret } });
      return [await statusOf(visitor, ofPassword), await statusOf(visitor, ofToken)];
    };
    expect(await after({ users, tokens })).toEqual([200, 200]);
    const changed = [{ name: 'ada', password: hashCheaply(password), role: 'admin' }] as const;
    expect(await after({ users: changed, tokens: [{ ...tokens[0], token: `${TOKEN}-new` }] })).toEqual([401, 401]);
    expect(await after({ users: [{ ...users[0], name: 'eve' }], tokens: [] })).toEqual([401, 401]);
    // What somebody may is looked up each time.
    const { body } = await house
      .open({ auth: { users: [{ ...users[0], role: 'viewer' }], secret } })
      .ask(ME, { headers: ofPassword });
    expect(body).toMatchObject({ name: 'ada', role: 'viewer' });
  });

  test('is begun by whatever the server takes, and the login page can ask what that is', async () => {
    const jwtSecret = 'a secret that is thirty-two long!';
    const jwt = { secret: jwtSecret, issuer: 'https://id.example', audience: 'pawl' };
    const tokens = [{ name: 'ci', token: TOKEN, role: 'operator' }] as const;
    const ways = async (auth: AuthOptions): Promise<unknown> => (await house.open({ auth }).ask('/api/v1/login')).body;
    expect(await ways({ tokens })).toEqual({ password: false, token: true });
    expect(await ways({ jwt })).toEqual({ password: false, token: true });
    expect(await ways({ users: [{ name: 'ada', password: hashCheaply(password), role: 'admin' }] })).toEqual({
      password: true,
      token: false,
    });
    const visitor = house.open({ auth: { tokens, jwt } });
    const begun = await login(visitor, { token: TOKEN });
    expect([begun.status, begun.headers.getSetCookie()]).toEqual([
      204,
      [expect.stringMatching(/^pawl_session=[\w.-]+; Path=\/; Max-Age=43\d\d\d; HttpOnly; SameSite=Strict$/)],
    ]);
    expect((await visitor.ask(ME, { headers: cookieOf(begun) })).body).toMatchObject({ name: 'ci', role: 'operator' });
    const signed = await new SignJWT({ role: 'viewer' })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(jwt.issuer)
      .setAudience(jwt.audience)
      .setSubject('eve')
      .setExpirationTime('2m')
      .sign(new TextEncoder().encode(jwtSecret));
    const ofProvider = await login(visitor, { token: signed });
    expect(ofProvider.headers.getSetCookie()[0]).toMatch(/; Max-Age=1\d\d;/); // no longer than the token
    const me = await visitor.ask(ME, { headers: cookieOf(ofProvider) });
    expect(me.body).toMatchObject({ name: 'eve', role: 'viewer', by: 'session' });
    for (const body of [{}, { token: 'not-this-one-012345', name: 'ci' }, { name: 'ci' }])
      expect([body, (await login(visitor, body)).status]).toEqual([body, 400]);
    expect((await login(visitor, { token: 'not-this-one-012345' })).status).toBe(401);
  });

  test('is begun by an address only when its token is for that, and the address leads nowhere else', async () => {
    const tokens = [
      { name: 'started', token: TOKEN, role: 'admin', inUrl: true },
      { name: 'ci', token: `${TOKEN}-ci`, role: 'admin' },
    ] as const;
    const visitor = house.open({ auth: { tokens }, basePath: '/pawl' });
    const enter = async (path: string): Promise<unknown[]> => {
      const { status, headers } = await visitor.ask(path);
      return [status, headers.get('location'), headers.has('set-cookie'), headers.get('referrer-policy')];
    };
    expect(await enter(`/pawl/?token=${TOKEN}`)).toEqual([303, '/pawl/', true, 'no-referrer']);
    expect(await enter(`/pawl/jobs/7?token=${TOKEN}&a=1`)).toEqual([303, '/pawl/jobs/7?a=1', true, 'no-referrer']);
    expect(await enter(`/pawl/?token=${TOKEN}-ci`)).toEqual([303, '/pawl/', false, 'no-referrer']);
    const root = house.open({ auth: { tokens } });
    const { headers } = await root.ask(`http://localhost//evil.example/?token=${TOKEN}`);
    expect(headers.get('location')).toBe('/evil.example/');
    // An address gives no right by itself.
    expect((await visitor.ask(`/pawl/api/v1/me?token=${TOKEN}`)).status).toBe(401);
  });
});
