import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { NotSupported } from '../../../src/base/errors.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

/** A message of the protocol of Postgres: its letter, its length, and what it holds. */
function message(letter: string, body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(letter), length, body]);
}

/** A server that lets everybody in, says what it is, and closes a connection that sends more than a goodbye. */
async function greeter(said: Record<string, string>): Promise<{ url: string; asked: () => number }> {
  let asked = 0;
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      const told = Object.entries(said).map(([name, value]) => message('S', Buffer.from(`${name}\0${value}\0`)));
      socket.write(Buffer.concat([message('R', Buffer.alloc(4)), ...told, message('Z', Buffer.from('I'))]));
      socket.on('data', (data) => {
        if (data[0] !== 'X'.charCodeAt(0)) asked += 1;
        socket.destroy();
      });
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => new Promise((resolve) => server.close(() => resolve())));
  const { port } = server.address() as AddressInfo;
  return { url: `postgres://me@127.0.0.1:${port}/db`, asked: () => asked };
}

describe('a server that is no Postgres is refused by name at the first connection, before any statement', () => {
  test.for([
    ['YugabyteDB', { server_version: '15.12-YB-2025.1.0.0-b0' }],
    ['CockroachDB', { server_version: '13.0.0', crdb_version: 'CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)' }],
    ['Aurora DSQL', { server_version: '16' }],
  ] as const)('%s', async ([name, said]) => {
    const { url, asked } = await greeter(said);
    const engine = postgres(url, { listen: false });
    onTestFinished(() => engine.stop());
    const refused = expect.objectContaining({ message: expect.stringMatching(`this is ${name}.*Use Postgres`) });
    await expect(createLocks(engine).acquire('nightly', { lease: '30s' })).rejects.toThrow(refused);
    await expect(createQueue(engine, 'mail', { kinds: { send: {} } }).enqueue('send', {})).rejects.toThrow(
      NotSupported,
    );
    await expect(engine.transaction(async () => {})).rejects.toThrow(refused);
    expect(asked()).toBe(0);
  });

  test('what says that it is Postgres is asked', async () => {
    const { url, asked } = await greeter({ server_version: '16.9 (Debian 16.9-1)' });
    const engine = postgres(url, { listen: false });
    onTestFinished(() => engine.stop());
    await expect(engine.server()).rejects.toThrow(/connection/i);
    expect(asked()).toBe(1);
  });
});
