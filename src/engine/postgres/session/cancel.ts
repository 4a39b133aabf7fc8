import { connect } from 'node:net';
import type { ClientLike } from '../driver.ts';

const CANCEL_REQUEST = 80_877_102;

/**
 * Asks the server to cancel the statement that runs on this connection. Closing the socket would not do: the server notices
 * that only when the statement ends, and keeps its locks until then.
 *
 * The request travels on a connection of its own, unencrypted as in libpq before 17 (its only secret is the one-time key). The
 * server answers by closing that connection. If a client does not show its key, or a proxy refuses the request, the statement
 * runs to its end. Do not use the connection again before the promise has settled: the request may arrive late.
 * @returns when the server has handled the request, or cannot be reached
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
  // A request that is not delivered cancels nothing. The caller then waits for the statement, as it does anyway.
  socket.on('error', () => socket.destroy());
  socket.end(request);
  socket.resume();
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
}
