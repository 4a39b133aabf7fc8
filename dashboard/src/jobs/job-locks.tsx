import type { JSX } from 'preact';
import type { JobDetail, JobLock } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { LockLink } from '../text/name.tsx';
import { Time } from '../text/time.tsx';

/** The locks that the job's handler holds, waits for, or held. Locks of the past are kept in the history for an hour. */
export function JobLocks({ of: { locks } }: { readonly of: JobDetail }): JSX.Element | null {
  if (locks.length === 0) return null;
  return (
    <Card title="Locks" actions={<span class="muted small">taken by its handler</span>}>
      <Table
        caption="Locks that its handler holds, waits for, or held"
        rows={locks}
        keyOf={({ namespace, name, token, since }) => `${namespace} ${name} ${token ?? since}`}
        columns={[
          { title: 'Lock', of: (lock) => <LockLink of={lock} /> },
          { title: 'State', of: (lock) => <Badge status={statusOf(lock)}>{lock.outcome ?? lock.state}</Badge> },
          { title: 'Mode', of: ({ mode }) => <Badge status={mode} /> },
          { title: 'Since', of: ({ since }) => <Time at={since} /> },
          { title: 'Until', of: ({ endedAt }) => <Time at={endedAt} /> },
          { title: 'Token', align: 'right', of: ({ token }) => <code>{token ?? '–'}</code> },
        ]}
      />
    </Card>
  );
}

function statusOf({ state, outcome }: JobLock): string {
  return outcome ?? (state === 'held' ? 'granted' : 'new');
}
