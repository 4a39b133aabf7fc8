import { type Attributes, errorType, inSpan, SCOPE, SPAN_KIND, type TelemetryApi } from '../../../base/telemetry.ts';

/** A statement as it is sent. If it has no values, its text may contain values, which are private. */
export interface OutgoingStatement {
  readonly text: string;
  readonly values?: readonly unknown[];
}

type Histogram = ReturnType<ReturnType<TelemetryApi['metrics']['getMeter']>['createHistogram']>;

let durations: Histogram | undefined;

/**
 * Measures a statement. If the caller is in a span, also runs the statement within a span by the conventions for databases.
 * Statements that workers send by themselves, all day, get no span, because each would be a trace of its own.
 */
export async function traceStatement<T>(api: TelemetryApi, sent: OutgoingStatement, run: () => Promise<T>): Promise<T> {
  const summary = /^-- (\S+)/.exec(sent.text)?.[1] ?? /^\s*(\w+)/.exec(sent.text)?.[1]?.toLowerCase() ?? 'statement';
  const measured = async (): Promise<T> => {
    const begun = performance.now();
    let failure: Attributes = {};
    try {
      return await run();
    } catch (error) {
      failure = { 'error.type': errorType(error) };
      throw error;
    } finally {
      const attributes = { 'db.system.name': 'postgresql', 'db.query.summary': summary, ...failure };
      durationsOf(api).record((performance.now() - begun) / 1000, attributes);
    }
  };
  if (api.trace.getActiveSpan()?.isRecording() !== true) return measured();
  const attributes = {
    'db.system.name': 'postgresql',
    'db.query.summary': summary,
    ...(sent.values !== undefined && { 'db.query.text': sent.text }),
  };
  return inSpan(api, summary, { kind: SPAN_KIND.client, attributes }, measured);
}

function durationsOf(api: TelemetryApi): Histogram {
  durations ??= api.metrics.getMeter(SCOPE).createHistogram('db.client.operation.duration', {
    unit: 's',
    description: 'How long statements took.',
  });
  return durations;
}
