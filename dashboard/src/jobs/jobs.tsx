import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { BulkBar, BulkBegun } from '../bulk/bulk-bar.tsx';
import { can, get } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Job, JobList, List } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { SelectQueue } from '../queues/select-queue.tsx';
import { filter, query, urlOf } from '../router.ts';
import { CopyAs, curlOf, shellWord } from '../text/copy.tsx';
import { jobsOfKey, plural } from '../text/format.ts';
import { Name, QueueLink } from '../text/name.tsx';
import { Time } from '../text/time.tsx';
import { Count, FirstLine, Maybe, None } from '../text/words.tsx';
import { Columns, chosen } from './columns.tsx';
import { Qualifiers } from './qualifiers.tsx';
import { useSelection } from './selection.tsx';
import { Views } from './views.tsx';

const STATUSES = ['new', 'in-progress', 'complete', 'error', 'cancelled'];
const LIMIT = 50;

export function JobsPage(): JSX.Element {
  return (
    <>
      <Head
        title="Jobs"
        actions={<a href="bulk">Bulk actions</a>}
        about={
          <>
            The search box accepts an id, words of the payload or of an error, <code>key:ada</code>,{' '}
            <code>kind:welcome</code>, <code>status:error</code>, <code>since:2h</code>, <code>until:1h</code>.
          </>
        }
      />
      <JobTable queue={undefined} />
    </>
  );
}

/** Jobs that match the filters of the address, newest first. */
export function JobTable({ queue }: { readonly queue: string | undefined }): JSX.Element {
  const given = query.value;
  const q = given.get('q') ?? '';
  const of = queue ?? given.get('queue') ?? '';
  const asked = `jobs?${new URLSearchParams({ ...(q === '' ? {} : { q }), ...(of === '' ? {} : { queue: of }), limit: String(LIMIT) })}`;
  const page = useResource<JobList>(asked);
  const list = useStillList(asked, page.data);
  const picked = useSelection(list.jobs ?? [], asked);
  // On the page of a queue, all jobs are of that queue.
  const all = queue === undefined ? COLUMNS : COLUMNS.filter(({ title }) => title !== 'Queue');
  return (
    <Card
      title={queue === undefined ? 'Newest first' : 'Jobs'}
      actions={
        <>
          {list.newer > 0 && <NewPill n={list.newer} show={list.showNewer} />}
          <Views />
          <Columns all={all} usual={USUAL} />
          <CopyAs of={elsewhere(q, of, asked)} />
        </>
      }
    >
      <div class="body">
        <Filters q={q} queue={of} hasQueue={queue !== undefined} />
      </div>
      {can('job:bulk') && <BulkBegun />}
      {can('job:bulk') && picked.ids.length > 0 && (
        <BulkBar
          about={`${plural(picked.ids.length, 'job')} selected:`}
          of={{ jobs: picked.ids }}
          onBegun={picked.clear}
        />
      )}
      {can('job:bulk') && picked.ids.length === 0 && q !== '' && (list.jobs?.length ?? 0) > 0 && (
        <BulkBar about="All that fit:" of={{ query: q, ...(of === '' ? {} : { queue: of }) }} />
      )}
      <Loaded of={{ ...page, data: list.jobs }}>
        {(jobs) =>
          jobs.length === 0 && list.after === null ? (
            <Empty title="No job fits">
              {q === '' ? (
                <>
                  Nothing was enqueued yet. A program enqueues jobs, also in its own transaction:
                  <Example>{`await mail.enqueue('welcome', { to: 'ada@example.org' }, { key: 'ada', tx });`}</Example>
                </>
              ) : (
                <>
                  Words are whole words; quote a phrase.{' '}
                  <button type="button" class="link" onClick={() => filter({ q: undefined, queue: undefined })}>
                    Clear the filters
                  </button>
                </>
              )}
            </Empty>
          ) : (
            <>
              <Table
                caption="Jobs"
                rows={jobs}
                keyOf={({ id }) => id}
                columns={can('job:bulk') ? [picked.column, ...chosen(all, USUAL)] : chosen(all, USUAL)}
              />
              <div class="bulk-bar">
                <span class="muted">
                  {jobs.length} shown{list.after === null ? ', these are all' : ''}
                </span>
                <Behind by={page.data?.indexBehind ?? 0} />
                {list.after !== null && (
                  <button type="button" onClick={() => void list.more()}>
                    Show more
                  </button>
                )}
                <a class="small" download="jobs.json" href={urlOf(`api/v1/${asked}`)}>
                  As JSON
                </a>
                <button type="button" class="link small" onClick={() => download('jobs.csv', toCsv(jobs))}>
                  As CSV
                </button>
              </div>
            </>
          )
        }
      </Loaded>
    </Card>
  );
}

/** A search by words does not yet find jobs that were enqueued a moment ago. */
function Behind({ by }: { readonly by: number }): JSX.Element | null {
  if (by === 0) return null;
  return <Badge status="behind">{`the index of words is ${plural(by, 'job')} behind: some may be missing`}</Badge>;
}

/** The same search on the command line, by curl and in a program. */
function elsewhere(q: string, queue: string, asked: string): Record<string, string> {
  const [words, of] = [
    q === '' ? 'list' : `search ${shellWord(q)}`,
    queue === '' ? '' : ` --queue ${shellWord(queue)}`,
  ];
  const options = queue === '' ? '' : `, { queue: ${JSON.stringify(queue)} }`;
  return {
    CLI: `pawl job ${words}${of}`,
    curl: curlOf(asked),
    TypeScript: `await createQueueAdmin(engine).search(${JSON.stringify(q)}${options})`,
  };
}

interface StillList {
  readonly jobs: readonly Job[] | undefined;
  readonly after: string | null;
  readonly newer: number;
  readonly showNewer: () => void;
  readonly more: () => Promise<void>;
}

/** A list that does not move while it is read. The shown rows are kept up to date. New rows appear when the reader asks for them. */
function useStillList(asked: string, latest: List<Job> | undefined): StillList {
  const [shown, setShown] = useState<{ asked: string; jobs: readonly Job[]; after: string | null } | undefined>();
  useEffect(() => {
    if (latest === undefined) return;
    setShown((old) => {
      if (old === undefined || old.asked !== asked) return { asked, jobs: latest.items, after: latest.after };
      const fresh = new Map(latest.items.map((job) => [job.id, job]));
      return { ...old, jobs: old.jobs.map((job) => fresh.get(job.id) ?? job) };
    });
  }, [asked, latest]);
  const current = shown?.asked === asked ? shown : undefined;
  const known = new Set(current?.jobs.map(({ id }) => id));
  const newer =
    latest === undefined || current === undefined ? 0 : latest.items.filter(({ id }) => !known.has(id)).length;
  return {
    jobs: current?.jobs,
    after: current?.after ?? null,
    newer,
    showNewer: () => latest && setShown({ asked, jobs: latest.items, after: latest.after }),
    more: async () => {
      if (current === undefined || current.after === null) return;
      const { after } = current;
      await attempt(async () => {
        const next = await get<List<Job>>(`${asked}&after=${after}`);
        setShown({ asked, jobs: [...current.jobs, ...next.items], after: next.after });
        return undefined;
      });
    },
  };
}

function NewPill({ n, show }: { readonly n: number; readonly show: () => void }): JSX.Element {
  return (
    <button type="button" class="pill" onClick={show}>
      {n >= LIMIT ? `${LIMIT} or more` : n} new
    </button>
  );
}

function Filters({
  q,
  queue,
  hasQueue,
}: {
  readonly q: string;
  readonly queue: string;
  readonly hasQueue: boolean;
}): JSX.Element {
  const [typed, setTyped] = useState(q);
  useEffect(() => setTyped(q), [q]);
  const status = /(?:^|\s)status:(\S+)/.exec(q)?.[1];
  const withStatus = (wanted: string): string => {
    const rest = q.replace(/(^|\s)status:\S+/, '').trim();
    return wanted === status ? rest : `${rest} status:${wanted}`.trim();
  };
  return (
    <form
      class="filters"
      role="search"
      aria-label="Filter jobs"
      onSubmit={(event) => {
        event.preventDefault();
        filter({ q: typed.trim() });
      }}
    >
      <input
        type="search"
        aria-label="Search"
        value={typed}
        placeholder="words, key:ada, since:2h"
        list="qualifiers"
        autoComplete="off"
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <Qualifiers id="qualifiers" typed={typed} queue={queue} />
      {!hasQueue && <SelectQueue value={queue} />}
      <div class="tabs" role="group" aria-label="Status">
        {STATUSES.map((one) => (
          <button key={one} type="button" aria-pressed={status === one} onClick={() => filter({ q: withStatus(one) })}>
            {one}
          </button>
        ))}
      </div>
    </form>
  );
}

const COLUMNS: readonly Column<Job>[] = [
  {
    title: 'Job',
    of: ({ id }) => (
      <a class="mono" href={`jobs/${id}`}>
        {id}
      </a>
    ),
  },
  { title: 'Status', of: ({ status }) => <Badge status={status} /> },
  { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> },
  { title: 'Kind', of: ({ kind }) => <Name of={kind} /> },
  {
    title: 'Key',
    of: ({ key }) =>
      key === null ? (
        <None />
      ) : (
        <a href={jobsOfKey(key)}>
          <Name of={key} />
        </a>
      ),
  },
  { title: 'Priority', align: 'right', of: ({ priority }) => <Count of={priority} isExact /> },
  { title: 'Attempt', align: 'right', of: ({ attempt: n }) => <Count of={n} isExact /> },
  { title: 'Enqueued', of: ({ enqueuedAt }) => <Time at={enqueuedAt} /> },
  { title: 'Runs at', of: ({ runAt }) => <Time at={runAt} /> },
  { title: 'Claimed', of: ({ claimedAt }) => <Time at={claimedAt} /> },
  { title: 'Settled', of: ({ settledAt }) => <Time at={settledAt} /> },
  { title: 'Process', of: ({ processId }) => <Maybe of={processId && <code>{processId}</code>} /> },
  { title: 'Error', of: ({ error }) => <FirstLine of={error} /> },
];
/** The columns that are shown if the address names none. */
const USUAL = ['Job', 'Status', 'Queue', 'Kind', 'Key', 'Attempt', 'Enqueued', 'Settled', 'Error'];

function toCsv(jobs: readonly Job[]): string {
  const fields = [
    'id',
    'queue',
    'kind',
    'key',
    'status',
    'priority',
    'attempt',
    'enqueuedAt',
    'claimedAt',
    'settledAt',
    'error',
  ] as const;
  // A spreadsheet would run a cell that begins like a formula.
  const cell = (value: string | number | null): string =>
    `"${`${value ?? ''}`.replaceAll('"', '""').replace(/^([=+\-@\t\r])/, "'$1")}"`;
  return [fields.join(), ...jobs.map((job) => fields.map((field) => cell(job[field])).join())].join('\r\n');
}

export function download(name: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
