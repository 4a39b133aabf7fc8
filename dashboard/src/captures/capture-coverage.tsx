import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { get } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Capture, CaptureDetail, CapturePlan } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { CopyButton } from '../text/copy.tsx';
import { CaptureActions } from './capture-actions.tsx';

/** Whether the triggers are as declared, the SQL that would repair them, and the actions on the capture. */
export function Coverage({ of }: { readonly of: Capture }): JSX.Element {
  const { entity } = of;
  const detail = useResource<CaptureDetail>(`captures/${encodeURIComponent(entity)}`, 10_000);
  const isWhole = detail.data?.differences.length === 0;
  return (
    <Card
      title={`Coverage of ${entity}`}
      actions={
        <>
          {detail.data && (
            <Badge status={isWhole ? 'current' : 'failed'}>
              {isWhole ? 'no change can go unnoticed' : 'not as it was installed'}
            </Badge>
          )}
          {detail.data && <CaptureActions of={detail.data} reload={detail.reload} />}
        </>
      }
    >
      <Loaded of={detail}>
        {({ differences, tables }) => (
          <>
            {differences.length === 0 ? (
              <p class="body muted">
                Triggers stand on <code>{tables.join(', ')}</code>.
              </p>
            ) : (
              <Table
                caption="Differences"
                rows={differences}
                keyOf={({ kind, object, problem }) => `${kind} ${object} ${problem}`}
                columns={[
                  { title: 'What', of: ({ kind }) => kind },
                  { title: 'Where', of: ({ object }) => <code>{object}</code> },
                  { title: 'Problem', of: ({ problem }) => problem },
                ]}
              />
            )}
            {differences.length > 0 && <Mending entity={entity} />}
          </>
        )}
      </Loaded>
    </Card>
  );
}

/** The SQL that would repair the triggers. A person with the rights can read and run it. */
function Mending({ entity }: { readonly entity: string }): JSX.Element {
  const [plan, setPlan] = useState<CapturePlan | undefined>();
  const ask = (): Promise<boolean> =>
    attempt(async () => {
      setPlan(await get<CapturePlan>(`captures/${encodeURIComponent(entity)}/plan`));
      return undefined;
    });
  if (plan === undefined)
    return (
      <div class="bulk-bar">
        <button type="button" onClick={() => void ask()}>
          What would mend it
        </button>
      </div>
    );
  return (
    <div class="body">
      <p class="muted row">
        <span class="grow">
          As {plan.by === 'declared' ? 'the program declares it' : 'it was installed'}; the command line does the same:{' '}
          <code>pawl capture apply</code>.
        </span>
        <CopyButton text={async () => plan.sql} what="SQL" />
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard */}
      <pre class="json" tabIndex={0} role="group" aria-label="SQL">
        {plan.sql}
      </pre>
    </div>
  );
}
