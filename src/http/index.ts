import { within } from '../base/time/clock.ts';
import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import type { HttpHandler } from './adapters.ts';
import { HttpApp } from './app.ts';
import type { Peer } from './auth/peer.ts';
import { type HttpOptions, readHttpOptions } from './options.ts';
import { Services } from './services.ts';

export {
  fastifyPlugin,
  type HttpHandler,
  type HttpServer,
  type NextOptions,
  nextHandlers,
  nodeListener,
  type ServeOptions,
  serve,
} from './adapters.ts';
export { hashPassword } from './auth/password.ts';
export type { Peer } from './auth/peer.ts';
export { type Identity, PERMISSIONS, type Permission, ROLES, type Role } from './auth/permission.ts';
export type { DevControl, DevStage } from './dev.ts';
export type { LinkOptions } from './links.ts';
export type {
  AuthOptions,
  Authorize,
  HttpOptions,
  JwtOptions,
  RedactOptions,
  TokenOptions,
  UserOptions,
} from './options.ts';
export type { Program } from './program.ts';
export type { ErrorBody, HttpCode } from './protocol/failure.ts';

/** How long requests may take to finish when the handler is stopped: a client may wait for a lock for longer. */
const FINISH_MS = 5000;

/**
 * Creates a handler for requests: an API for all content of the engine's database, and a dashboard that uses the API. Sends
 * nothing to the database before the first request. Without `auth` it lets no caller in: every request except `/healthz` and
 * `/readyz` is answered 401.
 *
 * ```ts
 * const pawl = createHttp(engine, { basePath: '/pawl', auth: { tokens: [{ name: 'ci', token, role: 'operator' }] } });
 * app.use('/pawl', nodeListener(pawl)); // Express; see docs/http.md for the others
 * ```
 *
 * On a table of DynamoDB it serves the queues of the table. A request that needs Postgres is answered 501, with the reason.
 * @throws InvalidInput
 */
export function createHttp(engine: PostgresEngine | DynamoEngine, options: HttpOptions = {}): HttpHandler {
  if (!(engine instanceof DynamoEngine)) requireEngine('createHttp', engine);
  const settings = readHttpOptions(options);
  const services = new Services(engine, settings);
  const app = new HttpApp(services);
  const stop = async (): Promise<void> => {
    app.stop();
    services.live.stop();
    services.streams.stop();
    services.jobs.stop();
    services.feeds.stop();
    await within(FINISH_MS, Promise.allSettled([services.bulk.stopAll(), ...underWay]));
  };
  const underWay = new Set<Promise<Response>>();
  const handle = (request: Request, peer: Peer = {}): Promise<Response> => {
    const answer = app.handle(request, peer);
    underWay.add(answer);
    const forget = (): void => void underWay.delete(answer);
    answer.then(forget, forget);
    return answer;
  };
  return Object.assign(handle, { basePath: settings.basePath, stop, [Symbol.asyncDispose]: stop });
}
