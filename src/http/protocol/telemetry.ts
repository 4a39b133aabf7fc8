import { type Getter, inSpan, isTraceparent, SPAN_KIND, telemetry, writeTraceparent } from '../../base/telemetry.ts';

/** Wraps a request in a span by the conventions for HTTP servers, a child of the trace that the request names. */
export async function traceRequest(
  method: string,
  route: string,
  headers: Headers,
  fn: () => Promise<Response>,
): Promise<Response> {
  const api = await telemetry.ready();
  if (api === undefined) return fn();
  const parent = api.propagation.extract(api.context.active(), headers, GETTER);
  const attributes = { 'http.request.method': method, 'http.route': route };
  const options = { kind: SPAN_KIND.server, attributes };
  return inSpan(
    api,
    `${method} ${route}`,
    options,
    async (span) => {
      const response = await fn();
      span.setAttribute('http.response.status_code', response.status);
      if (response.status >= 500) {
        span.setStatus({ code: 2 });
        span.setAttribute('error.type', String(response.status));
      }
      return response;
    },
    parent,
  );
}

/** The current trace: that of the active span, or else the one that the request names. */
export function traceOf(headers: Headers): string | undefined {
  const span = telemetry.api?.trace.getActiveSpan();
  const active = span === undefined ? undefined : writeTraceparent(span.spanContext());
  const named = headers.get('traceparent');
  return active ?? (named !== null && isTraceparent(named) ? named : undefined);
}

const GETTER: Getter<Headers> = {
  keys: (headers) => [...headers.keys()],
  get: (headers, key) => headers.get(key) ?? undefined,
};
