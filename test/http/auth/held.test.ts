import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { exportJWK, SignJWT } from 'jose';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { ROUTES } from '../../../src/http/app.ts';
import { ROLES, serve } from '../../../src/http/index.ts';
import { until } from '../../support/eventually.ts';
import { type House, makeHouse, type Visitor } from '../house.ts';

// What was tried against the API and came to nothing: it should stay so.

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

const TOKENS = ROLES.map((role) => ({ name: role, token: `${role}-token-0123456789`, role }));
const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });

test('no path leads out of the dashboard, nor to another route', async () => {
  const served = await serve(house.open({ auth: { tokens: TOKENS } }).handler);
  onTestFinished(() => served.stop());
  const { hostname, port } = new URL(served.url);
  // As it stands on the wire: fetch and URL would tidy it up.
  const ask = async (path: string): Promise<string> => {
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    let heard = '';
    socket.on('data', (data) => {
      heard += data.toString();
    });
    socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`);
    await new Promise((resolve) => socket.once('close', resolve));
    return heard;
  };
  for (const path of [
    '/../../package.json',
    '/assets/../../../package.json',
    '/assets/..%2f..%2f..%2fpackage.json',
    '/assets/%2e%2e/%2e%2e/%2e%2e/package.json',
    '/assets/..\\..\\..\\package.json',
    '/assets/....//....//package.json',
    '//etc/passwd',
    '/%2e%2e%2f%2e%2e%2fetc/passwd',
    '/assets/%00/../package.json',
    'http://localhost/../package.json',
  ]) {
    const heard = await ask(path);
    expect([path, /"devDependencies"|root:/.test(heard)]).toEqual([path, false]);
    expect([path, /^HTTP\/1.1 (200|400|401|404)/.test(heard)]).toEqual([path, true]);
  }
  for (const path of ['/api/v1/%71ueues', '/api/v1//queues', '/api/v1/./queues', '/x/../api/v1/queues'])
    expect([path, (await ask(path)).slice(9, 12)]).toEqual([path, expect.stringMatching(/401|404/)]);
});

test('each role may call the routes of its permissions and no others, however it names the method', async () => {
  const visitor = house.open({ auth: { tokens: TOKENS } });
  const pathOf = (path: string): string =>
    `/api/v1${path.replaceAll(/\{(id)\}/g, '999999').replaceAll(/\{\w+\}/g, 'none')}`;
  for (const { name, token } of TOKENS) {
    const headers = bearer(token);
    const { body: me } = await visitor.ask('/api/v1/me', { headers });
    const may = new Set(me['permissions'] as string[]);
    for (const { method, path, permission = 'view' } of ROUTES) {
      if (may.has(permission)) continue;
      const body = method === 'GET' ? {} : { body: {} };
      const { status } = await visitor.ask(pathOf(path), { method, headers, ...body });
      expect([name, method, path, status]).toEqual([name, method, path, 403]);
    }
  }
  const override = {
    ...bearer('viewer-token-0123456789'),
    'x-http-method-override': 'POST',
    'x-method-override': 'POST',
  };
  expect((await visitor.ask('/api/v1/queues/mail/pause', { headers: override })).status).toBe(405);
});

describe('a token of a provider', () => {
  test('is worth nothing when anybody but the provider has signed it, by whatever algorithm', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const published = { ...(await exportJWK(publicKey)), kid: 'first', alg: 'RS256', use: 'sig' };
    const server = createServer((_request, response) => {
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: [published] }));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const visitor: Visitor = house.open({ auth: { jwt: { jwks: `${issuer}/keys`, issuer, audience: 'pawl' } } });
    const claims = { role: 'admin', sub: 'eve', iss: issuer, aud: 'pawl', exp: Math.floor(Date.now() / 1000) + 300 };
    const status = async (token: string): Promise<number> =>
      (await visitor.ask('/api/v1/me', { headers: bearer(token) })).status;
    const right = new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'first' });
    expect(await status(await right.sign(privateKey))).toBe(200);

    const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    for (const alg of ['none', 'None', 'NONE', 'nOnE'])
      expect([alg, await status(`${part({ alg, kid: 'first' })}.${part(claims)}.`)]).toEqual([alg, 401]);
    // The key that everybody can read, as if it were a secret that is shared.
    const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
    for (const secret of [pem, pem.trim(), JSON.stringify(published), String(published.n)]) {
      const token = new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'first' });
      expect(await status(await token.sign(new TextEncoder().encode(secret)))).toBe(401);
    }
    // A key of one's own, brought along, or named.
    const own = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const jwk = await exportJWK(own.publicKey);
    const headers = [{ jwk }, { jku: `${issuer}/own` }, { x5u: `${issuer}/own` }, {}];
    for (const more of headers) {
      const token = new SignJWT(claims).setProtectedHeader({ ...more, alg: 'RS256', kid: 'first' });
      expect([more, await status(await token.sign(own.privateKey))]).toEqual([more, 401]);
    }
  });
});

test('no pattern that is searched for holds up the server', async () => {
  const { ask } = house.open();
  const long = (part: string): string => part.repeat(Math.floor(1000 / part.length));
  for (const q of ['a', '"', '\\', '%', '_', '(a+)+', 'key:', '"a" ', ' '].map(long)) {
    for (const path of ['/jobs?q=', '/history?q=', '/locks?name=', '/captures/person/changes?words=']) {
      const { status } = await ask(`/api/v1${path}${encodeURIComponent(q)}`);
      expect([path, q.slice(0, 9), status < 500]).toEqual([path, q.slice(0, 9), true]);
    }
  }
});

test('a request that two servers would read differently is refused', async () => {
  const served = await serve(house.open({ auth: { tokens: TOKENS } }).handler);
  onTestFinished(() => served.stop());
  const { hostname, port } = new URL(served.url);
  const line = 'POST /api/v1/queues/mail/pause HTTP/1.1\r\nhost: localhost\r\n';
  for (const headers of [
    'content-length: 5\r\ntransfer-encoding: chunked\r\n',
    'content-length: 5\r\ncontent-length: 6\r\n',
    'transfer-encoding: chunked, identity\r\n',
    'transfer-encoding : chunked\r\n',
    'content-length: +5\r\n',
    'content-length: 5 \x0b\r\n',
  ]) {
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    let heard = '';
    socket.on('data', (data) => {
      heard += data.toString();
    });
    socket.on('error', () => {}); // it is closed in the middle of what it says
    socket.write(`${line}${headers}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n`);
    await until('it is answered', () => /^HTTP\/1.1 (4\d\d)/.test(heard));
    expect([headers, heard.slice(9, 12)]).toEqual([headers, '400']);
  }
});
