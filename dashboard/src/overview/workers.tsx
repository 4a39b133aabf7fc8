import type { JSX } from 'preact';
import { Gauge } from '../charts/spark.tsx';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { Workers } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { plural } from '../text/format.ts';
import { QueueLink } from '../text/name.tsx';
import { Time } from '../text/time.tsx';

/** The processes that do the work. */
export function WorkersPage(): JSX.Element {
  const workers = useResource<Workers>('workers');
  return (
    <>
      <Head
        title="Workers"
        about="Processes that work, their queues and types, and their last heartbeats."
        actions={
          <CopyAs
            of={{
              SQL: 'select * from pawl.worker order by queue',
              curl: curlOf('workers'),
              TypeScript: 'await createQueueAdmin(engine).workers()',
            }}
          />
        }
      />
      <Card title="Of queues">
        <Loaded of={workers}>
          {({ queues }) =>
            queues.length === 0 ? (
              <Empty title="None is running">
                A process becomes a worker when it gives a queue handlers for its kinds:
                <Example>{`const worker = mail.work({ welcome: async ({ payload }) => send(payload) }, { concurrency: 20 });`}</Example>
              </Empty>
            ) : (
              <Table
                caption="Workers of queues"
                rows={queues}
                keyOf={({ id }) => id}
                columns={[
                  { title: 'Process', of: ({ host, pid }) => <strong>{`${host}:${pid}`}</strong> },
                  { title: 'State', of: ({ isLive }) => <Badge status={isLive ? 'live' : 'lost'} /> },
                  { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> },
                  { title: 'Holds jobs by', of: ({ hold }) => hold },
                  {
                    title: 'Slots in use',
                    of: ({ inProgress, concurrency, host, pid }) => (
                      <>
                        <Gauge part={inProgress} of={concurrency} label={`Slots of ${host}:${pid}`} />
                        <span class="small muted">
                          {inProgress} of {concurrency}
                        </span>
                      </>
                    ),
                  },
                  { title: 'Started', of: ({ startedAt }) => <Time at={startedAt} /> },
                  { title: 'Last heard', of: ({ beatAt }) => <Time at={beatAt} /> },
                  { title: 'Action', isAction: true, of: (row) => <Release of={row} /> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
      <Card title="Of actors">
        <Loaded of={workers}>
          {({ actors }) =>
            actors.length === 0 ? (
              <Empty title="None is running">
                A process becomes a worker when it runs its actors:
                <Example>{`const dispatcher = actors.run();`}</Example>
              </Empty>
            ) : (
              <Table
                caption="Workers of actors"
                rows={actors}
                keyOf={({ id }) => id}
                columns={[
                  { title: 'Process', of: ({ host, pid }) => <strong>{`${host}:${pid}`}</strong> },
                  { title: 'State', of: ({ isLive }) => <Badge status={isLive ? 'live' : 'lost'} /> },
                  { title: 'Types', of: ({ types }) => types.join(', ') },
                  { title: 'At once', align: 'right', of: ({ concurrency }) => concurrency },
                  { title: 'Started', of: ({ startedAt }) => <Time at={startedAt} /> },
                  { title: 'Last heard', of: ({ beatAt }) => <Time at={beatAt} /> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

/** The button for a worker that a person knows to be dead before its lease is over. */
function Release({
  of: { id, host, pid, inProgress },
}: {
  readonly of: Workers['queues'][number];
}): JSX.Element | null {
  if (!can('worker:release')) return null;
  const release = async (): Promise<void> => {
    const text = `Its ${plural(inProgress, 'job')} in progress ${inProgress === 1 ? 'is' : 'are'} tried again by other workers at once, and an attempt is charged. If the worker is alive, it gets a signal to end them.`;
    const answer = await confirm({
      title: `Release the jobs of ${host}:${pid}`,
      text,
      verb: 'Release them',
      isDanger: true,
    });
    if (answer === undefined) return;
    await attempt(
      async () => `${plural((await send<{ jobs: number }>('POST', `workers/${id}/release`)).jobs, 'job')} given back`,
    );
    refresh();
  };
  return (
    <button
      type="button"
      class="danger"
      aria-label={`Release the jobs of ${host}:${pid}`}
      onClick={() => void release()}
    >
      Release
    </button>
  );
}
