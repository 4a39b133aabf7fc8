import { connect } from 'node:net';
import type { ClientLike } from '../driver.ts';

const CANCEL_REQUEST = 80_877_102;

/**
 * Asks the server to cancel what this connection is running now. Closing the socket would not do: the server notices
 * that only when the statement ends, and keeps its locks until then.
 *
 * The request travels on a connection of its own, unencrypted as in libpq before 17 (it holds no secret but the one-time
 * key), and is answered by closing it. A client that does not tell its key, or a proxy that refuses, leaves the statement
 * running to its end. The connection must not be used again before the promise is settled: the request may arrive late.
 * @returns when the server has done so, or cannot be reached
 */
export async function cancelRunning(client: ClientLike): Promise<void> {
  const [host, port, processId, secretKey] = ['host', 'port', 'processID', 'secretKey'].map((field): unknown =>
    Reflect.get(client, field),
  );
  if (
    typeof host !== 'string' ||
    typeof port !== 'number' ||
    typeof processId !== 'number' ||
    typeof secretKey !== 'number'
  ) {
    return;
  }
  const request = Buffer.alloc(16);
  request.writeInt32BE(16, 0);
  request.writeInt32BE(CANCEL_REQUEST, 4);
  request.writeInt32BE(processId, 8);
  request.writeInt32BE(secretKey, 12);
  const socket = host.startsWith('/') ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host);
  socket.setTimeout(5_000, () => socket.destroy());
  // Not delivered means not cancelled: the caller waits for the statement, which it does anyway.
  socket.on('error', () => socket.destroy());
  socket.end(request);
  socket.resume();
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
}
