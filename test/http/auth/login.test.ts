import { beforeAll, describe, expect, test } from 'vitest';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { networkOf } from '../../../src/http/auth/peer.ts';
import { createHttp } from '../../../src/http/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';
import { hashCheaply } from './cheap-password.ts';

const RIGHT = 'correct horse battery';
const password = hashCheaply(RIGHT);

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

/** An unknown name costs a guess as much as one with a good password, a fifth of a second of the processor: these are known. */
const NAMES = ['ada', 'eve', ...Array.from({ length: 60 }, (_, n) => `name ${n}`)];
const USERS = NAMES.map((name) => ({ name, password, role: 'admin' as const }));
const open = (): Visitor => house.open({ auth: { users: USERS } });

interface Try {
  readonly name?: string;
  readonly given?: string;
  readonly from?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

function logIn(
  visitor: Visitor,
  { name = 'ada', given = 'a guess', from = '203.0.113.9', headers }: Try,
): Promise<Answer> {
  return visitor.ask('/api/v1/login', {
    method: 'POST',
    body: { name, password: given },
    headers: { 'sec-fetch-site': 'same-origin', ...headers },
    from,
  });
}

async function statuses(asked: readonly Promise<Answer>[]): Promise<Record<number, number>> {
  const all = (await Promise.all(asked)).map(({ status }) => status);
  return Object.fromEntries([...new Set(all)].map((status) => [status, all.filter((one) => one === status).length]));
}

describe('guessing at passwords', () => {
  test('keeps others waiting for no more than a few guesses, however many come at once', async () => {
    const visitor = open();
    const guesses = Array.from({ length: 60 }, (_, n) =>
      logIn(visitor, { name: `name ${n}`, from: `198.51.100.${n}` }),
    );
    const told = await statuses(guesses);
    // Four wait, one is being tried; everybody else hears at once to come again.
    expect(told).toEqual({ 401: expect.any(Number), 503: expect.any(Number) });
    expect(told[401]).toBeLessThan(12);
    expect((await logIn(visitor, { given: RIGHT })).status).toBe(204);
  });

  test('is limited for one name from wherever it comes, and for one network of IPv6 however many addresses it has', async () => {
    // All at once, since time gives tries back; most of them are told to come again.
    const many = (n: number): number[] => Array.from({ length: n }, (_, index) => index);
    const one = open();
    const told = await statuses(many(24).map((n) => logIn(one, { from: `198.51.100.${n}` })));
    expect(told[429]).toBe(4);
    const other = open();
    const of = (n: number): string => `2001:db8:1:2:${n.toString(16)}::${n}`;
    const more = await statuses(many(12).map((n) => logIn(other, { name: `name ${n}`, from: of(n) })));
    expect(more[429]).toBe(2);
    expect((await logIn(other, { name: 'eve', from: '2001:db8:1:3::1' })).status).toBe(401);
  });

  test('locks no user out of a browser in which that user has logged in before, even where no address is known', async () => {
    const visitor = open();
    const first = await logIn(visitor, { given: RIGHT, from: null });
    const device = first.headers.getSetCookie().find((cookie) => cookie.startsWith('pawl_device=')) ?? '';
    const headers = { cookie: device.split(';')[0] ?? '' };
    for (let n = 0; n < 25; n += 1) await logIn(visitor, { from: null });
    expect((await logIn(visitor, { given: RIGHT, from: null })).status).toBe(429);
    expect((await logIn(visitor, { given: RIGHT, from: null, headers })).status).toBe(204);
    // It is of this name alone, is no way in, and has a limit, too.
    expect((await logIn(visitor, { name: 'eve', from: null, headers })).status).toBe(429);
    expect((await visitor.ask('/api/v1/me', { headers })).status).toBe(401);
    // At once: each takes a second and more of a busy machine, in which the limit grows again.
    const guesses = await Promise.all(Array.from({ length: 12 }, () => logIn(visitor, { from: null, headers })));
    expect(guesses.map(({ status }) => status)).toContain(429);
  });

  test('is not what another site makes a browser do: its posts are refused before they count', async () => {
    const visitor = open();
    for (let n = 0; n < 30; n += 1) {
      const { body } = await logIn(visitor, {
        headers: { 'sec-fetch-site': 'cross-site', origin: 'https://evil.example' },
      });
      expect(body.error?.code).toBe('cross_site');
    }
    expect((await logIn(visitor, { given: RIGHT })).status).toBe(204);
  });
});

test('who logged in, and that somebody could not, is in the audit, without what was typed', async () => {
  const visitor = open();
  await logIn(visitor, { name: 'a password typed into the wrong box' });
  await logIn(visitor, { given: RIGHT });
  const { body } = await house.open().ask('/api/v1/audit?action=login&limit=2');
  expect(body.items).toMatchObject([
    { who: 'ada (session)', remote: '203.0.113.9', target: 'session of ada', outcome: 'done' },
    { who: 'somebody', remote: '203.0.113.9', target: 'session', outcome: 'refused', status: 401 },
  ]);
  expect(JSON.stringify(body)).not.toContain('wrong box');
});

describe('on a database that takes no writes, such as a standby', () => {
  test('people log in and look; the log has what the audit cannot', async () => {
    const { url } = await freshDatabase();
    await using engine = postgres(url);
    await engine.query(
      statement(
        'test.read_only',
        `do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`,
      ),
    );
    const lines: string[] = [];
    const log = (_fields: object, message: string): void => void lines.push(message);
    await using standby = postgres(url, { logger: { debug: log, info: log, warn: log, error: log } });
    const token = 'a-token-of-16-characters';
    const auth = { users: USERS.slice(0, 1), tokens: [{ name: 'cli', token, role: 'admin' as const, inUrl: true }] };
    await using handler = createHttp(standby, { auth });
    const ask = (path: string, body?: object, headers: Record<string, string> = {}): Promise<Response> =>
      handler(
        new Request(`http://localhost${path}`, {
          headers: { 'sec-fetch-site': 'same-origin', 'content-type': 'application/json', ...headers },
          ...(body && { method: 'POST', body: JSON.stringify(body) }),
        }),
        { remoteAddress: '203.0.113.9' },
      );
    const entered = await ask(`/?token=${token}`);
    expect([entered.status, entered.headers.get('set-cookie')]).toEqual([
      303,
      expect.stringContaining('pawl_session='),
    ]);
    expect((await ask('/api/v1/login', { name: 'ada', password: 'wrong' })).status).toBe(401);
    const loggedIn = await ask('/api/v1/login', { name: 'ada', password: RIGHT });
    expect(loggedIn.status).toBe(204);
    expect(lines.filter((line) => line.includes('not in the audit'))).toHaveLength(3);
    const cookie = loggedIn.headers
      .getSetCookie()
      .map((one) => one.split(';')[0])
      .join('; ');
    expect((await ask('/api/v1/queues', undefined, { cookie })).status).toBe(200);
    const paused = await ask('/api/v1/queues/mail/pause', {}, { cookie });
    expect([paused.status, await paused.text()]).toEqual([503, expect.stringContaining('takes no writes')]);
  });
});

test('guesses at the token of an address are limited, and in the audit', async () => {
  const token = 'a-token-of-16-characters';
  const visitor = house.open({ auth: { tokens: [{ name: 'cli', token, role: 'viewer', inUrl: true }] } });
  const enter = (guess: string, from: string): Promise<Answer> => visitor.ask(`/?token=${guess}`, { from });
  const told = await statuses(Array.from({ length: 14 }, (_, n) => enter(`guess-${n}`, '198.51.100.77')));
  expect(told).toEqual({ 303: 10, 429: 4 });
  expect((await enter(token, '198.51.100.77')).headers.get('set-cookie')).toContain('pawl_session=');
  const { body } = await house.open().ask('/api/v1/audit?action=login&limit=200');
  const refused = body.items?.filter(({ remote, outcome }) => remote === '198.51.100.77' && outcome === 'refused');
  expect(refused).toHaveLength(10);
});

test('a caller that is refused all the time does not fill the audit', async () => {
  const token = 'a-token-0123456789';
  const visitor = house.open({ auth: { tokens: [{ name: 'refused', token, role: 'viewer' }] } });
  const headers = { authorization: `Bearer ${token}` };
  for (let n = 0; n < 150; n += 1)
    await visitor.ask('/api/v1/queues/mail/pause', { method: 'POST', body: {}, headers });
  const { body } = await house.open().ask('/api/v1/audit?who=refused%20(token)&limit=200');
  expect(body.items?.length).toBeGreaterThanOrEqual(100);
  expect(body.items?.length).toBeLessThan(150);
});

test.each([
  ['203.0.113.9', '203.0.113.9'],
  ['::ffff:203.0.113.9', '203.0.113.9'],
  ['2001:db8::1', '2001:db8:0:0::/64'],
  ['2001:DB8:0:0:1:2:3:4', '2001:db8:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['::1', '0:0:0:0::/64'],
  [undefined, 'unknown'],
])('a network is what one caller has of addresses: %s', (remoteAddress, network) => {
  expect(networkOf({ remoteAddress })).toBe(network);
});
