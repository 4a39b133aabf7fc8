import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { serve } from '../../../src/http/index.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open({ uploadLimit: 3_000_000 });
  return () => house.stop();
});

const content = (id: string, rest = ''): string => `/api/v1/files/one/content?id=${encodeURIComponent(id)}${rest}`;
const read = (id: string, headers: Record<string, string> = {}, rest = ''): Promise<Answer> =>
  visitor.ask(content(id, rest), { headers });
const write = (id: string, body: string, rest = ''): Promise<Answer> =>
  visitor.ask(content(id, rest), { method: 'PUT', body, headers: { 'content-type': 'text/html' } });

test('bytes go in and come out, to be kept and not to be run', async () => {
  const id = 'reports/über\n"x";.html';
  const { status, body } = await write(id, '<script>alert(1)</script>', '&ifVersion=0');
  expect([status, body]).toMatchObject([201, { id, version: 1, previous: null, size: 25 }]);
  const { text, headers } = await read(id);
  expect(text).toBe('<script>alert(1)</script>');
  expect(Object.fromEntries(headers)).toMatchObject({
    // Without a token it may be a page of ours that asks, with a script tag.
    'content-type': 'application/octet-stream',
    'x-pawl-content-type': 'text/html',
    'content-length': '25',
    'content-disposition': expect.stringMatching(
      /^attachment; filename="[^"]*"; filename\*=UTF-8''%C3%BCber%0A%22x%22%3B.html$/,
    ),
    'x-content-type-options': 'nosniff',
    'content-security-policy': "default-src 'none'; sandbox",
    etag: `"${body['sha256'] as string}"`,
  });
  const token = 'a-token-0123456789';
  const program = house.open({ auth: { tokens: [{ name: 'ci', token, role: 'viewer' }] } });
  const shown = await program.ask(content(id), { headers: { authorization: `Bearer ${token}` } });
  expect(shown.headers.get('content-type')).toBe('text/html');
  expect((await house.files.stat(id)).author).toBe('this machine');
});

test('a type that no header may hold, or that is none, is shown as bytes', async () => {
  for (const contentType of ['text/html\r\nset-cookie: a=b', 'text', 'ü/ü']) {
    await house.files.write('typed', 'x', { contentType });
    expect((await read('typed')).headers.get('content-type')).toBe('application/octet-stream');
  }
});

test('a part, or nothing new, is given when that is asked for', async () => {
  await write('digits', '0123456789');
  const ranged = async (range: string, more: Record<string, string> = {}): Promise<unknown[]> => {
    const { status, text, headers } = await read('digits', { range, ...more });
    return [status, status < 400 ? text : '', headers.get('content-range')];
  };
  expect(await ranged('bytes=2-4')).toEqual([206, '234', 'bytes 2-4/10']);
  expect(await ranged('bytes=7-')).toEqual([206, '789', 'bytes 7-9/10']);
  expect(await ranged('bytes=-3')).toEqual([206, '789', 'bytes 7-9/10']);
  expect(await ranged('bytes=5-99999')).toEqual([206, '56789', 'bytes 5-9/10']);
  expect(await ranged('bytes=10-')).toEqual([416, '', 'bytes */10']);
  for (const odd of ['bytes=4-2', 'bytes=-', 'bytes=0-1,3-4', 'lines=1-2', 'bytes=a-b'])
    expect([odd, await ranged(odd)]).toEqual([odd, [200, '0123456789', null]]);
  const etag = (await read('digits')).headers.get('etag') ?? '';
  expect(await ranged('bytes=2-4', { 'if-range': etag })).toEqual([206, '234', 'bytes 2-4/10']);
  expect(await ranged('bytes=2-4', { 'if-range': '"other"' })).toEqual([200, '0123456789', null]);
  expect([(await read('digits', { 'if-none-match': `"a", ${etag}` })).status]).toEqual([304]);
  const head = await visitor.ask(content('digits'), { method: 'HEAD' });
  expect([head.status, head.headers.get('content-length'), head.text]).toEqual([200, '10', '']);
});

test('versions are told, restored and removed, and a wrong guess changes nothing', async () => {
  await write('story', 'one');
  await write('story', 'two', '&ifVersion=1');
  const wrong = await write('story', 'three', '&ifVersion=1');
  expect([wrong.status, wrong.body.error?.code]).toEqual([409, 'version_conflict']);
  expect((await read('story', {}, '&version=1')).text).toBe('one');
  const post = (path: string, body: object): Promise<Answer> =>
    visitor.ask(`/api/v1/files/${path}`, { method: 'POST', body });
  expect((await post('restore', { id: 'story', version: 1 })).body).toMatchObject({ version: 3, previous: 2 });
  const past = await visitor.ask('/api/v1/files/one/history?id=story&limit=2');
  expect(past.body.items?.map(({ version, state }) => [version, state])).toEqual([
    [3, 'live'],
    [2, 'retired'],
  ]);
  const rest = await visitor.ask(`/api/v1/files/one/history?id=story&after=${String(past.body['after'])}`);
  expect(rest.body.items).toMatchObject([{ version: 1, keptUntil: expect.any(String) }]);
  expect((await visitor.ask('/api/v1/files/one?id=story&version=1')).body).toMatchObject({ state: 'retired', live: 3 });
  expect((await post('remove', { id: 'story', ifVersion: 3 })).status).toBe(200);
  expect((await read('story')).status).toBe(404);
  expect((await post('remove', { id: 'story' })).body.error?.code).toBe('not_found');
  expect((await read('story', {}, '&version=3')).text).toBe('one');
});

test('the holders of a document are shown', async () => {
  await house.engine.transaction(async (tx) => {
    await house.files.read('doc/1', { lock: 'share', tx });
    const { body } = await visitor.ask('/api/v1/files/one?id=doc/1');
    expect(body).toMatchObject({ holders: [{ mode: 'share', blockedBy: [] }], waiters: [], meta: { kind: 'letter' } });
  });
});

test('what is too long, not what was announced, or not all there, is no version', async () => {
  const stream = (bytes: number): Request =>
    new Request(`http://localhost${content('long')}`, {
      method: 'PUT',
      body: new ReadableStream({
        pull: (controller) => (bytes-- > 0 ? controller.enqueue(new Uint8Array(1_000_000)) : controller.close()),
      }),
      duplex: 'half',
    } as RequestInit);
  const put = (request: Request): Promise<Response> => visitor.handler(request, { remoteAddress: '127.0.0.1' });
  expect((await put(stream(4))).status).toBe(413);
  expect((await put(stream(2))).status).toBe(201);
  expect((await house.files.stat('long')).version).toBe(1);
  const announced = await visitor.ask(content('long'), {
    method: 'PUT',
    body: 'x',
    headers: { 'content-length': '9000000' },
  });
  expect(announced.status).toBe(413);
  expect((await write('long', 'x', `&sha256=${'0'.repeat(64)}`)).body.error?.field).toBe('sha256');
  expect((await house.files.stat('long')).version).toBe(1);
});

test('over a connection that breaks, nothing is written and nothing is held', async () => {
  const served = await serve(visitor.handler);
  onTestFinished(() => served.stop());
  const url = new URL(content('broken'), served.url);
  const upload = httpRequest(url, { method: 'PUT', headers: { 'content-length': '1000000' } });
  upload.on('error', () => {});
  upload.write(randomBytes(1000));
  await until('it has begun', async () => (await collectable()).pending > 0);
  upload.destroy();
  await until('its object is given up', async () => (await collectable()).due > 0);
  await expect(house.files.stat('broken')).rejects.toMatchObject({ code: 'not_found' });
  const big = randomBytes(2_900_000);
  await house.files.write('big', big);
  const whole = await fetch(new URL(content('big'), served.url));
  expect(Buffer.from(await whole.arrayBuffer()).equals(big)).toBe(true);
  const half = await fetch(new URL(content('big'), served.url));
  await half.body?.cancel();
});

async function collectable(): Promise<{ pending: number; due: number }> {
  const { body } = await house.open().ask('/api/v1/files/stores');
  return body.items?.[0] as { pending: number; due: number };
}

test('a store that differs from the database is reported, and a sweep leaves it so', async () => {
  const post = (path: string): Promise<Answer> => visitor.ask(`/api/v1/files/${path}`, { method: 'POST', body: {} });
  expect((await post('reconcile')).body).toMatchObject({
    strangers: [],
    damaged: [],
    quarantined: [],
    failed: [],
    next: null,
  });
  expect((await post('sweep')).body).toMatchObject({ failed: 0 });
  const { body } = await visitor.ask('/api/v1/files/stores');
  expect(body.items).toMatchObject([{ namespace: '', kind: 'disk', isOpen: true, haltedBecause: null }]);
});

test('what belongs to nothing is taken to quarantine, and a collector goes on only when told which', async () => {
  const post = (path: string, body: object = {}): Promise<Answer> =>
    visitor.ask(`/api/v1/files/${path}`, { method: 'POST', body });
  const { object } = await house.files.stat('doc/1');
  const stranger = randomUUID().replace(/^../, '00');
  await mkdir(join(house.objects, 'objects', '00'), { recursive: true });
  await writeFile(join(house.objects, 'objects', '00', stranger), 'x');
  expect((await post('reconcile')).body).toMatchObject({ strangers: [stranger], quarantined: [] });
  expect((await post('reconcile', { from: `${object} fe` })).body).toMatchObject({ strangers: [] });
  expect((await post('reconcile', { from: 'nowhere' })).body.error?.field).toBe('from');
  expect((await post('quarantine')).body).toMatchObject({ strangers: [stranger], quarantined: [stranger] });
  expect((await post('reconcile')).body).toMatchObject({ strangers: [] });
  expect((await post('rearm', { confirm: '' })).body['done']).toContain('nothing was done');
  await house.engine.query(
    statement('test.halt', "update pawl.file_store set halted_at = now(), halted_because = 'a test'"),
  );
  expect((await post('rearm', { confirm: 'another' })).body.error?.field).toBe('confirm');
  expect((await post('rearm', { confirm: '' })).body['done']).toContain('it had stopped because a test');
  const { body } = await visitor.ask('/api/v1/files/stores');
  expect(body.items).toMatchObject([{ haltedBecause: null }]);
});

test('without a content store, what the database knows is shown anyway', async () => {
  const bare = house.open({ files: [] });
  expect((await bare.ask('/api/v1/files/one?id=doc/1')).body).toMatchObject({ version: 2, isOpen: false });
  const { status, body } = await bare.ask('/api/v1/files/remove', { method: 'POST', body: { id: 'doc/1' } });
  expect([status, body.error?.code]).toEqual([501, 'not_supported']);
});
