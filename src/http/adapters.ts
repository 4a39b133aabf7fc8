import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { checkOptions, integer, text } from '../base/options/options.ts';
import { within } from '../base/time/clock.ts';
import type { Peer } from './auth/peer.ts';

/** The HTTP API and the dashboard. Call it with a request from any server. */
export interface HttpHandler {
  (request: Request, peer?: Peer): Promise<Response>;
  /** The path of its mount point, without a slash at the end. */
  readonly basePath: string;
  /**
   * Ends all streams and waits for jobs, finishes the requests that are under way, for at most 5 s, and leaves bulk actions to
   * another process. Safe to call twice.
   */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A request as Express passes it on: `url` without the mount point, `originalUrl` with it. */
interface MountedRequest extends IncomingMessage {
  originalUrl?: string;
}

type NodeListener = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * For node:http and Express: `createServer(nodeListener(pawl))`, `app.use('/pawl', nodeListener(pawl))`. It reads the body
 * itself, so put it before body parsers.
 */
export function nodeListener(handler: HttpHandler): NodeListener {
  const listener = getRequestListener(
    (request, { incoming }) => handler(request, { remoteAddress: Reflect.get(incoming, 'socket')?.remoteAddress }),
    // Else the whole program would get other classes than Node's, for good.
    { overrideGlobalObjects: false },
  );
  return (request: MountedRequest, response) => {
    if (request.originalUrl !== undefined) request.url = request.originalUrl;
    // The listener answers every request, also after an error, and never rejects.
    void listener(request, response);
  };
}

/** The part of Fastify that is needed, by shape. */
interface FastifyLike {
  removeAllContentTypeParsers(): void;
  addContentTypeParser(
    type: string,
    parser: (request: unknown, payload: unknown, done: (error: null) => void) => void,
  ): void;
  all(
    path: string,
    handler: (request: { raw: IncomingMessage }, reply: { hijack(): void; raw: ServerResponse }) => void,
  ): void;
}

/** For Fastify: `await app.register(fastifyPlugin(pawl))`. The handler's own `basePath` is its mount point. */
export function fastifyPlugin(handler: HttpHandler): (app: FastifyLike) => Promise<void> {
  const listener = nodeListener(handler);
  return async (app) => {
    // The handler reads bodies itself; a plugin has its own parsers, so those of other plugins stay.
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', (_request, _payload, done) => done(null));
    const answer = (request: { raw: IncomingMessage }, reply: { hijack(): void; raw: ServerResponse }): void => {
      reply.hijack();
      listener(request.raw, reply.raw);
    };
    if (handler.basePath !== '') app.all(handler.basePath, answer);
    app.all(`${handler.basePath}/*`, answer);
  };
}

type Fetch = (request: Request) => Promise<Response>;

export interface NextOptions {
  /**
   * Returns the address of a request, which only you know: a header that your proxy writes, and that a client cannot set. Without
   * it all strangers share one limit.
   */
  readonly addressOf?: ((request: Request) => string | undefined) | undefined;
}

/**
 * For Next.js, in `app/pawl/[[...path]]/route.ts`: `export const { GET, POST, PUT, DELETE } = nextHandlers(pawl)`. You can also
 * pass a function that calls the handler. If it creates the handler at the first request, Next builds without a database.
 */
export function nextHandlers(
  handler: (request: Request, peer?: Peer) => Promise<Response>,
  { addressOf }: NextOptions = {},
): Record<'GET' | 'POST' | 'PUT' | 'DELETE', Fetch> {
  const answer: Fetch = (request) => handler(request, { remoteAddress: addressOf?.(request) });
  return { GET: answer, POST: answer, PUT: answer, DELETE: answer };
}

export interface ServeOptions {
  /** Default 0: any free port. */
  readonly port?: number | undefined;
  /** Default `127.0.0.1`: only this machine. */
  readonly host?: string | undefined;
  /** The most connections that are open at a time; a further one is closed immediately. Default 2,000. */
  readonly maxConnections?: number | undefined;
}

const serveShape = {
  port: integer({ min: 0, max: 65_535, default: 0 }),
  host: text({ min: 1, default: '127.0.0.1' }),
  maxConnections: integer({ min: 1, default: 2000 }),
};

/** If a client opens a connection and sends nothing, or sends letter by letter, the connection is closed after this time. */
const HEADERS_MS = 15_000;
/** The longest upload; Node's default of five minutes would break off a gigabyte that comes with 25 MBit/s. */
const REQUEST_MS = 3_600_000;
/** How long answers may take to reach their clients when the server ends. */
const FLUSH_MS = 1000;
const LOOK_MS = 10;

export interface HttpServer {
  readonly url: string;
  /**
   * Takes no more connections, ends streams, finishes the requests that are under way as `handler.stop()` does, and then closes all
   * connections. Safe to call twice.
   */
  stop(): Promise<void>;
}

/** A server of its own. @throws InvalidInput  an option is bad */
export async function serve(handler: HttpHandler, options: ServeOptions = {}): Promise<HttpServer> {
  const { port, host, maxConnections } = checkOptions('serve', options, serveShape);
  const listener = nodeListener(handler);
  const limits = { headersTimeout: HEADERS_MS, requestTimeout: REQUEST_MS, connectionsCheckingInterval: 5000 };
  const server = createServer(limits, listener);
  server.maxConnections = maxConnections;
  await new Promise<void>((resolve, reject) => {
    // After it listens, an error is that of one connection that could not be accepted, for lack of file descriptors.
    server.on('error', reject);
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  const name = host.includes(':') ? `[${host}]` : host;
  let stopping: Promise<void> | undefined;
  const shutDown = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => {
      server.close(() => resolve());
    });
    await handler.stop();
    // An answer may still be on its way, and then its connection is idle.
    const looking = setInterval(() => server.closeIdleConnections(), LOOK_MS);
    await within(FLUSH_MS, closed);
    clearInterval(looking);
    server.closeAllConnections();
    await closed;
  };
  return {
    url: `http://${name}:${bound}${handler.basePath}/`,
    stop: () => (stopping ??= shutDown()),
  };
}
