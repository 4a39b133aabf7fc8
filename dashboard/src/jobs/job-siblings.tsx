import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { JobDetail, List } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../text/time.tsx';
import { Maybe } from '../text/words.tsx';

interface Sibling {
  readonly id: string;
  readonly kind: string;
  readonly status: string;
  readonly processId: string | null;
  readonly enqueuedAt: string;
}

/** Jobs of the same key: those of the same unit, and those before and after this job. */
export function Siblings({ id, of }: { readonly id: string; readonly of: JobDetail }): JSX.Element | null {
  const siblings = useResource<List<Sibling>>(`jobs/${id}/siblings`, 5000);
  const items = siblings.data?.items ?? [];
  if (items.length === 0) return null;
  const isOne = ({ processId }: Sibling): boolean => processId !== null && processId === of.processId;
  const unit = items.filter(isOne).length;
  return (
    <Card
      title={`Other jobs of key ${of.key}`}
      actions={unit > 0 && <Badge status="coalesced">{`${unit} ran as one with this`}</Badge>}
    >
      <Table
        caption="Jobs of the same key"
        rows={items}
        keyOf={(one) => one.id}
        columns={[
          { title: 'Job', of: (one) => <a href={`jobs/${one.id}`}>{one.id}</a> },
          { title: 'Kind', of: ({ kind }) => kind },
          { title: 'Status', of: ({ status }) => <Badge status={status} /> },
          { title: 'Enqueued', of: ({ enqueuedAt }) => <Time at={enqueuedAt} /> },
          {
            title: 'Unit',
            of: (one) => <Maybe of={isOne(one) ? <Badge status="coalesced">one with this</Badge> : null} />,
          },
        ]}
      />
    </Card>
  );
}
