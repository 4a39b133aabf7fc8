import type { JSX } from 'preact';
import type { JobDetail } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { Name, QueueLink } from '../text/name.tsx';

type JobRow = JobDetail['parents'][number];

/** The jobs and batches that this job waits for, the jobs that wait for it, and its batches. */
export function JobFlow({ of }: { readonly of: JobDetail }): JSX.Element | null {
  const { parents, children, afterBatches, batches, afterError, afterCancel } = of;
  if (parents.length + children.length + afterBatches.length + batches.length === 0) return null;
  return (
    <Card title="Flow">
      <div class="body">
        {batches.length > 0 && (
          <p>
            Member of <Batches of={batches} />
          </p>
        )}
        {afterBatches.length > 0 && (
          <p>
            After <Batches of={afterBatches} />
          </p>
        )}
        {afterError !== null && (
          <p class="muted">
            If one of those ended in error: <code>{afterError}</code>; if one was cancelled: <code>{afterCancel}</code>.
          </p>
        )}
      </div>
      {parents.length > 0 && <Jobs caption="It comes after" of={parents} />}
      {children.length > 0 && <Jobs caption="These wait for it" of={children} />}
    </Card>
  );
}

function Batches({ of }: { readonly of: readonly string[] }): JSX.Element {
  return (
    <>
      {of.map((id) => (
        <a key={id} href={`batches/${id}`}>
          batch {id}{' '}
        </a>
      ))}
    </>
  );
}

function Jobs({ caption, of }: { readonly caption: string; readonly of: readonly JobRow[] }): JSX.Element {
  return (
    <Table
      caption={caption}
      rows={of}
      keyOf={(one) => one.id}
      columns={[
        { title: caption, of: (one) => <a href={`jobs/${one.id}`}>{one.id}</a> },
        { title: 'Kind', of: ({ kind }) => <Name of={kind} /> },
        { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> },
        { title: 'Status', of: ({ status }) => <Badge status={status} /> },
      ]}
    />
  );
}
