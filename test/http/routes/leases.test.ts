import { beforeAll, describe, expect, test } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { until } from '../../support/eventually.ts';
import { type Answer, type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

const LEASE_OVER = statement(
  'test.lease_over',
  "update pawl.lock_grant set expires_at = clock_timestamp() where name = 'short'",
);

const post = (path: string, body: object): Promise<Answer> => visitor.ask(`/api/v1${path}`, { method: 'POST', body });
const take = (name: string, rest: object = {}): Promise<Answer> => post('/locks', { name, ...rest });

describe('a lock held over HTTP', () => {
  test('is held against everybody, until it is released', async () => {
    const locks = createLocks(house.engine);
    const { status, body } = await take('deploy', { lease: '30s' });
    expect([status, body]).toEqual([
      201,
      {
        namespace: '',
        name: 'deploy',
        token: expect.stringMatching(/^\d+$/),
        handle: expect.any(String),
        leaseMs: 30_000,
        expiresAt: expect.any(String),
      },
    ]);
    expect(await locks.tryAcquire('deploy')).toBeUndefined();
    const second = await take('deploy');
    expect([second.status, second.body.error?.code]).toEqual([409, 'lock_timeout']);
    const { handle, token } = body as { handle: string; token: string };
    expect((await post('/locks/release', { name: 'deploy', handle })).body).toEqual({ released: true, token });
    const lock = await locks.tryAcquire('deploy');
    expect(lock?.token).toBeGreaterThan(BigInt(token));
    await lock?.release();
    const late = await post('/locks/release', { name: 'deploy', handle });
    expect([late.status, late.body.error?.code]).toEqual([409, 'lease_lost']);
  });

  test('is waited for in the same queue as by programs, and had for the whole lease', async () => {
    const locks = createLocks(house.engine);
    const first = await locks.acquire('press');
    const waiting = take('press', { wait: '30s', lease: '1h' });
    await until('it waits', async () => (await locks.explain('press')).waiters.length === 1);
    await first.release();
    const { status, body } = await waiting;
    expect(status).toBe(201);
    expect(BigInt(String(body['token']))).toBeGreaterThan(first.token);
    const [holder] = (await locks.explain('press')).holders;
    expect(holder?.leaseLeftMs).toBeGreaterThan(1_800_000);
  });

  test('ends with its lease unless it is renewed, and a renewal comes too late after that', async () => {
    const { body } = await take('short', { lease: '1m' });
    const handle = String(body['handle']);
    const renewed = await post('/locks/renew', { name: 'short', handle });
    expect(renewed.body).toMatchObject({ token: body['token'], handle, leaseMs: 60_000 });
    await house.engine.query(LEASE_OVER);
    const next = await take('short', { wait: '30s' });
    expect(next.status).toBe(201);
    expect(BigInt(String(next.body['token']))).toBeGreaterThan(BigInt(String(body['token'])));
    expect((await post('/locks/renew', { name: 'short', handle })).body.error?.code).toBe('lease_lost');
    expect((await post('/locks/release', { name: 'short', handle })).body.error?.code).toBe('lease_lost');
  });

  test('is lost when somebody breaks it', async () => {
    const { body } = await take('broken');
    await post('/locks/break', { name: 'broken', reason: 'test' });
    const renewed = await post('/locks/renew', { name: 'broken', handle: body['handle'] });
    expect([renewed.status, renewed.body.error?.code]).toEqual([409, 'lease_lost']);
  });

  test('is renewed and released by its handle alone, which no other caller is shown', async () => {
    const { body } = await take('secret');
    const handle = String(body['handle']);
    const texts = await Promise.all(
      ['locks', 'locks/graph', 'locks/one?name=secret', 'history', 'audit', 'live'].map(
        async (path) => (await visitor.ask(`/api/v1/${path}`)).text,
      ),
    );
    expect(texts.filter((text) => text.includes(handle))).toEqual([]);
    const guessed = handle.replace(/^./, (sign) => (sign === '0' ? '1' : '0'));
    expect((await post('/locks/release', { name: 'secret', handle: guessed })).status).toBe(409);
    expect((await post('/locks/renew', { name: 'secret', handle: String(body['token']) })).body.error?.field).toBe(
      'handle',
    );
    expect((await post('/locks/renew', { name: 'secret', handle })).status).toBe(200);
  });

  test('is given back when its caller hangs up while it waits', async () => {
    const locks = createLocks(house.engine);
    const first = await locks.acquire('phone');
    const ending = new AbortController();
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ name: 'phone', wait: '30s' });
    const request = new Request('http://localhost/api/v1/locks', {
      method: 'POST',
      headers,
      body,
      signal: ending.signal,
    });
    const asked = visitor.handler(request, { remoteAddress: '127.0.0.1' });
    await until('it waits', async () => (await locks.explain('phone')).waiters.length === 1);
    ending.abort();
    await asked;
    await until('nobody waits', async () => (await locks.explain('phone')).waiters.length === 0);
    await first.release();
    expect(await locks.tryAcquire('phone')).toBeDefined();
  });

  test('fences: a writer that was superseded is refused by the row that knows a later token', async () => {
    await house.engine.query(statement('test.fence', 'create table fence (token bigint not null)'));
    await house.engine.query(statement('test.fence_row', 'insert into fence values (0)'));
    const write = async (token: unknown): Promise<number> => {
      const sql = statement('test.write', 'update fence set token = $1::bigint where token <= $1::bigint returning 1');
      return (await house.engine.query(sql, [token])).length;
    };
    const first = await take('writer', { lease: '1s' });
    const second = await take('writer', { wait: '30s' });
    expect(await write(second.body['token'])).toBe(1);
    expect(await write(first.body['token'])).toBe(0);
  });
});
