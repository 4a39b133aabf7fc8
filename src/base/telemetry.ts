/** The part of `@opentelemetry/api` that is used here, by shape: it is not a dependency. */
export interface TelemetryApi {
  readonly trace: {
    getTracer(name: string): Tracer;
    getActiveSpan(): Span | undefined;
    setSpan(context: unknown, span: Span): unknown;
  };
  readonly context: { active(): unknown; with<T>(context: unknown, fn: () => T): T };
  readonly propagation: { extract<C>(context: unknown, carrier: C, getter: Getter<C>): unknown };
  readonly metrics: { getMeter(name: string): Meter };
}

export interface Tracer {
  startSpan(name: string, options: SpanOptions, context?: unknown): Span;
}

export interface SpanOptions {
  readonly kind: number;
  readonly attributes: Attributes;
  readonly links?: readonly { readonly context: SpanContext; readonly attributes?: Attributes }[];
}

export interface Span {
  spanContext(): SpanContext;
  isRecording(): boolean;
  setAttribute(name: string, value: string | number): unknown;
  setStatus(status: { readonly code: number; readonly message?: string }): unknown;
  recordException(error: Error): void;
  end(): void;
}

export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly isRemote?: boolean;
}

export interface Meter {
  createCounter(name: string, options: MetricOptions): { add(value: number, attributes: Attributes): void };
  createHistogram(name: string, options: MetricOptions): { record(value: number, attributes: Attributes): void };
}

export interface Getter<C> {
  keys(carrier: C): string[];
  get(carrier: C, key: string): string | undefined;
}

export type Attributes = Readonly<Record<string, string | number>>;

interface MetricOptions {
  readonly unit: string;
  readonly description: string;
}

/** The numbers of OpenTelemetry. */
export const SPAN_KIND = { server: 1, client: 2, producer: 3, consumer: 4 } as const;
const ERROR_STATUS = 2;

/** The place in which every copy of the package stores its registration. */
const REGISTRY: unique symbol = Symbol.for('opentelemetry.js.api.1');

interface Registry {
  readonly [REGISTRY]?: unknown;
}

/**
 * OpenTelemetry, if the program has it and has registered an SDK. Until then, all of this only reads one global, and nothing is
 * loaded.
 */
class Telemetry {
  #api: TelemetryApi | undefined;
  #loading: Promise<void> | undefined;

  /** Undefined if nothing is registered, and while the package is loading. */
  get api(): TelemetryApi | undefined {
    if (!isRegistered()) return undefined;
    if (this.#api === undefined) void this.#load();
    return this.#api;
  }

  /** The same, for a caller that can wait for the loading. */
  async ready(): Promise<TelemetryApi | undefined> {
    if (isRegistered() && this.#api === undefined) await this.#load();
    return this.api;
  }

  #load(): Promise<void> {
    // Through a variable, so that no compiler or bundler searches for a package that may be missing.
    const name = '@opentelemetry/api';
    this.#loading ??= import(name).then(
      (api: TelemetryApi) => {
        this.#api = api;
      },
      () => {},
    );
    return this.#loading;
  }
}

export const telemetry: Telemetry = new Telemetry();

/** The name under which spans and metrics are made. */
export const SCOPE = 'pawl';

/** Runs `fn` inside a span, which fails as it does. */
export async function inSpan<T>(
  api: TelemetryApi,
  name: string,
  options: SpanOptions,
  fn: (span: Span) => T | Promise<T>,
  parent: unknown = api.context.active(),
): Promise<T> {
  const span = api.trace.getTracer(SCOPE).startSpan(name, options, parent);
  try {
    return await api.context.with(api.trace.setSpan(parent, span), () => fn(span));
  } catch (error) {
    failSpan(span, error);
    throw error;
  } finally {
    span.end();
  }
}

export function failSpan(span: Span, error: unknown): void {
  span.setStatus({ code: ERROR_STATUS, ...(error instanceof Error && { message: error.message }) });
  if (error instanceof Error) span.recordException(error);
  span.setAttribute('error.type', errorType(error));
}

/** A stable word for a failure. */
export function errorType(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  if (typeof code === 'string') return code;
  return error instanceof Error ? error.name : '_OTHER';
}

const TRACEPARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Whether the text names a trace in the form of W3C Trace Context. */
export function isTraceparent(value: string): boolean {
  return readTraceparent(value) !== undefined;
}

export function readTraceparent(value: string): SpanContext | undefined {
  const [, traceId = '', spanId = '', flags = ''] = TRACEPARENT.exec(value) ?? [];
  if (/^0*$/.test(traceId) || /^0*$/.test(spanId)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}

/** Undefined if the span belongs to no trace. */
export function writeTraceparent({ traceId, spanId, traceFlags }: SpanContext): string | undefined {
  const text = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`;
  return isTraceparent(text) ? text : undefined;
}

function isRegistered(): boolean {
  const registry = (globalThis as Registry)[REGISTRY];
  return typeof registry === 'object' && registry !== null && ('trace' in registry || 'metrics' in registry);
}
