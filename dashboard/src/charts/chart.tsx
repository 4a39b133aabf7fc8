import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import type { Tone } from '../parts/badge.tsx';
import { Table } from '../parts/table.tsx';
import { repaint } from '../shell/theme.ts';
import { clock, dayName, zone } from '../text/zone.ts';
import type { Mark } from './starts.ts';

export interface Line {
  readonly title: string;
  readonly tone: Tone;
  readonly values: readonly (number | null)[];
}

export interface ChartProps {
  readonly title: string;
  /** Milliseconds. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  /** Events that may be the reason why a line rises or falls. */
  readonly marks?: readonly Mark[];
  /** Called when the user marked a span with the mouse. */
  readonly onZoom?: (from: number, to: number) => void;
}

const HEIGHT = 170;
/** The possible distances of two lines of the grid. */
const STEPS = [1, 2, 5]
  .flatMap((n) => [1, 10, 100, 1000, 1e4, 1e5, 1e6, 1e7].map((ten) => n * ten))
  .sort((a, b) => a - b);

/** Lines over time, and a table of the same values for people who do not see the lines. */
export function Chart({ title, times, lines, format, marks = [], onZoom }: ChartProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  const isEmpty = lines.every(({ values }) => values.every((value) => value === null || value === 0));
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const shown = marks.filter(({ at }) => at >= first && at <= last);
  const marked = useRef(shown);
  marked.current = shown;
  const data = [times.map((at) => at / 1000), ...lines.map(({ values }) => values)] as uPlot.AlignedData;
  const painted = `${repaint.value} ${zone.value}`;
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const chart = new uPlot(
      optionsOf(element, lines, format, {
        onZoom: (from, to) => zoom.current?.(from, to),
        marks: () => marked.current,
      }),
      data,
      element,
    );
    plot.current = chart;
    const watcher = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      chart.destroy();
    };
  }, [painted, lines.map((line) => line.title).join()]);
  useEffect(() => plot.current?.setData(data), [data]);
  return (
    <figure aria-label={title}>
      <div class="legend">
        {lines.map(({ title: name, tone, values }) => (
          <span key={name} class={`tone-${tone}`}>
            <i />
            {name}
            <b>
              {valueText(
                values.findLast((value) => value !== null),
                format,
              )}
            </b>
          </span>
        ))}
      </div>
      <div class="chart" ref={place} aria-hidden="true">
        {isEmpty && (
          <span class="nothing">
            <span>Nothing in this span</span>
          </span>
        )}
      </div>
      <details class="twin">
        <summary>As a table</summary>
        {shown.length > 0 && (
          <ul class="small marks">
            {shown.map(({ at, text }) => (
              <li key={at}>
                {clock(at)}: {text}
              </li>
            ))}
          </ul>
        )}
        <Table
          caption={title}
          rows={times.map((at, index) => ({ at, index })).reverse()}
          keyOf={({ at }) => String(at)}
          columns={[
            { title: 'Time', of: ({ at }) => clock(at) },
            ...lines.map(({ title: name, values }) => ({
              title: name,
              align: 'right' as const,
              of: ({ index }: { index: number }) => valueText(values[index], format),
            })),
          ]}
        />
      </details>
    </figure>
  );
}

/** The labels of the axis: the time of day; or the day, where it changes or if a step is a day or more. */
function times(ticks: readonly number[]): string[] {
  const step = ((ticks[1] ?? 0) - (ticks[0] ?? 0)) * 1000;
  return ticks.map((tick) => {
    const at = tick * 1000;
    const time = clock(at, false);
    if (step >= 86_400_000 || time === '00:00:00') return dayName(at).replace(/^\w+,? /, '');
    return step < 60_000 ? time : time.slice(0, 5);
  });
}

function valueText(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? '–' : format(value);
}

interface Hooks {
  readonly onZoom: (from: number, to: number) => void;
  readonly marks: () => readonly Mark[];
}

function optionsOf(
  element: HTMLElement,
  lines: readonly Line[],
  format: (value: number) => string,
  { onZoom, marks }: Hooks,
): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour('muted'),
    font: '11px system-ui, sans-serif',
    grid: { stroke: colour('line'), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    tzDate: (at) => (zone.value === 'UTC' ? uPlot.tzDate(new Date(at * 1000), 'Etc/UTC') : new Date(at * 1000)),
    scales: { y: { range: (_plot, _min, max) => [0, Math.max(max ?? 0, 1) * 1.08] } },
    axes: [
      { ...axis, size: 26, gap: 4, values: (_plot, ticks) => times(ticks) },
      // Whole numbers only, because there is no half job.
      { ...axis, size: 58, gap: 6, incrs: STEPS, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
    ],
    hooks: {
      draw: [(chart) => drawMarks(chart, marks(), colour('line-strong'))],
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < 8) return;
          onZoom(chart.posToVal(left, 'x') * 1000, chart.posToVal(left + width, 'x') * 1000);
          chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        },
      ],
    },
    series: [
      {},
      ...lines.map(({ title, tone }, index) => ({
        label: title,
        stroke: colour(tone),
        width: 1.8,
        // A value without neighbours has no line, so it is drawn as a point.
        points: {
          show: true,
          size: 5,
          fill: colour(tone),
          filter: (plot: uPlot, of: number) => lonely(plot.data[of] ?? []),
        },
        ...(index === 0 ? { fill: `${colour(tone)}22` } : {}),
      })),
    ],
  };
}

/** Draws the marks as dashed lines from top to bottom. */
function drawMarks(chart: uPlot, marks: readonly Mark[], stroke: string): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = stroke;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at } of marks) {
    const x = Math.round(chart.valToPos(at / 1000, 'x', true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function lonely(values: ArrayLike<number | null | undefined>): number[] {
  const isThere = (index: number): boolean => values[index] !== null && values[index] !== undefined;
  return Array.from(values, (_value, index) => index).filter(
    (index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1),
  );
}
