import type { FunctionComponent, JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { JobPage } from './jobs/job.tsx';
import { JobsPage } from './jobs/jobs.tsx';
import { OverviewPage } from './overview/overview.tsx';
import { Empty, Head, Skeleton } from './parts/card.tsx';
import { lazy } from './parts/lazy.tsx';
import { QueuePage } from './queues/queue.tsx';
import { QueuesPage } from './queues/queues.tsx';
import { go, lockUrl, query, queueUrl } from './router.ts';

interface IdProps {
  readonly id: string;
}

/** Pages of lists, and pages that exist once. The pages that users open first are part of the first page's code. */
const PLACES: ReadonlyMap<string, FunctionComponent> = new Map<string, FunctionComponent>([
  ['', OverviewPage],
  ['queues', QueuesPage],
  ['jobs', JobsPage],
  ['bulk', lazy(async () => (await import('./bulk/bulk.tsx')).BulksPage)],
  ['errors', lazy(async () => (await import('./jobs/errors.tsx')).ErrorsPage)],
  ['schedules', lazy(async () => (await import('./queues/schedules.tsx')).SchedulesPage)],
  ['topics', lazy(async () => (await import('./queues/topics.tsx')).TopicsPage)],
  ['locks', lazy(async () => (await import('./locks/locks.tsx')).LocksPage)],
  ['actors', lazy(async () => (await import('./actors/actors.tsx')).ActorsPage)],
  ['captures', lazy(async () => (await import('./captures/captures.tsx')).CapturesPage)],
  ['files', lazy(async () => (await import('./files/files.tsx')).FilesPage)],
  ['history', lazy(async () => (await import('./overview/history.tsx')).HistoryPage)],
  ['pages', lazy(async () => (await import('./actors/pages.tsx')).PagesPage)],
  ['workers', lazy(async () => (await import('./overview/workers.tsx')).WorkersPage)],
  ['admin', lazy(async () => (await import('./overview/admin.tsx')).AdminPage)],
]);

/** Pages below `one`, whose subject is in the query, because such names may be longer than a path. */
const ONES: ReadonlyMap<string, FunctionComponent> = new Map<string, FunctionComponent>([
  ['locks', lazy(async () => (await import('./locks/lock.tsx')).LockPage)],
  ['files', lazy(async () => (await import('./files/file.tsx')).FilePage)],
]);

const NUMBERED: ReadonlyMap<string, FunctionComponent<IdProps>> = new Map<string, FunctionComponent<IdProps>>([
  ['jobs', JobPage],
  ['actors', lazy<IdProps>(async () => (await import('./actors/actor.tsx')).ActorPage)],
  ['batches', lazy<IdProps>(async () => (await import('./queues/batch.tsx')).BatchPage)],
  ['bulk', lazy<IdProps>(async () => (await import('./bulk/bulk.tsx')).BulkPage)],
]);

/** Addresses that are short enough for a line of a log. Slashes in names need no encoding. */
const SHORT: ReadonlyMap<string, (name: string) => string> = new Map([
  ['j', (id) => `jobs/${encodeURIComponent(id)}`],
  ['a', (id) => `actors/${encodeURIComponent(id)}`],
  ['q', queueUrl],
  ['l', (name) => lockUrl({ namespace: query.value.get('namespace') ?? '', name })],
]);

/** The page of an address. @param parts  of its path; undefined if one cannot be decoded */
export function pageOf(parts: readonly string[] | undefined): JSX.Element {
  if (parts === undefined) return <Nothing title="This address cannot be read: a % in it begins no character" />;
  const [place = '', ...names] = parts;
  const [name = '', ...more] = names;
  const short = name === '' ? undefined : SHORT.get(place);
  if (short !== undefined) return <Moved to={short(names.join('/'))} />;
  const Place = names.length === 0 ? PLACES.get(place) : name === 'one' ? ONES.get(place) : undefined;
  if (Place !== undefined && more.length === 0) return <Place />;
  if (place === 'queues' && name !== '' && more.length === 0) return <QueuePage key={name} name={name} />;
  // On DynamoDB the id of a job or a batch begins with the name of its queue.
  const isId = /^\d{1,19}$/.test(name) || ((place === 'jobs' || place === 'batches') && /:\d{1,19}$/.test(name));
  const OfNumber = isId && more.length === 0 ? NUMBERED.get(place) : undefined;
  if (OfNumber !== undefined) return <OfNumber key={name} id={name} />;
  return <Nothing title="There is no such page" />;
}

function Nothing({ title }: { readonly title: string }): JSX.Element {
  return (
    <>
      <Head title="Nothing here" />
      <Empty title={title}>
        <a href="./">Go to the overview</a>
      </Empty>
    </>
  );
}

/** A short address. Its page replaces it in the history, so that "back" does not lead here again. */
function Moved({ to }: { readonly to: string }): JSX.Element {
  useEffect(() => go(to, { replace: true }), [to]);
  return <Skeleton />;
}
