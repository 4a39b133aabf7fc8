import { type Handler, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { InvalidInput } from '../base/errors.ts';
import { isObject } from '../base/shape.ts';
import { actorRoutes } from './actors.ts';
import { Assets } from './assets.ts';
import { Audit } from './audit.ts';
import { bulkRoutes } from './bulk-routes.ts';
import { captureRoutes } from './captures.ts';
import { chartRoutes } from './charts.ts';
import { watchOf } from './events.ts';
import { failureOf, HttpRefusal, isOfValue, newRequestId } from './failure.ts';
import { readFields, text } from './field.ts';
import { fileRoutes } from './files.ts';
import { withHeaders, withThese } from './headers.ts';
import { historyRoutes } from './history.ts';
import { jobRoutes } from './jobs.ts';
import { leaseRoutes } from './leases.ts';
import { lockRoutes } from './locks.ts';
import { describeApi } from './openapi.ts';
import { overviewRoutes } from './overview.ts';
import { pageRoutes } from './pages.ts';
import { readList, readQuery } from './parameters.ts';
import { type Peer, refuseOtherSites } from './peer.ts';
import { changes, type Permission, type Principal } from './permission.ts';
import { queueRoutes } from './queues.ts';
import { RateLimiter } from './rate.ts';
import { Reply } from './reply.ts';
import type { AnyRoute, Call } from './route.ts';
import { scheduleRoutes } from './schedules.ts';
import type { Services } from './services.ts';
import { SharedAnswers } from './shared.ts';
import { eventStream } from './stream.ts';
import { traceRequest } from './telemetry.ts';
import { visitorRoutes } from './visitor.ts';
import { writeJson } from './write-json.ts';

/** Every route of the API. */
export const ROUTES: readonly AnyRoute[] = [
  ...visitorRoutes,
  ...overviewRoutes,
  ...queueRoutes,
  ...chartRoutes,
  ...jobRoutes,
  ...bulkRoutes,
  ...lockRoutes,
  ...leaseRoutes,
  ...actorRoutes,
  ...scheduleRoutes,
  ...pageRoutes,
  ...historyRoutes,
  ...captureRoutes,
  ...fileRoutes,
];

/** Guessing a password: ten at once, then one each six seconds. */
const LOGIN_RATE = { burst: 10, perSecond: 1 / 6 } as const;

const LOGIN = { name: text({ max: 100 }), password: text({ max: 1000 }) };

type Env = { Bindings: { peer: Peer; requestId: string } };

/** Puts the surface together: hono finds the route, and everything on the way to it is in the order of `#run`. */
export class HttpApp {
  readonly #services: Services;
  readonly #audit: Audit;
  readonly #limiter: RateLimiter;
  readonly #logins: RateLimiter = new RateLimiter(LOGIN_RATE);
  readonly #shared: SharedAnswers = new SharedAnswers();
  readonly #assets: Assets;
  readonly #app: Hono<Env>;

  constructor(services: Services) {
    const { settings, store, engine } = services;
    this.#services = services;
    this.#audit = new Audit(store.audit, settings.audit, engine.options.logger);
    this.#limiter = new RateLimiter(settings.rate);
    this.#assets = new Assets(settings.basePath);
    this.#app = this.#build();
  }

  async handle(request: Request, peer: Peer): Promise<Response> {
    const requestId = newRequestId();
    this.#services.bulk.watch();
    const response = await this.#app.fetch(request, { peer, requestId });
    return withHeaders(response, requestId);
  }

  #build(): Hono<Env> {
    const { basePath, bodyLimit: maxSize, dashboard } = this.#services.settings;
    const app = new Hono<Env>().basePath(basePath === '' ? '/' : basePath);
    const limited = bodyLimit({
      maxSize,
      onError: () => {
        throw new HttpRefusal('body_too_large', `the body is longer than ${maxSize} bytes`);
      },
    });
    app.get('/healthz', () => Response.json({ status: 'ok' }));
    app.get('/readyz', () => this.#ready());
    app.get('/metrics', (c) => this.#guarded(c.req.raw, c.env, 'metrics:read', '/metrics', () => this.#metrics()));
    app.get('/api/v1/openapi.json', (c) =>
      this.#guarded(c.req.raw, c.env, 'view', '/openapi.json', async () =>
        Response.json(describeApi(ROUTES, basePath)),
      ),
    );
    app.get('/api/v1/events', (c) =>
      this.#guarded(c.req.raw, c.env, 'view', '/events', async () =>
        eventStream(c.req.raw, watchOf(this.#services, c.req.raw)),
      ),
    );
    app.post('/api/v1/login', limited, (c) => this.#logIn(c.req.raw, c.env.peer));
    app.post('/api/v1/logout', (c) => this.#logOut(c.req.raw));
    for (const route of ROUTES) {
      const path = `/api/v1${route.path.replaceAll(/\{(\w+)\}/g, ':$1')}`;
      const run: Handler<Env> = (c) => this.#run(route, c.req.raw, c.env, c.req.param());
      if (route.takesBytes) app.on(route.method, path, run);
      else app.on(route.method, path, limited, run);
    }
    this.#refuseOtherMethods(app);
    app.get('*', (c) => {
      const path = c.req.path.slice(basePath.length).replace(/^\//, '');
      const asset =
        dashboard && !path.startsWith('api/')
          ? this.#assets.serve(path, c.req.header('accept-encoding') ?? '')
          : undefined;
      if (asset === undefined) throw new HttpRefusal('not_found', `there is nothing at ${c.req.path}`);
      return asset;
    });
    app.notFound((c) => {
      throw new HttpRefusal('not_found', `there is nothing at ${c.req.path}`);
    });
    app.onError((error, c) => this.#fail(error, c.env.requestId));
    return app;
  }

  #refuseOtherMethods(app: Hono<Env>): void {
    const methods = new Map<string, string[]>();
    for (const { path, method } of ROUTES) methods.set(path, [...(methods.get(path) ?? []), method]);
    for (const [path, allowed] of methods) {
      app.all(`/api/v1${path.replaceAll(/\{(\w+)\}/g, ':$1')}`, () => {
        const allow = allowed.join(', ');
        throw new HttpRefusal('method_not_allowed', `this takes ${allow}`, { allow });
      });
    }
  }

  /** One request: who, how often, from where, whether he may, what exactly, and only then the work. */
  #run(route: AnyRoute, request: Request, env: Env['Bindings'], params: Record<string, string>): Promise<Response> {
    return this.#guarded(request, env, route.permission ?? 'view', route.path, async (who) => {
      const call = await this.#read(route, request, params, who);
      if (route.target === undefined) return this.#answer(route, await this.#look(route, call));
      const action = this.#action(route, call, env.peer);
      const done = await this.#audit.record(
        action,
        async () => route.run(call),
        (error) => {
          const { status, body } = failureOf(error, env.requestId);
          return [status, `${body.error.code}: ${body.error.message}`];
        },
      );
      this.#shared.clear();
      this.#services.expire();
      return this.#answer(route, done);
    });
  }

  async #guarded(
    request: Request,
    { peer, requestId }: Env['Bindings'],
    permission: Permission,
    route: string,
    work: (who: Principal) => Promise<Response>,
  ): Promise<Response> {
    const { metrics } = this.#services;
    const begun = performance.now();
    const response = await traceRequest(request.method, route, request.headers, async () => {
      try {
        const who = await this.#identify(request, peer);
        if (who instanceof Response) return who;
        refuseOtherSites(request, who.by);
        await this.#require(permission, who, request, peer);
        const limits = this.#limiter.headers(`${who.by} ${who.name}`);
        return withThese(await work(who), limits);
      } catch (error) {
        return this.#fail(error, requestId);
      }
    });
    metrics.count(route, request.method, response.status, (performance.now() - begun) / 1000);
    return response;
  }

  /**
   * Somebody known has a bucket of his own, wherever he asks from: behind a proxy all have one address. Whoever is not let in
   * shares that of his address, and takes nothing from the others there.
   */
  async #identify(request: Request, peer: Peer): Promise<Principal | Response> {
    const stranger = `address ${peer.remoteAddress ?? 'unknown'}`;
    try {
      const who = await this.#services.auth.identify(request, peer);
      this.#limiter.take(who instanceof Response ? stranger : `${who.by} ${who.name}`);
      return who;
    } catch (error) {
      if (error instanceof HttpRefusal && error.code === 'unauthorized') this.#limiter.take(stranger);
      throw error;
    }
  }

  /** What is refused for want of a permission is worth a line in the audit, where it would have changed something. */
  async #require(permission: Permission, who: Principal, request: Request, peer: Peer): Promise<void> {
    if (who.permissions.has(permission)) return;
    const isReadOnly = this.#services.settings.readOnly && changes(permission);
    const refusal = isReadOnly
      ? new HttpRefusal('read_only', 'this server changes nothing: it is in read-only mode')
      : new HttpRefusal('forbidden', `${who.name} lacks the permission ${permission}`);
    if (changes(permission)) {
      const action = { who, remote: peer.remoteAddress, userAgent: request.headers.get('user-agent') ?? undefined };
      const target = new URL(request.url).pathname;
      await this.#audit.refused({ ...action, permission, target, body: {} }, refusal.status, refusal.code);
    }
    throw refusal;
  }

  async #read(route: AnyRoute, request: Request, params: Record<string, string>, who: Principal): Promise<Call> {
    const url = new URL(request.url);
    refuseUndecodable(url);
    const query = readQuery(url);
    const { given, text: raw } = route.takesBytes ? NO_BODY : await readBody(request, route.body !== undefined);
    const what = `${route.method} ${route.path}`;
    const list = readList(what, given, route);
    return {
      params: readFields(what, params, route.params ?? {}, true),
      query: readFields(what, query, route.query ?? {}, true),
      body: list?.[0] ?? readFields(what, given, route.body ?? {}, false),
      list,
      text: raw,
      who,
      request,
      services: this.#services,
    };
  }

  #look(route: AnyRoute, call: Call): Promise<unknown> {
    const ask = async (): Promise<unknown> => route.run(call);
    return route.sharedMs === undefined ? ask() : this.#shared.get(call.request.url, route.sharedMs, ask);
  }

  #answer({ status = 200 }: AnyRoute, value: unknown): Response {
    if (value instanceof Reply) return json(value.value, value.status ?? status, value.headers);
    return value instanceof Response ? value : json(value, status);
  }

  #action(route: AnyRoute, call: Call, { remoteAddress: remote }: Peer): Parameters<Audit['record']>[0] {
    const { who, request, list, query, services } = call;
    const body: object = list === undefined ? call.body : { jobs: list.length };
    const { payload, ...rest } = { ...query, ...body } as Record<string, unknown>;
    const shown =
      payload === undefined || payload === null ? {} : { payload: services.redaction.show(payload, who, NO_KIND) };
    return {
      who,
      remote,
      userAgent: request.headers.get('user-agent') ?? undefined,
      permission: route.permission ?? 'view',
      target: route.target?.(call) ?? '',
      body: { ...rest, ...shown },
    };
  }

  async #logIn(request: Request, peer: Peer): Promise<Response> {
    this.#logins.take(peer.remoteAddress ?? 'unknown');
    refuseOtherSites(request, undefined);
    const { auth } = this.#services;
    if (!auth.hasUsers) throw new HttpRefusal('not_found', 'nobody has a password here');
    const { given } = await readBody(request, true);
    const { name, password } = readFields('POST /login', given, LOGIN, false);
    const cookie = await auth.logIn(name, password, isSecure(request));
    return new Response(null, { status: 204, headers: { 'set-cookie': cookie } });
  }

  #logOut(request: Request): Response {
    refuseOtherSites(request, undefined);
    return new Response(null, {
      status: 204,
      headers: { 'set-cookie': this.#services.auth.logOut(isSecure(request)), 'clear-site-data': '"cache"' },
    });
  }

  async #ready(): Promise<Response> {
    try {
      await this.#services.store.live.ping();
      return json({ status: 'ok' }, 200);
    } catch {
      // Why is in the log: this address is open to everybody.
      return json({ status: 'the database does not answer' }, 503);
    }
  }

  async #metrics(): Promise<Response> {
    const { live, metrics } = this.#services;
    const body = metrics.render(await live.snapshot(), live.watchers);
    return new Response(body, { headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' } });
  }

  #fail(error: unknown, requestId: string): Response {
    const { status, body, headers } = failureOf(error, requestId);
    const { logger } = this.#services.engine.options;
    if (isOfValue(error)) logger.warn({ err: error, requestId }, 'http: the database refused a value');
    if (status === 500) logger.error({ err: error, requestId }, 'http: a request failed');
    else if (status > 501) logger.warn({ ...body.error }, 'http: the database was too slow, or away');
    return Response.json(body, { status, headers });
  }
}

const NO_BODY = { given: {}, text: '' } as const;
const NO_KIND = { queue: '', kind: '' } as const;

/** Hono decodes names in a path once, and leaves as it is what cannot be. @throws InvalidInput  what is no UTF-8 */
function refuseUndecodable(url: URL): void {
  try {
    decodeURIComponent(url.pathname);
  } catch (cause) {
    throw new InvalidInput('the path holds what cannot be decoded: a "%" in a name is written %25', { cause });
  }
}

async function readBody(request: Request, isWanted: boolean): Promise<{ given: object; text: string }> {
  if (request.method === 'GET' || request.method === 'HEAD') return { given: {}, text: '' };
  const body = await request.text();
  if (body === '') return { given: {}, text: '{}' };
  if (!/^application\/json\s*(;|$)/i.test(request.headers.get('content-type') ?? '')) {
    throw new HttpRefusal('unsupported_media_type', 'the body must be JSON: content-type: application/json');
  }
  let given: unknown;
  try {
    given = JSON.parse(body);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidInput(`the body is no JSON: ${why}`, { cause });
  }
  if (!isObject(given) && !Array.isArray(given)) throw new InvalidInput('the body must be a JSON object');
  if (!isWanted && Object.keys(given).length > 0) throw new InvalidInput('this takes no body');
  return { given, text: body };
}

function json(value: unknown, status: number, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(writeJson(value), {
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', ...headers },
  });
}

function isSecure(request: Request): boolean {
  return request.url.startsWith('https:') || request.headers.get('x-forwarded-proto') === 'https';
}
