import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import {
  type Attributes,
  type Context,
  context,
  type Link,
  type Meter,
  metrics,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  type SpanOptions,
  type SpanStatus,
  type Tracer,
  trace,
} from '@opentelemetry/api';

/** A span that has ended. */
export interface Recorded {
  readonly name: string;
  readonly kind: number | undefined;
  readonly attributes: Attributes;
  readonly links: readonly Link[];
  readonly status: SpanStatus | undefined;
  readonly context: SpanContext;
  /** Of the same trace. */
  readonly parent: string | undefined;
}

export interface Recorder {
  readonly spans: Recorded[];
  /** Values by the name of what measured them. */
  readonly measured: Map<string, { value: number; attributes: Attributes }[]>;
  within<T>(name: string, fn: () => Promise<T>): Promise<T>;
  stop(): void;
}

/** Registers with the real `@opentelemetry/api` what an SDK would: spans and measurements are kept in memory. */
export function recordTelemetry(): Recorder {
  const spans: Recorded[] = [];
  const measured: Recorder['measured'] = new Map();
  const contexts = new AsyncLocalStorage<Context>();
  const active = (): Context => contexts.getStore() ?? ROOT_CONTEXT;
  context.setGlobalContextManager({
    active,
    with: (of, fn, self, ...args) => contexts.run(of, () => fn.apply(self, args)),
    bind: (_of, target) => target,
    enable() {
      return this;
    },
    disable() {
      return this;
    },
  });
  const startSpan = (name: string, options: SpanOptions = {}, of: Context = active()): Span =>
    record(name, options, options.root === true ? undefined : trace.getSpanContext(of), spans);
  const tracer = { startSpan } as unknown as Tracer;
  trace.setGlobalTracerProvider({ getTracer: () => tracer });
  const note =
    (name: string) =>
    (value: number, attributes: Attributes = {}) => {
      measured.set(name, [...(measured.get(name) ?? []), { value, attributes }]);
    };
  const meter = {
    createCounter: (name: string) => ({ add: note(name) }),
    createHistogram: (name: string) => ({ record: note(name) }),
  } as unknown as Meter;
  metrics.setGlobalMeterProvider({ getMeter: () => meter });
  return {
    spans,
    measured,
    within: async (name, fn) => {
      const span = startSpan(name);
      return contexts.run(trace.setSpan(active(), span), fn).finally(() => span.end());
    },
    stop: () => {
      for (const of of [trace, context, metrics, propagation]) of.disable();
    },
  };
}

function record(name: string, options: SpanOptions, parent: SpanContext | undefined, spans: Recorded[]): Span {
  const own: SpanContext = {
    traceId: parent?.traceId ?? randomBytes(16).toString('hex'),
    spanId: randomBytes(8).toString('hex'),
    traceFlags: 1,
  };
  const attributes: Attributes = { ...options.attributes };
  let status: SpanStatus | undefined;
  const span: Partial<Span> = {
    spanContext: () => own,
    isRecording: () => true,
    setAttribute(key, value) {
      attributes[key] = value;
      return span as Span;
    },
    setStatus(given) {
      status = given;
      return span as Span;
    },
    recordException: () => {},
    end: () => {
      spans.push({
        name,
        kind: options.kind,
        attributes,
        links: options.links ?? [],
        status,
        context: own,
        parent: parent?.spanId,
      });
    },
  };
  return span as Span;
}
