import { connect, type Socket } from 'node:net';
import { SignJWT } from 'jose';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type AuthOptions, serve } from '../../../src/http/index.ts';
import { eventually, until } from '../../support/eventually.ts';
import { type House, makeHouse } from '../house.ts';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

const TOKEN = 'a-token-0123456789';
const HEADERS = { authorization: `Bearer ${TOKEN}` } as const;
const AUTH: AuthOptions = { tokens: [{ name: 'ci', token: TOKEN, role: 'admin' }] };

/** A connection that says this, and what it is answered. */
function say(url: string, text: string): { readonly socket: Socket; heard: string; closed: boolean } {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const state = { socket, heard: '', closed: false };
  socket.on('data', (data) => {
    state.heard += data.toString();
  });
  socket.on('close', () => {
    state.closed = true;
  });
  socket.on('error', () => {}); // it may be closed before all is said
  socket.write(text);
  onTestFinished(() => void socket.destroy());
  return state;
}

describe('strangers', () => {
  test('are answered before their bodies have come, of which nothing is kept', async () => {
    const served = await serve(house.open({ auth: AUTH }).handler);
    onTestFinished(() => served.stop());
    const head = 'POST /api/v1/queues/mail/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n';
    const chunk = `10000\r\n${'x'.repeat(0x1_00_00)}\r\n`;
    const all = Array.from({ length: 50 }, () => say(served.url, `${head}transfer-encoding: chunked\r\n\r\n${chunk}`));
    await until('each was refused', () => all.every(({ heard }) => heard.startsWith('HTTP/1.1 401')));
    await until('and sent away', () => all.every(({ closed }) => closed));
    expect((await fetch(`${served.url}api/v1/me`, { headers: HEADERS })).status).toBe(200);
  });

  test('take no more connections than there may be, and leave those of others alone', async () => {
    const served = await serve(house.open({ auth: AUTH }).handler, { maxConnections: 3 });
    onTestFinished(() => served.stop());
    const all = Array.from({ length: 6 }, () => say(served.url, 'GET /healthz HTTP/1.1\r\nhost: localhost\r\n'));
    await until('more were closed', () => all.filter(({ closed }) => closed).length === 3);
    const [first] = all.filter(({ closed }) => !closed);
    first?.socket.write('\r\n');
    await until('the others are answered', () => first?.heard.startsWith('HTTP/1.1 200') === true);
  });

  test('who are known are refused a body that is too long, with a length or without one', async () => {
    const served = await serve(house.open({ auth: AUTH, bodyLimit: 2000 }).handler);
    onTestFinished(() => served.stop());
    const long = JSON.stringify({ kind: 'send', payload: 'x'.repeat(3000) });
    const head = `POST /api/v1/queues/mail/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nauthorization: Bearer ${TOKEN}\r\n`;
    const withLength = say(served.url, `${head}content-length: ${long.length}\r\n\r\n${long}`);
    const without = say(
      served.url,
      `${head}transfer-encoding: chunked\r\n\r\n${long.length.toString(16)}\r\n${long}\r\n`,
    );
    await until('both are refused', () => [withLength, without].every(({ heard }) => heard.startsWith('HTTP/1.1 413')));
  });
});

describe('streams', () => {
  test('are not begun for HEAD, which nothing would end', async () => {
    const visitor = house.open();
    for (let n = 0; n < 20; n += 1) {
      const { status, headers, text } = await visitor.ask('/api/v1/events', { method: 'HEAD' });
      expect([status, headers.get('content-type'), text]).toEqual([200, 'text/event-stream; charset=utf-8', '']);
    }
    expect((await visitor.ask('/api/v1/admin')).body['process']).toMatchObject({ watchers: 0 });
  });

  test('are limited for each caller, and in all', async () => {
    const tokens = ['a', 'b', 'c'].map((name) => ({ name, token: `${TOKEN}-${name}`, role: 'viewer' as const }));
    const { handler } = house.open({ auth: { tokens }, streams: { perCaller: 2, most: 4 } });
    const ending = new AbortController();
    onTestFinished(() => ending.abort());
    const open = async (name: string, signal: AbortSignal = ending.signal): Promise<number> => {
      const headers = { authorization: `Bearer ${TOKEN}-${name}` };
      return (await handler(new Request('http://localhost/api/v1/events', { headers, signal }))).status;
    };
    const closing = new AbortController();
    expect([await open('a'), await open('a', closing.signal), await open('a')]).toEqual([200, 200, 429]);
    expect([await open('b'), await open('b'), await open('c')]).toEqual([200, 200, 503]);
    closing.abort();
    await until('there is room again', async () => (await open('c')) === 200);
  });

  test('end with the token that let them in, and with the session that was ended', async () => {
    const secret = 'a secret that is thirty-two long!';
    const jwt = { secret, issuer: 'https://id.example', audience: 'pawl' };
    const visitor = house.open({ auth: { ...AUTH, jwt } });
    const read = async (headers: Record<string, string>): Promise<{ readonly isOver: () => boolean }> => {
      const request = new Request('http://localhost/api/v1/events', { headers });
      const response = await visitor.handler(request, { remoteAddress: '127.0.0.1' });
      expect(response.status).toBe(200);
      let isOver = false;
      void response.text().then(() => {
        isOver = true;
      });
      return { isOver: () => isOver };
    };
    // It is over, except for the seconds by which clocks may differ.
    const sign = (): Promise<string> =>
      new SignJWT({ role: 'viewer', exp: Math.floor(Date.now() / 1000) - 27 })
        .setProtectedHeader({ alg: 'HS256' })
        .setIssuer(jwt.issuer)
        .setAudience(jwt.audience)
        .setSubject('ada')
        .sign(new TextEncoder().encode(secret));
    // Three seconds are left to come in, in which a machine may stand still.
    const ofToken = await eventually(async () => read({ authorization: `Bearer ${await sign()}` }));
    const same = { 'sec-fetch-site': 'same-origin' };
    const login = await visitor.ask('/api/v1/login', { method: 'POST', body: { token: TOKEN }, headers: same });
    const cookie = { cookie: login.headers.getSetCookie()[0]?.split(';')[0] ?? '' };
    const [ofSession, lasting] = [await read(cookie), await read(HEADERS)];
    await until('the token is over, and its stream', () => ofToken.isOver());
    expect(ofSession.isOver()).toBe(false);
    await visitor.ask('/api/v1/logout', { method: 'POST', headers: { ...cookie, ...same } });
    await until('the session is over, and its stream', () => ofSession.isOver());
    expect(lasting.isOver()).toBe(false);
    await visitor.handler.stop();
    await until('the stream ends', () => lasting.isOver());
  });
});
