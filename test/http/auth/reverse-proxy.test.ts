import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { ROUTES } from '../../../src/http/app.ts';
import { type HttpOptions, serve } from '../../../src/http/index.ts';
import { PLAIN_ROUTES } from '../../../src/http/plain-routes.ts';
import { REVERSE_PROXIES, type ReverseProxy, startReverseProxy } from '../../support/servers/reverse-proxy.ts';
import { type House, makeHouse } from '../house.ts';
import { hashCheaply } from './cheap-password.ts';

const TOKEN = 'a-token-0123456789';
const HEADERS = { authorization: `Bearer ${TOKEN}` } as const;
const AUTH = { tokens: [{ name: 'ci', token: TOKEN, role: 'admin' }] } as const;
/** What a browser far away says; and what somebody says who wants to be taken for this machine. */
const STRANGERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'a browser': { host: 'app.example', origin: 'https://app.example', 'sec-fetch-site': 'same-origin' },
  'a liar': { host: 'localhost', 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1', forwarded: 'for=127.0.0.1' },
};

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

async function startBehind(
  name: keyof typeof REVERSE_PROXIES,
  options: HttpOptions,
  more?: string,
): Promise<ReverseProxy> {
  const served = await serve(house.open(options).handler);
  const proxy = await startReverseProxy(name, new URL(served.url).origin, more);
  onTestFinished(async () => {
    await proxy.stop();
    await served.stop();
  });
  return proxy;
}

describe.each(['nginx', 'caddy'] as const)('behind a real %s with its defaults', (name) => {
  const isHere = REVERSE_PROXIES[name].path !== undefined;
  const behind = (options: HttpOptions): Promise<ReverseProxy> => startBehind(name, options);

  test.skipIf(!isHere).each(Object.entries(STRANGERS))(
    'a server without auth answers 401 to %s on every route',
    async (_, headers) => {
      const { ask } = await behind({ auth: undefined, rate: { burst: 10_000, perSecond: 1000 } });
      for (const { method, path } of ROUTES) {
        const { status } = await ask(`/api/v1${path.replaceAll(/\{\w+\}/g, '1')}`, { method, headers });
        expect([method, path, status]).toEqual([method, path, 401]);
      }
      const guarded = PLAIN_ROUTES.filter(({ permission }) => permission !== undefined).map(({ path }) => path);
      for (const path of ['/', '/queues', ...guarded])
        expect([path, (await ask(path, { headers })).status]).toEqual([path, 401]);
      for (const path of ['/healthz', '/readyz']) expect((await ask(path, { headers })).status).toBe(200);
    },
  );

  test.skipIf(!isHere)('a token is let in, and so is a password, whose cookie then is enough', async () => {
    const users = [{ name: 'ada', password: hashCheaply('correct horse'), role: 'operator' }] as const;
    const { ask } = await behind({ auth: { ...AUTH, users } });
    expect((await ask('/api/v1/me', { headers: HEADERS })).status).toBe(200);
    const browser = { ...STRANGERS['a browser'], 'content-type': 'application/json' };
    const body = JSON.stringify({ name: 'ada', password: 'correct horse' });
    const login = await ask('/api/v1/login', { method: 'POST', headers: browser, body });
    const cookie = String(login.headers['set-cookie']?.[0]).split(';')[0] ?? '';
    const me = await ask('/api/v1/me', { headers: { ...browser, cookie } });
    expect([login.status, me.status, JSON.parse(me.text)]).toMatchObject([204, 200, { name: 'ada' }]);
    const other = { ...browser, cookie, origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' };
    expect((await ask('/api/v1/queues/mail/pause', { method: 'POST', headers: other })).status).toBe(403);
  });

  test.skipIf(!isHere)('a stream is not kept back: its first event comes while it is open', async () => {
    const { ask } = await behind({ auth: AUTH });
    const isEnough = (text: string): boolean => text.includes('event: snapshot');
    const { status, text } = await ask('/api/v1/events', { headers: HEADERS, isEnough });
    expect([status, isEnough(text)]).toEqual([200, true]);
  });

  test.skipIf(!isHere)('names in paths come through as they are', async () => {
    const { ask } = await behind({ auth: AUTH });
    for (const name of ['%41dmin', 'a/b', '100%', 'ü ']) {
      const { status, text } = await ask(`/api/v1/queues/${encodeURIComponent(name)}`, { headers: HEADERS });
      expect([name, status]).toEqual([name, 404]);
      expect(text).not.toContain('there is nothing at');
    }
  });
});

describe.skipIf(REVERSE_PROXIES.nginx.path === undefined)('what nginx adds is what it was told to add', () => {
  test('dangerouslyTrustLoopback is as dangerous as its name: nginx makes a request from anywhere one of this machine', async () => {
    const { ask } = await startBehind('nginx', { auth: { dangerouslyTrustLoopback: 'viewer' } });
    const { status, text } = await ask('/api/v1/me', { headers: STRANGERS['a browser'] ?? {} });
    expect([status, JSON.parse(text)]).toMatchObject([200, { name: 'this machine' }]);
  });

  test('a header that nginx was told to add takes that right away', async () => {
    const options = { auth: { dangerouslyTrustLoopback: 'viewer' } } as const;
    const { ask } = await startBehind('nginx', options, 'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;');
    expect((await ask('/api/v1/me')).status).toBe(401);
  });
});

test.skipIf(REVERSE_PROXIES.caddy.path === undefined).each(Object.entries(STRANGERS))(
  'caddy says by itself for whom it asks, which takes the right of this machine away from %s',
  async (_, headers) => {
    const { ask } = await startBehind('caddy', { auth: { dangerouslyTrustLoopback: 'viewer' } });
    expect((await ask('/api/v1/me', { headers })).status).toBe(401);
  },
);
