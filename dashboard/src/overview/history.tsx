import type { JSX } from 'preact';
import type { HistoryEvent } from '../data/types.ts';
import { download } from '../jobs/jobs.tsx';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { Icon, type IconName } from '../parts/icon.tsx';
import { ShowMore, useLongList } from '../parts/more.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { filter, query } from '../router.ts';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { LockLink } from '../text/name.tsx';
import { FirstLine, Maybe } from '../text/words.tsx';
import { clock, fromField, precise, toField, zoneName } from '../text/zone.ts';

const PARTS: readonly (readonly [string, string, IconName])[] = [
  ['', 'Everything', 'history'],
  ['job', 'Jobs', 'job'],
  ['lock', 'Locks', 'lock'],
  ['actor', 'Actors', 'actor'],
  ['page', 'Pages', 'bell'],
  ['audit', 'People', 'admin'],
];
/** How long before and after a moment its events are listed. */
const AROUND_MS = 30_000;
const RANGE = [
  ['since', 'From'],
  ['until', 'To'],
] as const;

/** One log of all events, or of the events around one moment. */
export function HistoryPage(): JSX.Element {
  const given = query.value;
  const [part, of, q, around] = ['part', 'of', 'q', 'around'].map((name) => given.get(name) ?? '');
  const [since, until] = [given.get('since') ?? '', given.get('until') ?? ''];
  const moment = around === undefined || Number.isNaN(Date.parse(around)) ? undefined : Date.parse(around);
  const search = new URLSearchParams({
    ...(part ? { part } : {}),
    ...(of ? { of } : {}),
    ...(q ? { q } : {}),
    ...(since === '' ? {} : { since }),
    ...(until === '' ? {} : { until }),
    ...(moment === undefined ? {} : { since: iso(moment - AROUND_MS), until: iso(moment + AROUND_MS) }),
  });
  const asked = `history?${search}`;
  const { page, rows, next } = useLongList<HistoryEvent>(asked, 3000);
  return (
    <>
      <Head
        title="History"
        about="Jobs, locks, actors, pages and people on one axis."
        actions={<CopyAs of={{ curl: curlOf(asked) }} />}
      />
      <Card
        title={moment === undefined ? 'What happened' : `Around ${clock(moment)}`}
        actions={
          <button type="button" class="link" onClick={() => download('history.json', JSON.stringify(rows, null, 2))}>
            As JSON
          </button>
        }
      >
        <div class="body filters">
          <div class="tabs" role="group" aria-label="Part">
            {PARTS.map(([value, title, icon]) => (
              <button key={value} type="button" aria-pressed={part === value} onClick={() => filter({ part: value })}>
                <Icon name={icon} size={14} />
                {title}
              </button>
            ))}
          </div>
          <input
            type="search"
            aria-label="Search the history"
            placeholder="an id, or a part of an error or name"
            value={q}
            onChange={(event) => filter({ q: event.currentTarget.value })}
          />
          {RANGE.map(([name, title]) => (
            <label key={name} class="in-line">
              {title}
              <input
                type="datetime-local"
                step="1"
                value={toFieldOr(given.get(name))}
                onChange={(event) => filter({ [name]: fromField(event.currentTarget.value), around: undefined })}
              />
            </label>
          ))}
          {of && (
            <button type="button" onClick={() => filter({ of: undefined })}>
              {of} ×
            </button>
          )}
          {moment !== undefined && (
            <button type="button" onClick={() => filter({ around: undefined })}>
              ± 30 s around {clock(moment)} ×
            </button>
          )}
        </div>
        <Loaded of={page}>
          {() =>
            rows.length === 0 ? (
              <Empty title="Nothing of that kind happened">
                Each transition of a job, lock or actor is listed here for as long as its history is kept.
              </Empty>
            ) : (
              <>
                <Table
                  caption="Events, newest first"
                  rows={rows}
                  keyOf={({ at, part: of, event, id }) => `${at} ${of} ${event} ${id}`}
                  columns={columnsIn(zoneName())}
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

const columnsIn = (zone: string): readonly Column<HistoryEvent>[] => [
  {
    title: `When, ${zone}`,
    of: ({ at }) => (
      <button
        type="button"
        class="link mono"
        title={`${at}: what else happened then`}
        onClick={() => filter({ around: at })}
      >
        {precise(at)}
      </button>
    ),
  },
  {
    title: 'Part',
    of: ({ part }) => (
      <span class="part">
        <Icon name={PARTS.find(([name]) => name === part)?.[2] ?? 'history'} size={13} />
        {part}
      </span>
    ),
  },
  { title: 'Event', of: ({ event }) => <Badge status={event}>{event === 'to' ? 'moved' : event}</Badge> },
  { title: 'Of', of: (event) => <Subject of={event} /> },
  { title: 'Detail', of: ({ detail }) => <FirstLine of={detail} /> },
  {
    title: 'By',
    of: ({ process }) => <Maybe of={process !== null && /^\d+$/.test(process) ? `worker ${process}` : process} />,
  },
];

function Subject({ of: { part, subject, id, namespace } }: { readonly of: HistoryEvent }): JSX.Element {
  if (part === 'job') return <a href={`jobs/${id}`}>{`${subject} #${id}`}</a>;
  if (part === 'actor') return <a href={`actors/${id}`}>{`${subject} ${id}`}</a>;
  if (part === 'lock') return <LockLink of={{ namespace: namespace ?? '', name: subject }} />;
  return <span class="wrap">{subject}</span>;
}

/** Ignores a text that is no time, in an address that a person wrote. */
function toFieldOr(at: string | null): string {
  return at === null || Number.isNaN(Date.parse(at)) ? '' : toField(at);
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
