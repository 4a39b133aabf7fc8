import type { JSX } from 'preact';
import { can } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { ErrorGroup, ErrorGroups } from '../data/types.ts';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { SelectQueue } from '../queues/select-queue.tsx';
import { filter, query } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { count, plural } from '../text/format.ts';
import { Name, QueueLink } from '../text/name.tsx';
import { Time } from '../text/time.tsx';
import { Maybe } from '../text/words.tsx';

const SPANS = [
  ['', 'All'],
  ['7d', '7 days'],
  ['1d', 'A day'],
  ['1h', 'An hour'],
] as const;
const HOURS: Readonly<Record<string, number>> = { '7d': 168, '1d': 24, '1h': 1 };
const HOUR_MS = 3_600_000;

/** The errors and their numbers. Jobs in error with the same text are one row. */
export function ErrorsPage(): JSX.Element {
  const given = query.value;
  const [queue, span] = [given.get('queue') ?? '', given.get('since') ?? ''];
  const hours = HOURS[span];
  // Rounded to the minute, so that the request stays the same for a while.
  const since = hours === undefined ? undefined : Math.floor(Date.now() / 60_000) * 60_000 - hours * HOUR_MS;
  const asked = `errors?${new URLSearchParams({
    ...(queue === '' ? {} : { queue }),
    ...(since === undefined ? {} : { since: new Date(since).toISOString() }),
  })}`;
  const groups = useResource<ErrorGroups>(asked, 5000);
  return (
    <>
      <Head
        title="Errors"
        about="Jobs that are in error now. Errors that differ only in numbers and in names in quotes are one row."
        actions={<CopyAs of={{ CLI: 'pawl job search status:error', curl: curlOf(asked) }} />}
      />
      <Card title="The most frequent first" actions={groups.data && <Counted of={groups.data} />}>
        <div class="body filters">
          <SelectQueue value={queue} />
          <div class="tabs" role="group" aria-label="Since">
            {SPANS.map(([value, title]) => (
              <button key={value} type="button" aria-pressed={span === value} onClick={() => filter({ since: value })}>
                {title}
              </button>
            ))}
          </div>
        </div>
        <Loaded of={groups}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="No job is in error">
                A job is in error when its handler has failed in all attempts of its kind. Until then it is tried again.
              </Empty>
            ) : (
              <Table caption="Errors" rows={items} keyOf={keyOf} columns={COLUMNS} />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function Counted({ of: { counted, isAll } }: { readonly of: ErrorGroups }): JSX.Element {
  return (
    <span class="muted small">
      {plural(counted, 'job')}
      {isAll ? '' : ': the newest; there are more'}
    </span>
  );
}

function keyOf({ queue, kind, error }: ErrorGroup): string {
  return `${queue} ${kind} ${error}`;
}

const COLUMNS: readonly Column<ErrorGroup>[] = [
  {
    title: 'Error',
    of: (group) => (
      <a class="wrap" href={jobsUrl(group)}>
        {group.error ?? 'hidden'}
      </a>
    ),
  },
  { title: 'Jobs', align: 'right', of: ({ count: n }) => count(n, Infinity) },
  { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> },
  { title: 'Kind', of: ({ kind }) => <Name of={kind} /> },
  { title: 'First', of: ({ firstAt }) => <Time at={firstAt} /> },
  { title: 'Last', of: ({ lastAt }) => <Time at={lastAt} /> },
  {
    title: 'Newest',
    of: ({ jobs }) => (
      <Maybe
        of={
          jobs[0] !== undefined && (
            <a class="mono" href={`jobs/${jobs[0]}`}>
              {jobs[0]}
            </a>
          )
        }
      />
    ),
  },
];

/** A search for the jobs of the group, by the words that their errors share. On that page all or some of them can be retried. */
function jobsUrl({ queue, kind, error }: ErrorGroup): string {
  const words =
    error === null || !can('payload:read') || !can('error:read')
      ? []
      : (error.match(/[\p{L}_]{3,}/gu) ?? []).slice(0, 6);
  const q = ['status:error', `kind:${JSON.stringify(kind)}`, ...words].join(' ');
  return `jobs?${new URLSearchParams({ q, queue })}`;
}
