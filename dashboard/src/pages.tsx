import type { FunctionComponent, JSX } from 'preact';
import { JobPage } from './pages/job.tsx';
import { JobsPage } from './pages/jobs.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { QueuePage } from './pages/queue.tsx';
import { QueuesPage } from './pages/queues.tsx';
import { Empty, Head } from './parts/card.tsx';
import { lazy } from './parts/lazy.tsx';
import { Moved } from './parts/moved.tsx';
import { lockUrl, query, queueUrl } from './router.ts';

interface Numbered {
  readonly id: string;
}

/** Lists, and what there is one of. What is looked at first comes with the first page. */
const PLACES: ReadonlyMap<string, FunctionComponent> = new Map<string, FunctionComponent>([
  ['', OverviewPage],
  ['queues', QueuesPage],
  ['jobs', JobsPage],
  ['bulk', lazy(async () => (await import('./pages/bulk.tsx')).BulksPage)],
  ['errors', lazy(async () => (await import('./pages/errors.tsx')).ErrorsPage)],
  ['schedules', lazy(async () => (await import('./pages/schedules.tsx')).SchedulesPage)],
  ['locks', lazy(async () => (await import('./pages/locks.tsx')).LocksPage)],
  ['actors', lazy(async () => (await import('./pages/actors.tsx')).ActorsPage)],
  ['captures', lazy(async () => (await import('./pages/captures.tsx')).CapturesPage)],
  ['files', lazy(async () => (await import('./pages/files.tsx')).FilesPage)],
  ['history', lazy(async () => (await import('./pages/history.tsx')).HistoryPage)],
  ['pages', lazy(async () => (await import('./pages/pages.tsx')).PagesPage)],
  ['workers', lazy(async () => (await import('./pages/workers.tsx')).WorkersPage)],
  ['admin', lazy(async () => (await import('./pages/admin.tsx')).AdminPage)],
]);

/** Below `one`, with what it is in the query: names of theirs may be longer than a path. */
const ONES: ReadonlyMap<string, FunctionComponent> = new Map<string, FunctionComponent>([
  ['locks', lazy(async () => (await import('./pages/lock.tsx')).LockPage)],
  ['files', lazy(async () => (await import('./pages/file.tsx')).FilePage)],
]);

const NUMBERED: ReadonlyMap<string, FunctionComponent<Numbered>> = new Map<string, FunctionComponent<Numbered>>([
  ['jobs', JobPage],
  ['actors', lazy<Numbered>(async () => (await import('./pages/actor.tsx')).ActorPage)],
  ['bulk', lazy<Numbered>(async () => (await import('./pages/bulk.tsx')).BulkPage)],
]);

/** Addresses that are short enough for a line of a log, and written without a thought to slashes in names. */
const SHORT: ReadonlyMap<string, (name: string) => string> = new Map([
  ['j', (id) => `jobs/${encodeURIComponent(id)}`],
  ['a', (id) => `actors/${encodeURIComponent(id)}`],
  ['q', queueUrl],
  ['l', (name) => lockUrl({ namespace: query.value.get('namespace') ?? '', name })],
]);

/** The page of an address, by its parts; undefined where they cannot be read. */
export function pageOf(parts: readonly string[] | undefined): JSX.Element {
  if (parts === undefined) return <Nothing title="This address cannot be read: a % in it begins no character" />;
  const [place = '', ...names] = parts;
  const [name = '', ...more] = names;
  const short = name === '' ? undefined : SHORT.get(place);
  if (short !== undefined) return <Moved to={short(names.join('/'))} />;
  const Place = names.length === 0 ? PLACES.get(place) : name === 'one' ? ONES.get(place) : undefined;
  if (Place !== undefined && more.length === 0) return <Place />;
  if (place === 'queues' && name !== '' && more.length === 0) return <QueuePage key={name} name={name} />;
  const OfNumber = /^\d{1,19}$/.test(name) && more.length === 0 ? NUMBERED.get(place) : undefined;
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
