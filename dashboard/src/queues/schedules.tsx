import type { JSX } from 'preact';
import { can, send } from '../data/api.ts';
import { refresh } from '../data/live.ts';
import { useResource } from '../data/resource.ts';
import type { List, Schedule } from '../data/types.ts';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { confirm } from '../parts/dialog.tsx';
import { Table } from '../parts/table.tsx';
import { attempt } from '../parts/toast.tsx';
import { CopyAs, curlOf } from '../text/copy.tsx';
import { cronWords, duration } from '../text/format.ts';
import { Name, QueueLink } from '../text/name.tsx';
import { Time } from '../text/time.tsx';
import { Maybe } from '../text/words.tsx';
import { exact } from '../text/zone.ts';
import { ScheduleRuns } from './schedule-runs.tsx';

/** The schedules, which enqueue jobs again and again. */
export function SchedulesPage(): JSX.Element {
  const schedules = useResource<List<Schedule>>('schedules', 5000);
  return (
    <>
      <Head
        title="Schedules"
        about="Jobs that are enqueued at the ticks of a pattern, each tick once."
        actions={
          <CopyAs
            of={{
              CLI: 'pawl schedule list',
              curl: curlOf('schedules'),
              TypeScript: 'await createQueueAdmin(engine).schedules()',
            }}
          />
        }
      />
      <Card title="All schedules">
        <Loaded of={schedules}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty title="There is none">
                A program declares its schedules at every start:
                <Example>{`await reports.schedule('every-night', { cron: '30 3 * * *', timezone: 'Europe/Berlin', kind: 'daily' });`}</Example>
              </Empty>
            ) : (
              <Table
                caption="Schedules"
                rows={items}
                keyOf={({ queue, name }) => `${queue} ${name}`}
                columns={[
                  {
                    title: 'Schedule',
                    of: ({ name }) => (
                      <strong class="wrap">
                        <Name of={name} />
                      </strong>
                    ),
                  },
                  { title: 'Queue', of: ({ queue }) => <QueueLink name={queue} /> },
                  { title: 'Kind', of: ({ kind }) => <Name of={kind} /> },
                  {
                    title: 'When',
                    of: ({ cron, timezone }) => (
                      <>
                        {cronWords(cron)}
                        <br />
                        <span class="small muted">
                          <code>{cron}</code> in {timezone}
                        </span>
                      </>
                    ),
                  },
                  {
                    title: 'Next',
                    of: ({ next, pausedAt }) => (
                      <>
                        {pausedAt === null ? <Time at={next[0]} /> : <span class="muted">paused</span>}
                        {next.length > 0 && (
                          <details>
                            <summary>next {next.length}</summary>
                            <ol class="small">
                              {next.map((at) => (
                                <li key={at}>{exact(at)}</li>
                              ))}
                            </ol>
                          </details>
                        )}
                      </>
                    ),
                  },
                  { title: 'Last', of: (row) => <ScheduleRuns of={row} /> },
                  {
                    title: 'Missed ticks',
                    of: ({ missed }) =>
                      ({ skip: 'forgotten', last: 'one for all', all: 'one for each' })[missed] ?? missed,
                  },
                  {
                    title: 'Overlap',
                    of: ({ overlap }) => (overlap === 'skip' ? 'none while one is outstanding' : 'queued'),
                  },
                  {
                    title: 'Jitter',
                    of: ({ jitterMs }) => <Maybe of={jitterMs === null ? null : `up to ${duration(jitterMs)}`} />,
                  },
                  { title: 'Group', of: ({ group }) => <Maybe of={group && <Name of={group} />} /> },
                  { title: 'Action', isAction: true, of: (row) => <Actions of={row} /> },
                ]}
              />
            )
          }
        </Loaded>
      </Card>
    </>
  );
}

function Actions({ of: { queue, name, pausedAt } }: { readonly of: Schedule }): JSX.Element {
  const at = `schedules/${encodeURIComponent(queue)}/${encodeURIComponent(name)}`;
  const run = async (): Promise<void> => {
    await attempt(async () => `job ${(await send<{ id: string }>('POST', `${at}/run`)).id} is enqueued`);
    refresh();
  };
  const verb = pausedAt === null ? 'pause' : 'resume';
  const turn = async (): Promise<void> => {
    await attempt(async () => (await send<{ done: string }>('POST', `${at}/${verb}`)).done);
    refresh();
  };
  const end = async (): Promise<void> => {
    const answer = await confirm({
      title: `End schedule ${name}`,
      text: 'The jobs that it has enqueued stay. If a program declares the schedule, its next start creates it again.',
      verb: 'End it',
      isDanger: true,
      typed: name,
    });
    if (answer === undefined) return;
    await attempt(async () => (await send<{ done: string }>('DELETE', at)).done);
    refresh();
  };
  return (
    <div class="actions">
      {can('job:enqueue') && (
        <button type="button" aria-label={`Run now: ${name}`} onClick={() => void run()}>
          Run now
        </button>
      )}
      {can('schedule:pause') && (
        <button
          type="button"
          aria-label={`${verb === 'pause' ? 'Pause' : 'Resume'} ${name}`}
          onClick={() => void turn()}
        >
          {verb === 'pause' ? 'Pause' : 'Resume'}
        </button>
      )}
      {can('schedule:write') && (
        <button type="button" class="danger" aria-label={`End ${name}`} onClick={() => void end()}>
          End
        </button>
      )}
    </div>
  );
}
