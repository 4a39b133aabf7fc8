import type { JSX } from 'preact';
import { Gauge } from '../charts/spark.tsx';
import { can, send } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Batch } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Facts } from '../parts/facts.tsx';
import { attempt } from '../parts/toast.tsx';
import { count } from '../text/format.ts';
import { QueueLink } from '../text/name.tsx';
import { Moment } from '../text/time.tsx';

/** The progress of one batch. */
export function BatchPage({ id }: { readonly id: string }): JSX.Element {
  const batch = useResource<Batch>(`batches/${id}`, 2000);
  const { data } = batch;
  const seal = async (): Promise<void> => {
    const text = 'No job can be added any more, and its callbacks are enqueued when the last one has ended.';
    if ((await confirm({ title: `Seal batch ${id}`, text, verb: 'Seal it' })) === undefined) return;
    await attempt(async () => {
      await send('POST', `batches/${id}/seal`);
      batch.reload();
      return `batch ${id} is sealed`;
    });
  };
  return (
    <>
      <Head
        title={`Batch ${id}`}
        about={data && <QueueLink name={data.queue} />}
        actions={
          data?.sealedAt === null &&
          can('job:enqueue') && (
            <button type="button" onClick={() => void seal()}>
              Seal
            </button>
          )
        }
      />
      <Loaded of={batch}>{(shown) => <About of={shown} />}</Loaded>
    </>
  );
}

function About({ of }: { readonly of: Batch }): JSX.Element {
  const { total, outstanding, complete, errors, cancelled, sealedAt, doneAt, problem } = of;
  const state = doneAt !== null ? 'complete' : sealedAt !== null ? 'in-progress' : 'new';
  return (
    <Card title="How far it is">
      <div class="body">
        <p>
          <Badge status={state}>{doneAt !== null ? 'done' : sealedAt !== null ? 'sealed' : 'open'}</Badge>{' '}
          <Gauge part={total - outstanding} of={total} label="Members that have ended" isPlain />
        </p>
        <Facts
          of={[
            ['Members', count(total, Infinity)],
            ['Outstanding', count(outstanding, Infinity)],
            ['Complete', count(complete, Infinity)],
            ['In error', count(errors, Infinity)],
            ['Cancelled', count(cancelled, Infinity)],
            ['Sealed', sealedAt && <Moment at={sealedAt} />],
            ['Done', doneAt && <Moment at={doneAt} />],
            ['Problem', problem],
          ]}
        />
      </div>
    </Card>
  );
}
