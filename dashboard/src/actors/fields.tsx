import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type Difference, differences } from '../data/diff.ts';
import type { ActorDetail } from '../data/types.ts';
import { Card, Empty } from '../parts/card.tsx';
import { Json } from '../text/json.tsx';
import { Time } from '../text/time.tsx';

interface FieldHistory {
  readonly id: string;
  readonly epoch: number;
  readonly fields: unknown;
  readonly changes: readonly Change[];
}

interface Change {
  /** The turn, or turns, that made it: between two looks there may be several. */
  readonly from: number;
  readonly to: number;
  readonly at: string;
  readonly of: readonly Difference[];
}

const KEPT = 20;

/** The fields of an actor, and what its turns have changed in them since the page was opened: the database keeps the newest alone. */
export function Fields({ of }: { readonly of: ActorDetail }): JSX.Element {
  const seen = useChanges(of);
  if (of.payloadHidden)
    return (
      <Card title="Fields">
        <Empty title="Hidden">This needs the permission payload:read.</Empty>
      </Card>
    );
  return (
    <Card title="Fields" actions={<span class="muted small">after turn {of.epoch}</span>}>
      <div class="body">
        <Json text={JSON.stringify(of.fields ?? null)} label="Fields" />
        <h3 class="over">What its turns change</h3>
        {seen.length === 0 ? (
          <p class="small muted">Nothing since this page was opened; a change of a turn shows here as it is made.</p>
        ) : (
          <ul class="changes" aria-label="What its turns change, newest first">
            {seen.map((change) => (
              <ChangeOf key={change.to} of={change} />
            ))}
          </ul>
        )}
      </div>
    </Card>
  );
}

function useChanges({ id, epoch, fields }: ActorDetail): readonly Change[] {
  const [seen, setSeen] = useState<FieldHistory>({ id, epoch, fields, changes: [] });
  useEffect(() => {
    setSeen((old) => {
      if (old.id !== id) return { id, epoch, fields, changes: [] };
      const of = differences(old.fields, fields);
      if (of.length === 0) return { ...old, epoch, fields };
      const change = { from: Math.min(old.epoch + 1, epoch), to: epoch, at: new Date().toISOString(), of };
      return { id, epoch, fields, changes: [change, ...old.changes].slice(0, KEPT) };
    });
  }, [id, epoch, fields]);
  return seen.changes;
}

function ChangeOf({ of: { from, to, at, of } }: { readonly of: Change }): JSX.Element {
  return (
    <li>
      <span class="muted small">
        {from === to ? `Turn ${to}` : `Turns ${from} to ${to}`}, <Time at={at} />
      </span>
      <dl class="facts">
        {of.map(({ path, before, after }) => (
          <>
            <dt>
              <code>{path || 'all'}</code>
            </dt>
            <dd>
              {before !== undefined && <del>{JSON.stringify(before)}</del>}{' '}
              {after !== undefined && <ins>{JSON.stringify(after)}</ins>}
            </dd>
          </>
        ))}
      </dl>
    </li>
  );
}
