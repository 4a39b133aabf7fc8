import type { JSX } from 'preact';
import type { JobDetail, JobLock } from '../types.ts';
import { Badge } from './badge.tsx';
import { Card } from './card.tsx';
import { LockLink } from './name.tsx';
import { Table } from './table.tsx';
import { Time } from './time.tsx';

/** What its handler has locked, what it waits for, and what it had: within the hour for which the history of locks is kept. */
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
