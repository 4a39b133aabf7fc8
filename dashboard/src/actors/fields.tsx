import type { JSX } from 'preact';
import type { ActorDetail } from '../data/types.ts';
import { Card, Empty } from '../parts/card.tsx';
import { Json } from '../text/json.tsx';
import { FieldChanges } from './field-changes.tsx';

/** The fields of an actor, and the changes that its turns made. */
export function Fields({ of }: { readonly of: ActorDetail }): JSX.Element {
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
        <FieldChanges of={of} />
      </div>
    </Card>
  );
}
