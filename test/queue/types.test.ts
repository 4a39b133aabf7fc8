import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../src/engine/postgres/index.ts';
import { createQueue, type Kinds, type Queue, type QueueStats } from '../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { DOUBLING } from './contract/fixture.ts';

let database: FreshDatabase;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url);
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

// The compiler checks what these functions may take and do.

async function pauseAll(...queues: readonly Queue[]): Promise<QueueStats[]> {
  for (const queue of queues) await queue.pause();
  return Promise.all(queues.map((queue) => queue.stats()));
}

async function enqueueBlindly(queue: Queue): Promise<void> {
  // @ts-expect-error  the kinds and their payloads are unknown here
  await queue.enqueue('invoice', { n: 1 });
  // @ts-expect-error  likewise
  await queue.enqueueMany([{ kind: 'invoice', payload: { n: 2 } }]);
}

function firstKind<K extends Kinds>(queue: Queue<K>, kinds: K): string {
  return `${queue.name}.${Object.keys(kinds)[0]}`;
}

test('any queue fits a parameter of type Queue, and can be operated there', async () => {
  const kinds = { invoice: { payload: DOUBLING }, digest: { unique: 'key' } } as const;
  const mail = createQueue(engine, 'mail', { kinds });
  const sheets = createQueue(engine, 'sheets', { kinds: { update: { after: ['create'] }, create: {} } });
  const stats = await pauseAll(mail, sheets);
  expect(stats.map(({ paused }) => paused)).toEqual([true, true]);
  expect(firstKind(mail, kinds)).toBe('mail.invoice');
  // @ts-expect-error  there is no such kind
  await expect(mail.enqueueMany([{ kind: 'invoices', payload: { n: 1 } }])).rejects.toThrow('did you mean "invoice"?');
  await enqueueBlindly(mail);
  const inOneList: Queue[] = [mail, sheets];
  expect((await inOneList[0]?.stats())?.new).toBe(2);
});

test('wrong values in place of an engine, a name or handlers are refused, and the error names the argument', () => {
  const wrong = (value: unknown): never => value as never;
  const kinds = { send: {} };
  for (const given of [undefined, null, { query: () => [] }]) {
    expect(() => createQueue(wrong(given), 'a', { kinds })).toThrow(/takes the result of postgres\(\), but was given/);
  }
  expect(() => postgres(wrong(null))).toThrow(InvalidInput);
  for (const name of ['', 'ü'.repeat(51), 'a\0', '\ud800']) {
    expect(() => createQueue(engine, name, { kinds }), name).toThrow(InvalidInput);
    expect(() => createQueue(engine, 'a', { kinds: { [name]: {} } }), name).toThrow(InvalidInput);
  }
  expect(() => createQueue(engine, 'a', { kinds }).work(wrong(undefined))).toThrow(/a handler for each kind/);
});
