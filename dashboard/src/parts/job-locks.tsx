import type { JSX } from 'preact';
import { plural } from '../format.ts';
import { lockUrl } from '../router.ts';
import type { JobDetail } from '../types.ts';
import { Badge } from './badge.tsx';
import { Card } from './card.tsx';
import { Table } from './table.tsx';
import { Time } from './time.tsx';

/**
 * What the process of its worker holds, or held while the last attempt ran. Locks know their process, not the job they were taken
 * for, and the card says how sure that makes it.
 */
export function JobLocks({ of: { locks, status } }: { readonly of: JobDetail }): JSX.Element | null {
  if (locks === null || locks.items.length === 0) return null;
  const { host, pid, running, items } = locks;
  const isAlone = status === 'in-progress' && running === 1;
  return (
    <Card
      title="Locks while it ran"
      actions={
        <span class="muted small">
          of its process, {host}:{pid}
          {running > 1 ? `, which runs ${plural(running, 'job')} now` : ''}
        </span>
      }
    >
      <Table
        caption="Locks of its process while it ran"
        rows={items}
        keyOf={({ namespace, name, token }) => `${namespace} ${name} ${token}`}
        columns={[
          { title: 'Lock', of: (lock) => <a href={lockUrl(lock)}>{lock.name}</a> },
          { title: 'Mode', of: ({ mode }) => <Badge status={mode} /> },
          { title: 'Since', of: ({ since }) => <Time at={since} /> },
          {
            title: 'Until',
            of: ({ endedAt }) => (endedAt === null ? <Badge status="granted">held</Badge> : <Time at={endedAt} />),
          },
          {
            title: 'Whose',
            of: ({ sinceJobBegan }) => {
              if (!sinceJobBegan) return 'taken before this job began';
              return isAlone ? 'this job’s: it runs alone there' : 'of this job, or of another one there';
            },
          },
          { title: 'Token', align: 'right', of: ({ token }) => <code>{token}</code> },
        ]}
      />
    </Card>
  );
}
