import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';

/** What the server says when a session has just begun: ready for a query, outside a transaction. */
const READY = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** The end of a session by an administrator, as the server sends it. */
function farewell(): Buffer {
  const fields = Buffer.from('SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0');
  const head = Buffer.alloc(5);
  head.write('E');
  head.writeInt32BE(fields.length + 4, 1);
  return Buffer.concat([head, fields]);
}

/** Before a database: ends the first so many connections in the very packet that opens them. */
async function endingAtOnce(databaseUrl: string, times: number): Promise<{ url: string; ended: () => number }> {
  const target = new URL(databaseUrl);
  const [port, host] = [Number(target.port || 5432), target.hostname];
  let ended = 0;
  const server = createServer((client) => {
    const upstream = connect(port, host);
    client.pipe(upstream);
    upstream.on('data', (data) => {
      const isOpened = data.includes(READY);
      if (isOpened && ended < times) {
        ended += 1;
        client.end(Buffer.concat([data, farewell()]), () => upstream.destroy());
      } else client.write(data);
    });
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  target.hostname = '127.0.0.1';
  target.port = String((server.address() as AddressInfo).port);
  return { url: target.href, ended: () => ended };
}

test.for(['a pool that was given', 'a URL'])(
  'a connection that is ended in the packet that opens it does not end the process: %s',
  async (source) => {
    const { url } = await freshDatabase();
    const ending = await endingAtOnce(url, 3);
    const uncaught: unknown[] = [];
    const note = (error: unknown): void => void uncaught.push(error);
    process.on('uncaughtException', note);
    onTestFinished(() => void process.removeListener('uncaughtException', note));
    const pool = new pg.Pool({ connectionString: ending.url, max: 4 });
    pool.on('error', () => {});
    const engine = postgres(source === 'a URL' ? ending.url : pool, { logger: recordLog() });
    onTestFinished(async () => {
      await engine.stop();
      await pool.end();
    });
    const answer = await engine.transaction((tx) => tx.client.query({ text: 'select 7 as n' }));
    expect(answer).toMatchObject({ rows: [{ n: 7 }] });
    expect(ending.ended()).toBe(3);
    expect(uncaught).toEqual([]);
  },
);

test('a pool that was given is left as it was', async () => {
  const { url } = await freshDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  onTestFinished(() => pool.end());
  const client = await pool.connect();
  client.release();
  const events = ['error', 'connect', 'acquire', 'remove'] as const;
  const before = [events.map((event) => pool.listenerCount(event)), client.listenerCount('error')];
  const engine = postgres(pool, { logger: recordLog() });
  await engine.describe();
  await engine.stop();
  expect([events.map((event) => pool.listenerCount(event)), client.listenerCount('error')]).toEqual(before);
});

test('a plain text instead of a statement is refused with what to do', async () => {
  const { url } = await freshDatabase();
  const engine: PostgresEngine = postgres(url);
  onTestFinished(() => engine.stop());
  const text = 'select 1' as never;
  await expect(engine.query(text)).rejects.toBeInstanceOf(InvalidInput);
  await expect(engine.transaction((tx) => tx.query(text))).rejects.toThrow(/takes the result of statement\(\)/);
});
