import type { JSX } from 'preact';
import { ActorPage } from './pages/actor.tsx';
import { ActorsPage } from './pages/actors.tsx';
import { AdminPage } from './pages/admin.tsx';
import { BulkPage, BulksPage } from './pages/bulk.tsx';
import { CapturesPage } from './pages/captures.tsx';
import { FilePage } from './pages/file.tsx';
import { FilesPage } from './pages/files.tsx';
import { HistoryPage } from './pages/history.tsx';
import { JobPage } from './pages/job.tsx';
import { JobsPage } from './pages/jobs.tsx';
import { LockPage } from './pages/lock.tsx';
import { LocksPage } from './pages/locks.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { PagesPage } from './pages/pages.tsx';
import { QueuePage } from './pages/queue.tsx';
import { QueuesPage } from './pages/queues.tsx';
import { SchedulesPage } from './pages/schedules.tsx';
import { WorkersPage } from './pages/workers.tsx';
import { Empty, Head } from './parts/card.tsx';

const PAGES: Readonly<Record<string, () => JSX.Element>> = {
  '': OverviewPage,
  queues: QueuesPage,
  jobs: JobsPage,
  bulk: BulksPage,
  schedules: SchedulesPage,
  locks: LocksPage,
  'locks/one': LockPage,
  actors: ActorsPage,
  captures: CapturesPage,
  files: FilesPage,
  'files/one': FilePage,
  history: HistoryPage,
  pages: PagesPage,
  workers: WorkersPage,
  admin: AdminPage,
};

/** The page of an address. */
export function pageOf(path: string): JSX.Element {
  const Page = PAGES[path];
  if (Page !== undefined) return <Page />;
  const [place, ...rest] = path.split('/');
  const name = decodeURIComponent(rest.join('/'));
  if (place === 'queues' && name !== '') return <QueuePage name={name} />;
  if (place === 'jobs' && /^\d+$/.test(name)) return <JobPage id={name} />;
  if (place === 'bulk' && /^\d+$/.test(name)) return <BulkPage id={name} />;
  if (place === 'actors' && /^\d+$/.test(name)) return <ActorPage id={name} />;
  return (
    <>
      <Head title="Nothing here" />
      <Empty title="There is no such page">
        <a href="./">Go to the overview</a>
      </Empty>
    </>
  );
}
