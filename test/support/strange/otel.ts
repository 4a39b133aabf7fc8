import { type Attributes, context, type Link, metrics, propagation, type SpanStatus, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  AggregationTemporality,
  type DataPoint,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';

/** A span that has ended. */
export interface RecordedSpan {
  readonly name: string;
  readonly kind: number;
  readonly attributes: Attributes;
  readonly links: readonly Link[];
  readonly status: SpanStatus;
  readonly context: { readonly traceId: string; readonly spanId: string };
  /** Of the same trace. */
  readonly parent: string | undefined;
}

export interface Recorder {
  readonly spans: readonly RecordedSpan[];
  forget(): void;
  /** How often each instrument has measured something. */
  measured(): Promise<Readonly<Record<string, number>>>;
  within<T>(name: string, fn: () => Promise<T>): Promise<T>;
  stop(): Promise<void>;
}

/** The official SDK, as a program registers it; what it would export is kept in memory. */
export function recordTelemetry(): Recorder {
  const kept = new InMemorySpanExporter();
  const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(kept)] });
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  // Exported when asked for.
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const meters = new MeterProvider({ readers: [reader] });
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  trace.setGlobalTracerProvider(tracers);
  metrics.setGlobalMeterProvider(meters);
  return {
    get spans() {
      return kept.getFinishedSpans().map(recorded);
    },
    forget: () => kept.reset(),
    measured: async () => {
      await meters.forceFlush();
      return counts(exporter);
    },
    within: (name, fn) => trace.getTracer('test').startActiveSpan(name, (span) => fn().finally(() => span.end())),
    stop: async () => {
      for (const of of [trace, context, metrics, propagation]) of.disable();
      await Promise.all([tracers.shutdown(), meters.shutdown()]);
    },
  };
}

function recorded(span: ReadableSpan): RecordedSpan {
  const { name, kind, attributes, links, status } = span;
  return { name, kind, attributes, links, status, context: span.spanContext(), parent: span.parentSpanContext?.spanId };
}

function counts(exporter: InMemoryMetricExporter): Record<string, number> {
  const all: Record<string, number> = {};
  const of = ({ value }: DataPoint<number | Histogram>): number => (typeof value === 'number' ? value : value.count);
  for (const { scopeMetrics } of exporter.getMetrics().slice(-1)) {
    for (const { descriptor, dataPoints } of scopeMetrics.flatMap((scope) => scope.metrics)) {
      const points: readonly DataPoint<number | Histogram>[] = dataPoints as never;
      all[descriptor.name] = points.reduce((sum, point) => sum + of(point), 0);
    }
  }
  return all;
}
