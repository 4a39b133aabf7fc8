import type { JSX } from 'preact';
import { Gauge } from '../charts/spark.tsx';
import { useResource } from '../data/resource.ts';
import type { Workers } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { CopyAs, curlOf } from '../text/copy.tsx';
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
                A process becomes one by handlers for the kinds of a queue:
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
                A process becomes one by running its actors:
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
