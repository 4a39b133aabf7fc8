import { type Handler, Hono } from 'hono';
import { InvalidInput } from '../base/errors.ts';
import { Assets } from './assets.ts';
import { Audit } from './auth/audit.ts';
import { LoginDesk } from './auth/login.ts';
import type { Peer } from './auth/peer.ts';
import type { Permission, Principal } from './auth/permission.ts';
import { bulkRoutes } from './bulk/routes.ts';
import { Gate } from './gate.ts';
import { jobRoutes } from './jobs/routes.ts';
import { watchOf } from './live/events.ts';
import { SharedAnswers } from './live/shared-answers.ts';
import { eventStream, type StreamWatch } from './live/stream.ts';
import type { Watcher } from './live/streams.ts';
import { PLAIN_ROUTES, type PlainCall, type PlainRoute, type PlainWork } from './plain-routes.ts';
import { NO_BODY, readBody } from './protocol/body.ts';
import { type ErrorBody, failureOf, HttpRefusal, isOfValue, newRequestId } from './protocol/failure.ts';
import { readFields } from './protocol/field.ts';
import { withHeaders, withThese } from './protocol/headers.ts';
import { refuseVainKey } from './protocol/idempotency.ts';
import { describeApi } from './protocol/openapi.ts';
import { readList, readQuery } from './protocol/parameters.ts';
import { isResponse, Reply } from './protocol/reply.ts';
import type { AnyRoute, Call } from './protocol/route.ts';
import { traceRequest } from './protocol/telemetry.ts';
import { chartRoutes } from './queues/charts.ts';
import { queueRoutes } from './queues/routes.ts';
import { scheduleRoutes } from './queues/schedules.ts';
import { topicRoutes } from './queues/topics.ts';
import { workerRoutes } from './queues/workers.ts';
import { actorChanges } from './routes/actor-changes.ts';
import { actorRoutes } from './routes/actors.ts';
import { captureRoutes } from './routes/captures.ts';
import { fileRoutes } from './routes/files.ts';
import { historyRoutes } from './routes/history.ts';
import { leaseRoutes } from './routes/leases.ts';
import { lockRoutes } from './routes/locks.ts';
import { visitorRoutes } from './routes/me.ts';
import { overviewRoutes } from './routes/overview.ts';
import { pageRoutes } from './routes/pages.ts';
import type { Services } from './services.ts';

/** Every route of the API. */
export const ROUTES: readonly AnyRoute[] = [
  ...visitorRoutes,
  ...overviewRoutes,
  ...queueRoutes,
  ...workerRoutes,
  ...chartRoutes,
  ...jobRoutes,
  ...bulkRoutes,
  ...lockRoutes,
  ...leaseRoutes,
  ...actorRoutes,
  ...actorChanges,
  ...scheduleRoutes,
  ...topicRoutes,
  ...pageRoutes,
  ...historyRoutes,
  ...captureRoutes,
  ...fileRoutes,
];

/** Strangers may ask whether the database answers, so it is asked no more often than this. */
const READY_MS = 1000;

type Env = { Bindings: { peer: Peer; requestId: string } };

/** Assembles the HTTP surface: hono finds the route; `#run` has the order of all steps before the route's own work. */
export class HttpApp {
  readonly #services: Services;
  readonly #audit: Audit;
  readonly #gate: Gate;
  readonly #desk: LoginDesk;
  readonly #shared: SharedAnswers = new SharedAnswers();
  readonly #assets: Assets;
  readonly #app: Hono<Env>;
  #hasSaid = false;

  constructor(services: Services) {
    const { settings, store, engine } = services;
    this.#services = services;
    this.#audit = new Audit(store.audit, settings.audit, engine.options.logger);
    this.#desk = new LoginDesk(services.auth, this.#audit);
    this.#gate = new Gate(services.auth, settings, this.#audit);
    this.#assets = new Assets(settings.basePath);
    this.#app = this.#build();
  }

  async handle(request: Request, peer: Peer): Promise<Response> {
    const requestId = newRequestId();
    this.#services.bulk.watch();
    if (peer.remoteAddress === undefined) this.#sayThatAllAreOne();
    const response = await this.#app.fetch(request, { peer, requestId });
    return withHeaders(response, requestId);
  }

  stop(): void {
    this.#gate.stop();
  }

  #sayThatAllAreOne(): void {
    if (this.#hasSaid) return;
    this.#hasSaid = true;
    const advice = 'hand it on: pawl(request, { remoteAddress }), nextHandlers(pawl, { addressOf })';
    this.#services.engine.options.logger.warn(
      {},
      `http: requests come without an address, so all unknown callers share one limit; ${advice}`,
    );
  }

  #build(): Hono<Env> {
    const { basePath } = this.#services.settings;
    const app = new Hono<Env>().basePath(basePath === '' ? '/' : basePath);
    for (const plain of PLAIN_ROUTES) {
      const run: Handler<Env> = (c) => this.#runPlain(plain, { request: c.req.raw, peer: c.env.peer }, c.env);
      app.on(plain.method, plain.path, run);
    }
    for (const route of ROUTES) {
      const path = `/api/v1${route.path.replaceAll(/\{(\w+)\}/g, ':$1')}`;
      const run: Handler<Env> = (c) => this.#run(route, c.req.raw, c.env, c.req.param());
      app.on(route.method, path, run);
    }
    this.#refuseOtherMethods(app);
    app.get('*', (c) => this.#page(c.req.raw, c.req.path.slice(basePath.length), c.env.peer));
    app.notFound((c) => {
      throw nothingAt(c.req.raw);
    });
    app.onError((error, c) => this.#fail(error, c.env.requestId));
    return app;
  }

  /** The dashboard itself contains no secrets. If no caller can log in, there is no reason to show it. */
  async #page(request: Request, path: string, peer: Peer): Promise<Response> {
    const { settings, auth } = this.#services;
    const name = path.replace(/^\//, '');
    if (!settings.dashboard || name.startsWith('api/')) throw nothingAt(request);
    if (!auth.isOpen) await this.#gate.identify(request, peer);
    if (new URL(request.url).searchParams.has('token')) return this.#desk.enter(request, peer);
    const asset = this.#assets.serve(name, request.headers.get('accept-encoding') ?? '');
    if (asset === undefined) throw nothingAt(request);
    return asset;
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

  #runPlain(plain: PlainRoute, call: PlainCall, env: Env['Bindings']): Response | Promise<Response> {
    if (plain.permission === undefined) return plain.run(this.#plain, call);
    const name = plain.path.replace(/^\/api\/v1/, '');
    return this.#guarded(call.request, env, plain.permission, name, async (who) => plain.run(this.#plain, call, who));
  }

  /** The work of the plain routes. */
  readonly #plain: PlainWork = {
    ready: () => this.#ready(),
    metrics: () => this.#metrics(),
    describe: () => Response.json(describeApi(ROUTES, this.#services.settings.basePath)),
    events: ({ request, peer }, who) =>
      this.#stream({ who, permission: 'view' }, request, peer, watchOf(this.#services, request)),
    waysToLogIn: () => this.#desk.ways(),
    logIn: ({ request, peer }) => this.#desk.logIn(request, peer),
    logOut: ({ request }) => this.#logOut(request),
  };

  /** Handles one request: identity, rate, origin, permission, fields, and only then the work. */
  #run(route: AnyRoute, request: Request, env: Env['Bindings'], params: Record<string, string>): Promise<Response> {
    return this.#guarded(request, env, route.permission ?? 'view', route.path, async (who) => {
      const call = await this.#read(route, request, params, who, env.peer);
      if (route.target === undefined) return this.#answer(route, await this.#look(route, call), who);
      const action = this.#action(route, call, env.peer);
      const outcome = (error: unknown): readonly [number, string] => {
        const { status, body } = failureOf(error, env.requestId);
        return [status, outcomeOf(body)];
      };
      const run = async (): Promise<unknown> => route.run(call);
      if (route.isFrequent) return this.#answer(route, await this.#audit.recordOften(action, run, outcome), who);
      const done = await this.#audit.record(action, run, outcome);
      this.#shared.clear();
      this.#services.expire();
      return this.#answer(route, done, who);
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
      const who = await this.#gate.identify(request, peer).catch((error: unknown) => this.#fail(error, requestId));
      if (isResponse(who)) return who;
      const limits = this.#gate.limits(who);
      const answer = async (): Promise<Response> => {
        await this.#gate.admit(permission, who, request, peer);
        return work(who);
      };
      return withThese(await answer().catch((error: unknown) => this.#fail(error, requestId)), limits);
    });
    metrics.count(route, request.method, response.status, (performance.now() - begun) / 1000);
    return response;
  }

  async #read(
    route: AnyRoute,
    request: Request,
    params: Record<string, string>,
    who: Principal,
    peer: Peer,
  ): Promise<Call> {
    const url = new URL(request.url);
    refuseUndecodable(url);
    const query = readQuery(url);
    const { bodyLimit } = this.#services.settings;
    const { given, text: raw } = route.takesBytes
      ? NO_BODY
      : await readBody(request, bodyLimit, { isWanted: route.body !== undefined });
    const what = `${route.method} ${route.path}`;
    if (!route.takesKey) refuseVainKey(request, what);
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
      effects: this.#services.effectsOf(who),
      stream: (watch) => this.#stream({ who, permission: route.permission ?? 'view' }, request, peer, watch),
    };
  }

  #look(route: AnyRoute, call: Call): Promise<unknown> {
    const ask = async (): Promise<unknown> => route.run(call);
    if (route.sharedMs === undefined) return ask();
    const maySearch = this.#services.redaction.maySearch(call.who);
    return this.#shared.get(`${maySearch ? 'searched' : 'seen'} ${call.request.url}`, route.sharedMs, ask);
  }

  #answer({ status = 200 }: AnyRoute, value: unknown, who: Principal): Response {
    const { redaction } = this.#services;
    if (value instanceof Reply) return json(redaction.write(value.value, who), value.status ?? status, value.headers);
    return isResponse(value) ? value : json(redaction.write(value, who), status);
  }

  #action(route: AnyRoute, call: Call, { remoteAddress: remote }: Peer): Parameters<Audit['record']>[0] {
    const { who, request, list, query } = call;
    const body: object = list === undefined ? call.body : { jobs: list.length };
    const fields = { ...route.query, ...route.body };
    // The audit leaves out values that may be the user's: it would keep a second copy of them for a year, under other rules.
    const kept = Object.entries({ ...query, ...body }).filter(([name]) => fields[name]?.isValue !== true);
    return {
      who,
      remote,
      userAgent: request.headers.get('user-agent') ?? undefined,
      permission: route.permission ?? 'view',
      target: route.target?.(call) ?? '',
      body: Object.fromEntries(kept),
    };
  }

  async #logOut(request: Request): Promise<Response> {
    const answer = await this.#desk.logOut(request);
    this.#services.streams.checkAll();
    return answer;
  }

  #stream(watcher: Omit<Watcher, 'identify'>, request: Request, peer: Peer, watch: StreamWatch): Response {
    const { streams, auth } = this.#services;
    return eventStream(streams, { ...watcher, identify: () => auth.identify(request, peer) }, request, watch);
  }

  async #ready(): Promise<Response> {
    try {
      await this.#shared.get('readyz', READY_MS, () => this.#services.store.live.ping());
      return Response.json({ status: 'ok' });
    } catch {
      // Only the log has the reason, because this path answers every caller.
      return Response.json({ status: 'the database does not answer' }, { status: 503 });
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
    else if (status > 501 && body.error.code !== 'busy')
      logger.warn({ ...body.error }, 'http: the database was too slow, or not reachable');
    return Response.json(body, { status, headers });
  }
}

/**
 * Hono decodes names in a path once, and leaves undecodable ones as they are. In a query, URL puts U+FFFD in place of what it cannot
 * decode, which would be another name.
 * @throws InvalidInput  the path or the query is no UTF-8
 */
function refuseUndecodable(url: URL): void {
  try {
    decodeURIComponent(url.pathname);
  } catch (cause) {
    throw new InvalidInput('the path cannot be decoded: write a "%" in a name as %25', { cause });
  }
  try {
    decodeURIComponent(url.search.replaceAll(/%(?![\da-f]{2})/gi, '%25')); // as URL reads a lone "%"
  } catch (cause) {
    throw new InvalidInput('the query cannot be decoded: it is no UTF-8', { cause });
  }
}

/** The outcome for the audit. A message about bad input quotes the input, so only its field is kept. */
function outcomeOf({ error: { code, message, field } }: ErrorBody): string {
  return code === 'invalid_input' ? `${code}: ${field ?? 'the request'}` : `${code}: ${message}`;
}

function nothingAt(request: Request): HttpRefusal {
  return new HttpRefusal('not_found', `there is nothing at ${new URL(request.url).pathname}`);
}

function json(text: string, status: number, headers: Readonly<Record<string, string>> = {}): Response {
  return new Response(text, { status, headers: { 'content-type': 'application/json; charset=utf-8', ...headers } });
}
