import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { Charts, KindChart } from '../data/types.ts';
import { Card, Empty, Loaded } from '../parts/card.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { filter, query } from '../router.ts';
import { count, duration } from '../text/format.ts';
import { Name, QueueLink } from '../text/name.tsx';
import { Count, Maybe, None } from '../text/words.tsx';
import { Spark } from './spark.tsx';

const SPANS = ['1h', '24h', '7d'] as const;

/** The figures of each kind over a span, which is in the address: its jobs, its failures, its waits and its runs. */
export function Kinds({ queue }: { readonly queue?: string }): JSX.Element {
  const given = query.value.get('span');
  const span = SPANS.find((one) => one === given) ?? SPANS[0];
  const asked = `charts?${new URLSearchParams({ range: span, ...(queue === undefined ? {} : { queue }) })}`;
  const charts = useResource<Charts>(asked, 15_000);
  return (
    <Card
      title="By kind"
      actions={
        <div class="tabs" role="group" aria-label="Span">
          {SPANS.map((one) => (
            <button key={one} type="button" aria-pressed={one === span} onClick={() => filter({ span: one })}>
              {one}
            </button>
          ))}
        </div>
      }
    >
      <Loaded of={charts}>
        {(data) =>
          data.items.length === 0 ? (
            <Empty title="Nothing was done in this span">
              The kinds of jobs are listed here as soon as a worker ends jobs.
            </Empty>
          ) : (
            <>
              <Table
                caption="Kinds of jobs, the busiest first"
                rows={data.items}
                keyOf={(row) => `${row.queue} ${row.kind}`}
                columns={queue === undefined ? [QUEUE, ...columnsOf(data)] : columnsOf(data)}
              />
              {data.truncated > 0 && <p class="body muted small">{count(data.truncated, Infinity)} more did less.</p>}
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

const QUEUE: Column<KindChart> = { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> };

const columnsOf = (charts: Charts): readonly Column<KindChart>[] => [
  { title: 'Kind', of: ({ kind }) => <Name of={kind} /> },
  { title: 'Completed', align: 'right', of: ({ complete }) => <Count of={complete} isExact /> },
  { title: 'Lately', of: (row) => <Spark values={steps(charts, row, 'complete')} /> },
  { title: 'Tried again', align: 'right', of: ({ retries }) => <Count of={retries} isExact /> },
  {
    title: 'Errors',
    align: 'right',
    of: ({ errors, queue, kind }) => (
      <Count
        of={errors}
        isExact
        href={`jobs?${new URLSearchParams({ q: `status:error kind:${JSON.stringify(kind)}`, queue })}`}
      />
    ),
  },
  {
    title: 'Errors lately',
    of: (row) => (row.errors === 0 ? <None /> : <Spark tone="bad" values={steps(charts, row, 'errors')} />),
  },
  { title: 'Run, median', align: 'right', of: ({ runP50Ms }) => <Maybe of={runP50Ms && duration(runP50Ms)} /> },
  { title: 'p95', align: 'right', of: ({ runP95Ms }) => <Maybe of={runP95Ms && duration(runP95Ms)} /> },
  { title: 'p95 lately', of: (row) => <Spark tone="busy" values={steps(charts, row, 'runP95Ms')} /> },
  { title: 'p99', align: 'right', of: ({ runP99Ms }) => <Maybe of={runP99Ms && duration(runP99Ms)} /> },
  { title: 'Wait, p95', align: 'right', of: ({ waitP95Ms }) => <Maybe of={waitP95Ms && duration(waitP95Ms)} /> },
];

/** One value for each step of the span. The API leaves out steps without jobs, so their value is 0. */
function steps(
  { since, until, stepMs }: Charts,
  { points }: KindChart,
  of: 'complete' | 'errors' | 'runP95Ms',
): readonly number[] {
  const values = Array.from({ length: Math.ceil((until - since) / stepMs) }, () => 0);
  for (const point of points) values[Math.floor((point.at - since) / stepMs)] = point[of] ?? 0;
  return values;
}
