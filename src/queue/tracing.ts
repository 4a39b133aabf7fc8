import {
  type Attributes,
  failSpan,
  inSpan,
  readTraceparent,
  SCOPE,
  SPAN_KIND,
  type SpanContext,
  type TelemetryApi,
  telemetry,
  writeTraceparent,
} from '../base/telemetry.ts';
import type { BatchHandler } from './work/batch/unit-batch.ts';
import type { Handler } from './work/run/attempt.ts';
import type { Unit } from './work/run/unit.ts';

/** Returns the traces in which jobs were enqueued, by their ids. */
export type ReadTraces = (ids: readonly string[], unit: Unit) => Promise<ReadonlyMap<string, string>>;

/**
 * Calls `send` within a span, by the conventions for messaging, and passes it the traceparent. Without a tracer it passes the
 * given traceparent, if any, at no cost.
 */
export async function sending<T>(
  queue: string,
  count: number,
  given: string | undefined,
  send: (traceparent: string | undefined) => Promise<T>,
): Promise<T> {
  const { api } = telemetry;
  if (api === undefined) return send(given);
  const attributes = {
    ...attributesOf(queue, 'send'),
    ...(count > 1 && { 'messaging.batch.message_count': count }),
  };
  return inSpan(api, `send ${queue}`, { kind: SPAN_KIND.producer, attributes }, async (span) => {
    const answer = await send(given ?? writeTraceparent(span.spanContext()));
    metersOf(api).sent.add(count, attributesOf(queue, 'send'));
    return answer;
  });
}

/** With a tracer: a handler that runs within a span, which links to the spans of its jobs' enqueues. */
export function traced(handler: Handler, read: ReadTraces): Handler {
  return (unit) => {
    const { api } = telemetry;
    return api === undefined ? handler(unit) : process(api, [unit], () => handler(unit), read);
  };
}

/** The same for a batch handler: one span, which links to all of its jobs. */
export function tracedBatch(handler: BatchHandler, read: ReadTraces): BatchHandler {
  return (units) => {
    const { api } = telemetry;
    return api === undefined ? handler(units) : process(api, units, () => handler(units), read);
  };
}

async function process(
  api: TelemetryApi,
  units: readonly Unit[],
  handle: () => unknown,
  read: ReadTraces,
): Promise<unknown> {
  const [unit] = units;
  if (unit === undefined) return handle();
  const { queue } = unit;
  const jobs = units.flatMap((one) => one.jobs);
  const ids = jobs.map(({ id }) => id);
  // If the trace cannot be read, the work is done anyway.
  const parents = await read(ids, unit).catch(() => new Map<string, string>());
  const links = ids.flatMap((id) => linkTo(id, parents.get(id)));
  const attributes = {
    ...attributesOf(queue, 'process'),
    'pawl.job.kind': unit.kind,
    'pawl.job.attempt': units.reduce((most, { attempt }) => Math.max(most, attempt), 0),
    ...(jobs.length === 1 ? { 'messaging.message.id': unit.job.id } : { 'messaging.batch.message_count': jobs.length }),
  };
  const span = api.trace
    .getTracer(SCOPE)
    .startSpan(`process ${queue}`, { kind: SPAN_KIND.consumer, attributes, links });
  const begun = performance.now();
  let failure: Attributes = {};
  try {
    return await api.context.with(api.trace.setSpan(api.context.active(), span), handle);
  } catch (error) {
    failSpan(span, error);
    failure = { 'error.type': error instanceof Error ? error.name : '_OTHER' };
    throw error;
  } finally {
    span.end();
    metersOf(api).processed.record((performance.now() - begun) / 1000, {
      ...attributesOf(queue, 'process'),
      ...failure,
    });
  }
}

function linkTo(id: string, parent: string | undefined): { context: SpanContext; attributes: Attributes }[] {
  const context = parent === undefined ? undefined : readTraceparent(parent);
  return context === undefined ? [] : [{ context, attributes: { 'messaging.message.id': id } }];
}

function attributesOf(queue: string, operation: 'send' | 'process'): Attributes {
  return {
    'messaging.system': 'pawl',
    'messaging.destination.name': queue,
    'messaging.operation.name': operation,
    'messaging.operation.type': operation,
  };
}

interface Meters {
  readonly sent: { add(value: number, attributes: Attributes): void };
  readonly processed: { record(value: number, attributes: Attributes): void };
}

let meters: Meters | undefined;

function metersOf(api: TelemetryApi): Meters {
  const make = (): Meters => {
    const meter = api.metrics.getMeter(SCOPE);
    return {
      sent: meter.createCounter('messaging.client.sent.messages', {
        unit: '{message}',
        description: 'Jobs that were enqueued.',
      }),
      processed: meter.createHistogram('messaging.process.duration', {
        unit: 's',
        description: 'How long handlers took.',
      }),
    };
  };
  return (meters ??= make());
}
