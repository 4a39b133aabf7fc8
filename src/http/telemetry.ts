/** What of `@opentelemetry/api` is used here, by shape: it is not a dependency. */
interface Api {
  readonly trace: { getTracer(name: string, version?: string): Tracer };
  readonly context: { active(): unknown; with<T>(context: unknown, fn: () => T): T };
  readonly propagation: { extract(context: unknown, carrier: unknown, getter: Getter): unknown };
}

interface Tracer {
  startActiveSpan<T>(name: string, options: object, context: unknown, fn: (span: Span) => T): T;
}

interface Span {
  setAttribute(name: string, value: string | number): unknown;
  setStatus(status: { readonly code: number }): unknown;
  recordException(error: Error): void;
  end(): void;
}

interface Getter {
  keys(carrier: Headers): string[];
  get(carrier: Headers, key: string): string | undefined;
}

const SERVER_KIND = 1;
const ERROR_STATUS = 2;

/** Spans by the conventions for HTTP servers, if the application has OpenTelemetry; else nothing, and at no cost. */
export class Telemetry {
  readonly #loaded: Promise<Api | undefined>;
  #api: Api | undefined;

  constructor() {
    // By a variable, so that no compiler or bundler looks for a package that need not be there.
    const name = '@opentelemetry/api';
    this.#loaded = import(name).then(
      (api: Api) => api,
      () => undefined,
    );
    void this.#loaded.then((api) => {
      this.#api = api;
    });
  }

  /** Runs `fn` inside a span that is a child of what the request says it belongs to. */
  async trace(method: string, route: string, headers: Headers, fn: () => Promise<Response>): Promise<Response> {
    const api = this.#api ?? (await this.#loaded);
    if (api === undefined) return fn();
    const parent = api.propagation.extract(api.context.active(), headers, GETTER);
    const attributes = { 'http.request.method': method, 'http.route': route };
    const options = { kind: SERVER_KIND, attributes };
    return api.trace.getTracer('pawl').startActiveSpan(`${method} ${route}`, options, parent, async (span) => {
      try {
        const response = await fn();
        span.setAttribute('http.response.status_code', response.status);
        if (response.status >= 500) span.setStatus({ code: ERROR_STATUS });
        return response;
      } catch (error) {
        span.setStatus({ code: ERROR_STATUS });
        if (error instanceof Error) span.recordException(error);
        throw error;
      } finally {
        span.end();
      }
    });
  }
}

const GETTER: Getter = {
  keys: (headers) => [...headers.keys()],
  get: (headers, key) => headers.get(key) ?? undefined,
};
