import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import { tick } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { Point } from '../data/types.ts';
import { Card, Loaded } from '../parts/card.tsx';
import { lazy } from '../parts/lazy.tsx';
import { filter, query } from '../router.ts';
import { duration, short } from '../text/format.ts';
import { visibleName } from '../text/visible.ts';
import { clock } from '../text/zone.ts';
import type { ChartProps } from './chart.tsx';
import { type Mark, useStarts } from './starts.ts';

/** The code that draws lines is a third as large as the rest of the first page, so it is loaded later. */
const Chart = lazy<ChartProps>(async () => (await import('./chart.tsx')).Chart);

const RANGES = [
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['6h', 21_600_000],
  ['1d', 86_400_000],
  ['7d', 604_800_000],
  ['30d', 2_592_000_000],
] as const;

interface Series {
  readonly stepMs: number;
  readonly points: readonly Point[];
}

const MINUTE = 60_000;

interface SeriesProps {
  readonly path: string;
  readonly queue?: string;
  /** The kinds of the queue. The user can choose one of them. */
  readonly kinds?: readonly string[];
}

/** Throughput and times, over a range that is in the address. If the user marks a span with the mouse, only that span is shown. */
export function SeriesCharts({ path, queue, kinds = [] }: SeriesProps): JSX.Element {
  const marks = useStarts(queue);
  const given = query.value;
  const range = RANGES.find(([name]) => name === given.get('range')) ?? RANGES[0];
  const kind = kinds.find((one) => one === given.get('kind'));
  const [from, to] = [timeOf(given.get('from')), timeOf(given.get('to'))];
  // An invalid span, in an address that a person wrote, is ignored.
  const isZoomed = from < to;
  // The end moves on in steps, so that many dashboards send the same request.
  const step = Math.max(2000, range[1] / 120);
  void tick.value;
  const until = isZoomed ? to : Math.ceil(Date.now() / step) * step;
  const since = isZoomed ? from : until - range[1];
  const asked = `${path}?since=${new Date(since).toISOString()}&until=${new Date(until).toISOString()}&points=60${kind === undefined ? '' : `&kind=${encodeURIComponent(kind)}`}`;
  const series = useResource<Series>(asked, 10_000);
  const place = `${path} ${kind ?? ''}`;
  const last = shown.value[place];
  if (series.data !== undefined && series.data !== last) shown.value = { ...shown.peek(), [place]: series.data };
  // The last series stays until the next one arrives.
  const kept = { ...series, data: series.data ?? last };
  return (
    <Card
      title="Over time"
      actions={
        <>
          {kinds.length > 1 && (
            <select
              aria-label="Kind"
              value={kind ?? ''}
              onChange={(event) => filter({ kind: event.currentTarget.value })}
            >
              <option value="">All kinds</option>
              {kinds.map((one) => (
                <option key={one} value={one}>
                  {visibleName(one)}
                </option>
              ))}
            </select>
          )}
          <div class="tabs" role="group" aria-label="Range">
            {isZoomed && (
              <button type="button" aria-pressed="true" onClick={() => filter({ from: undefined, to: undefined })}>
                {clock(since)} – {clock(until, false)} ×
              </button>
            )}
            {RANGES.map(([name]) => (
              <button
                key={name}
                type="button"
                aria-pressed={!isZoomed && name === range[0]}
                onClick={() => filter({ range: name, from: undefined, to: undefined })}
              >
                {name}
              </button>
            ))}
          </div>
        </>
      }
    >
      <div class="body columns">
        <Loaded of={kept}>
          {({ points, stepMs }) => <Charts points={whole(points, stepMs)} stepMs={stepMs} marks={marks} />}
        </Loaded>
      </div>
    </Card>
  );
}

function timeOf(text: string | null): number {
  return text === null ? Number.NaN : new Date(Number(text)).getTime();
}

const shown = signal<Readonly<Record<string, Series>>>({});

/** Leaves out the last step of time if it has only begun, because its few jobs would look like many, or like none. */
function whole(points: readonly Point[], stepMs: number): readonly Point[] {
  return points.filter(({ at }) => Date.now() - at >= stepMs / 4);
}

function Charts({ points, stepMs, marks }: Series & { readonly marks: readonly Mark[] }): JSX.Element {
  const times = points.map(({ at }) => at);
  // The last step of time is not over. Its value is divided by its shorter time, so that it does not look like a fall.
  const now = Date.now();
  const perMinute = (value: number, index: number): number =>
    (value * MINUTE) / Math.min(stepMs, now - (times[index] ?? 0));
  const zoom = (from: number, to: number): void =>
    filter({ from: String(Math.round(from)), to: String(Math.round(to)) });
  return (
    <>
      <Chart
        title="Jobs a minute"
        times={times}
        format={short}
        marks={marks}
        onZoom={zoom}
        lines={[
          {
            title: 'Completed a minute',
            tone: 'accent',
            values: points.map(({ complete }, index) => perMinute(complete, index)),
          },
          { title: 'Tried again', tone: 'warn', values: points.map(({ retries }, index) => perMinute(retries, index)) },
          { title: 'Ended in error', tone: 'bad', values: points.map(({ errors }, index) => perMinute(errors, index)) },
        ]}
      />
      <Chart
        title="Times"
        times={times}
        format={duration}
        marks={marks}
        onZoom={zoom}
        lines={[
          { title: 'Run, p99', tone: 'warn', values: points.map(({ runP99Ms }) => runP99Ms) },
          { title: 'Run, p95', tone: 'busy', values: points.map(({ runP95Ms }) => runP95Ms) },
          { title: 'Run, median', tone: 'accent', values: points.map(({ runP50Ms }) => runP50Ms) },
          { title: 'Wait, p95', tone: 'wait', values: points.map(({ waitP95Ms }) => waitP95Ms) },
        ]}
      />
    </>
  );
}
