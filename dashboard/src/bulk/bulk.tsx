import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useResource } from '../data/resource.ts';
import type { Bulk, BulkResult } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { Facts } from '../parts/facts.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../text/time.tsx';
import { Count, Maybe } from '../text/words.tsx';
import { BulkBadge, BulkProgress } from './bulk-bar.tsx';

/** The list of bulk actions. */
export function BulksPage(): JSX.Element {
  const { page, rows, next } = useLongList<Bulk>('bulk', 2000);
  return (
    <>
      <Head
        title="Bulk actions"
        about="Changes of all jobs that a search found. An action goes on after its page is closed and after its process ends. It is kept for 30 days."
      />
      <Card title="Newest first">
        <Loaded of={page}>
          {() =>
            rows.length === 0 ? (
              <Empty title="None yet">
                Search <a href="jobs?q=status%3Aerror">jobs</a>, and retry or cancel all of them.
              </Empty>
            ) : (
              <>
                <Table
                  caption="Bulk actions"
                  rows={rows}
                  keyOf={({ id }) => id}
                  columns={[
                    { title: 'Action', of: ({ id, action }) => <a href={`bulk/${id}`}>{`${action} ${id}`}</a> },
                    { title: 'Status', of: ({ status }) => <BulkBadge status={status} /> },
                    { title: 'Search', of: ({ query }) => <Search of={query} /> },
                    { title: 'Queue', of: ({ queue }) => <Maybe of={queue} /> },
                    { title: 'Who', of: ({ who }) => who },
                    { title: 'Begun', of: ({ startedAt }) => <Time at={startedAt} /> },
                    { title: 'Found', align: 'right', of: ({ found }) => <Count of={found} isExact /> },
                    { title: 'Done', align: 'right', of: ({ done }) => <Count of={done} isExact /> },
                    { title: 'Refused', align: 'right', of: ({ refused }) => <Count of={refused} isExact /> },
                  ]}
                />
                <ShowMore next={next} />
              </>
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

/** The search whose jobs the action changed. */
function Search({ of }: { readonly of: string }): JSX.Element {
  return of === '' ? <span class="muted">jobs that were selected</span> : <code class="wrap">{of}</code>;
}

/** One bulk action, with the outcome of each job. */
export function BulkPage({ id }: { readonly id: string }): JSX.Element {
  const bulk = useResource<Bulk>(`bulk/${id}`, 2000);
  return (
    <>
      <Head title={`Bulk action ${id}`} about={<a href="bulk">All bulk actions</a>} />
      <Card title="How far it is">
        <BulkProgress id={id} />
        <Loaded of={bulk}>
          {({ action, query, queue, who, reason, startedAt, endedAt }) => (
            <div class="body">
              <Facts
                of={[
                  ['Action', action],
                  ['Search', <Search of={query} />],
                  ['Queue', queue ?? 'all of them'],
                  ['Who', who],
                  ['Reason', <Maybe of={reason} />],
                  ['Begun', <Time at={startedAt} />],
                  ['Ended', <Time at={endedAt} />],
                ]}
              />
            </div>
          )}
        </Loaded>
      </Card>
      <Results id={id} />
    </>
  );
}

const OUTCOMES = ['done', 'refused'];

function Results({ id }: { readonly id: string }): JSX.Element {
  const [outcome, setOutcome] = useState('');
  const { page, rows, next } = useLongList<BulkResult>(
    `bulk/${id}/results?${new URLSearchParams({ limit: '100', ...(outcome === '' ? {} : { outcome }) })}`,
  );
  return (
    <Card
      title="What became of each"
      actions={
        <div class="tabs" role="group" aria-label="Outcome">
          {OUTCOMES.map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={one === outcome}
              onClick={() => setOutcome(one === outcome ? '' : one)}
            >
              {one}
            </button>
          ))}
        </div>
      }
    >
      <Loaded of={page}>
        {() =>
          rows.length === 0 ? (
            <Empty title="Nothing here" />
          ) : (
            <>
              <Table
                caption="Results"
                rows={rows}
                keyOf={({ job }) => job}
                columns={[
                  {
                    title: 'Job',
                    of: ({ job }) => (
                      <a class="mono" href={`jobs/${job}`}>
                        {job}
                      </a>
                    ),
                  },
                  { title: 'Outcome', of: (result) => <Badge status={result.outcome} /> },
                  { title: 'Detail', of: ({ detail }) => <span class="wrap">{detail}</span> },
                ]}
              />
              <ShowMore next={next} />
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
