import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { Point } from '../data/types.ts';
import { Card, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { duration } from '../text/format.ts';
import { Count } from '../text/words.tsx';
import { dayName, hour, zoneName } from '../text/zone.ts';

const HOUR_MS = 3_600_000;
/** Half of the hours of a week. The API returns at most 120 points at once, and a week has 168 hours. */
const HALF_HOURS = 84;
const LEVELS = 5;

interface Series {
  readonly points: readonly Point[];
}

/** How long jobs ran in each hour of the last seven days. It shows at once if jobs are slow every night, or since Tuesday. */
export function Heat({ path }: { readonly path: string }): JSX.Element {
  const end = Math.ceil(Date.now() / HOUR_MS) * HOUR_MS;
  const middle = end - HALF_HOURS * HOUR_MS;
  const older = useResource<Series>(asked(path, middle), 3_600_000);
  const newer = useResource<Series>(asked(path, end), 300_000);
  return (
    <Card title="Run times by hour, p95" actions={<span class="muted small">the last 7 days, {zoneName()}</span>}>
      <Loaded of={newer}>
        {({ points }) => <Week of={[...(older.data?.points ?? []), ...points].filter(({ at }) => at < end)} />}
      </Loaded>
    </Card>
  );
}

function asked(path: string, until: number): string {
  const since = new Date(until - HALF_HOURS * HOUR_MS).toISOString();
  return `${path}?since=${since}&until=${new Date(until).toISOString()}&points=${HALF_HOURS}`;
}

function Week({ of: points }: { readonly of: readonly Point[] }): JSX.Element {
  const ran = points.filter(({ runP95Ms }) => runP95Ms !== null);
  if (ran.length === 0) return <p class="body muted">Nothing ran within seven days.</p>;
  const days = [...new Set(points.map(({ at }) => dayName(at)))];
  const by = new Map(ran.map((point) => [`${dayName(point.at)} ${hour(point.at)}`, point]));
  const times = ran.map(({ runP95Ms }) => runP95Ms ?? 0);
  const level = levels(times);
  return (
    <div class="body">
      <div class="heat" aria-hidden="true">
        <span />
        {HOURS.map((of) => (
          <i key={of}>{of % 6 === 0 ? `${of}`.padStart(2, '0') : ''}</i>
        ))}
        {days.map((day) => (
          <>
            <span>{day}</span>
            {HOURS.map((of) => {
              const point = by.get(`${day} ${of}`);
              const title = point === undefined ? 'nothing ran' : `${duration(point.runP95Ms)}, ${point.complete} done`;
              return (
                <b
                  key={of}
                  class={point === undefined ? '' : `heat-${level(point.runP95Ms ?? 0)}`}
                  title={`${day}, ${of}:00: ${title}`}
                />
              );
            })}
          </>
        ))}
      </div>
      <p class="heat-key small muted" aria-hidden="true">
        <Key least={Math.min(...times)} most={Math.max(...times)} />
      </p>
      <details class="twin">
        <summary>As a table</summary>
        <Table
          caption="Run times by hour, newest first"
          rows={[...ran].reverse()}
          keyOf={({ at }) => String(at)}
          columns={[
            { title: 'Day', of: ({ at }) => dayName(at) },
            { title: 'Hour', of: ({ at }) => `${String(hour(at)).padStart(2, '0')}:00` },
            { title: 'Run, p95', align: 'right', of: ({ runP95Ms }) => duration(runP95Ms) },
            { title: 'Run, median', align: 'right', of: ({ runP50Ms }) => duration(runP50Ms) },
            { title: 'Completed', align: 'right', of: ({ complete }) => <Count of={complete} isExact /> },
            { title: 'Errors', align: 'right', of: ({ errors }) => <Count of={errors} isExact /> },
          ]}
        />
      </details>
    </div>
  );
}

/** The meaning of the colours. If there is only one value, there is one colour. */
function Key({ least, most }: { readonly least: number; readonly most: number }): JSX.Element {
  if (duration(least) === duration(most))
    return (
      <>
        <b class="heat-1" />
        {duration(most)}
      </>
    );
  return (
    <>
      {duration(least)}
      {Array.from({ length: LEVELS }, (_, n) => (
        <b key={n} class={`heat-${n + 1}`} />
      ))}
      {duration(most)}
    </>
  );
}

const HOURS = Array.from({ length: 24 }, (_, of) => of);

/** Levels by orders of magnitude. Otherwise one hour with a run of a minute would make all other hours look the same. */
function levels(values: readonly number[]): (value: number) => number {
  const log = (value: number): number => Math.log(Math.max(value, 1));
  const [least, most] = [Math.min(...values.map(log)), Math.max(...values.map(log))];
  return (value) =>
    most === least ? 1 : 1 + Math.min(LEVELS - 1, Math.floor(((log(value) - least) / (most - least)) * LEVELS));
}
