import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { InvalidArgumentError } from 'commander';
import { EXIT, Failure } from '../output/failure.ts';

/** A part of the process whose health is checked: a worker, a dispatcher, the consumers of a capture. */
export interface HealthCheck {
  /** Its name in the answer: `queue emails`. */
  readonly name: string;
  /** Why it cannot work now; undefined if it can. */
  readonly problem: () => string | undefined;
}

/** Where to listen. */
export interface HealthAddress {
  readonly host: string | undefined;
  readonly port: number;
}

/** Reads `8080` or `127.0.0.1:8080`. Port 0 is any free one. */
export function healthAddress(value: string): HealthAddress {
  const [, host, digits] = /^(?:(.+):)?(\d{1,5})$/.exec(value) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535) {
    throw new InvalidArgumentError('It must be a port, or an address and a port: 8080, 127.0.0.1:8080, [::1]:8080.');
  }
  return { host: host?.replace(/^\[(.+)\]$/, '$1'), port };
}

/**
 * Answers a supervisor. `GET /healthz` is 200 while this process answers at all. `GET /readyz` is 200 while all parts of the
 * process can work, and otherwise 503 with the reasons. An answer needs no query, so a request that reaches the port costs the
 * database nothing.
 * @throws Failure  the port is taken, or may not be used
 */
export async function serveHealth(address: HealthAddress, checked: readonly HealthCheck[]): Promise<Server> {
  const server = createServer((request, response) => answer(request, response, checked));
  server.listen(address.port, address.host);
  try {
    await once(server, 'listening');
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Failure(`--health cannot listen: ${why}`, { exit: EXIT.usage, next: 'give another port' });
  }
  // A connection that could not be accepted, for lack of file descriptors, is no reason to end the workers.
  server.on('error', () => {});
  // This server does not keep the process alive: the process ends when the workers have.
  server.unref();
  return server;
}

function answer(
  { method, url = '' }: IncomingMessage,
  response: ServerResponse,
  checked: readonly HealthCheck[],
): void {
  const send = (status: number, body: object): void => {
    response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
    response.end(method === 'HEAD' ? undefined : `${JSON.stringify(body)}\n`);
  };
  const [path] = url.split('?');
  if (path !== '/healthz' && path !== '/readyz') send(404, { error: 'there are /healthz and /readyz' });
  else if (method !== 'GET' && method !== 'HEAD') send(405, { error: 'only GET and HEAD are answered' });
  else if (path === '/healthz') send(200, { status: 'ok' });
  else {
    const problems = checked.flatMap(({ name, problem }) => {
      const found = problem();
      return found === undefined ? [] : [{ name, problem: found }];
    });
    if (problems.length === 0) send(200, { status: 'ok' });
    else send(503, { status: 'unavailable', problems });
  }
}
