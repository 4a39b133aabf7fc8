import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Heat } from '../charts/heat.tsx';
import { Kinds } from '../charts/kinds.tsx';
import { SeriesCharts } from '../charts/series.tsx';
import { can, has } from '../data/api.ts';
import { useResource } from '../data/resource.ts';
import type { Queue, Stats } from '../data/types.ts';
import { AddJob } from '../jobs/add-job.tsx';
import { JobTable } from '../jobs/jobs.tsx';
import { Badge } from '../parts/badge.tsx';
import { Card, Empty, Head, Loaded } from '../parts/card.tsx';
import { type Reason, Reasons } from '../parts/facts.tsx';
import { Icon } from '../parts/icon.tsx';
import { OutLinks } from '../parts/out-links.tsx';
import { Tile } from '../parts/tile.tsx';
import { filter, query, queueUrl } from '../router.ts';
import { CopyAs, curlOf, shellWord, sqlText } from '../text/copy.tsx';
import { count, duration, rough, short } from '../text/format.ts';
import { PauseQueue } from './pause-queue.tsx';
import { RemoveQueue } from './remove-queue.tsx';

interface Diagnosis {
  readonly isMoving: boolean;
  readonly findings: readonly {
    readonly code: string;
    readonly text: string;
    readonly level: 'ok' | 'warning' | 'error';
    readonly advice?: string;
  }[];
}

/** One queue: its figures, the reasons why its jobs wait, and its jobs. */
export function QueuePage({ name }: { readonly name: string }): JSX.Element {
  const at = queueUrl(name);
  const queue = useResource<Queue>(at);
  const diagnosis = useResource<Diagnosis>(`${at}/diagnosis`);
  const like = query.value.get('add') ?? undefined;
  const [isAdding, setAdding] = useState(like !== undefined);
  if (queue.error?.code === 'not_found') return <Missing name={name} text={queue.error.message} />;
  const paused = queue.data?.pausedAt !== null && queue.data !== undefined;
  return (
    <>
      <Head
        title={name}
        about={
          queue.data &&
          `Kinds: ${queue.data.kinds.join(', ')}. ${queue.data.attempts} attempts, ${queue.data.shards} ${queue.data.shards === 1 ? 'shard' : 'shards'}, history ${queue.data.historyMs === null ? 'for ever' : `for ${duration(queue.data.historyMs)}`}.`
        }
        actions={
          <>
            <CopyAs
              of={{
                CLI: `pawl queue stats ${shellWord(name)}`,
                SQL: `select * from pawl.queue where name = ${sqlText(name)}`,
                curl: curlOf(at),
                TypeScript: `createQueueAdmin(engine).stats(${JSON.stringify(name)})`,
              }}
            />
            <OutLinks of="queue" known={{ name }} />
            {can('job:enqueue') && (
              <button type="button" onClick={() => setAdding(true)}>
                <Icon name="plus" size={14} />
                Add a job
              </button>
            )}
            {queue.data !== undefined && can('queue:pause') && <PauseQueue name={name} isPaused={paused} />}
            {queue.data !== undefined && can('queue:remove') && <RemoveQueue name={name} />}
          </>
        }
      />
      <Loaded of={queue}>{({ stats }) => <Tiles name={name} stats={stats} />}</Loaded>
      <Card
        title="Why is this queue (not) moving?"
        actions={
          diagnosis.data && (
            <Badge status={diagnosis.data.isMoving ? 'moving' : 'held'}>
              {diagnosis.data.isMoving ? 'moving' : 'not moving'}
            </Badge>
          )
        }
      >
        <div class="body">
          <Loaded of={diagnosis}>{({ findings }) => <Reasons of={findings.map(reasonOf)} />}</Loaded>
        </div>
      </Card>
      {has('charts') && (
        <>
          <SeriesCharts path={`${at}/series`} queue={name} kinds={queue.data?.kinds ?? []} />
          <Kinds queue={name} />
          <Heat path={`${at}/series`} />
        </>
      )}
      <JobTable queue={name} />
      {isAdding && queue.data !== undefined && (
        <AddJob
          queue={queue.data}
          like={like}
          onClose={() => {
            setAdding(false);
            filter({ add: undefined });
          }}
        />
      )}
    </>
  );
}

const LEVELS = { ok: ['check', 'good'], warning: ['warn', 'warn'], error: ['cross', 'bad'] } as const;

function reasonOf({ code, text, level, advice }: Diagnosis['findings'][number]): Reason {
  // The reason why a single job waits is neither good nor bad for its queue.
  const [icon, tone] = code === 'newest' ? (['info', 'idle'] as const) : LEVELS[level];
  return { text, icon, tone, more: advice !== undefined && <span class="muted">: {advice}</span> };
}

function Missing({ name, text }: { readonly name: string; readonly text: string }): JSX.Element {
  return (
    <>
      <Head title={name} />
      <section class="card">
        <Empty title="There is no such queue">
          {text}. <a href="queues">See all queues</a>
        </Empty>
      </section>
    </>
  );
}

function Tiles({ name, stats }: { readonly name: string; readonly stats: Stats }): JSX.Element {
  const jobs = (query: string): string => `jobs?queue=${encodeURIComponent(name)}&q=${encodeURIComponent(query)}`;
  return (
    <div class="tiles">
      <Tile icon="circle" label="Ready" value={count(stats.ready)} href={jobs('status:new')} tone="wait" />
      <Tile
        icon="half"
        label={`In progress, of ${stats.slots}`}
        value={count(stats.inProgress)}
        href={jobs('status:in-progress')}
        tone="busy"
      />
      <Tile icon="clock" label="Later" value={count(stats.delayed)} href={jobs('status:new')} tone="idle" />
      <Tile icon="stack" label="Behind a key" value={count(stats.parked)} href={jobs('status:new')} tone="idle" />
      <Tile
        icon="cross"
        label="In error"
        value={count(stats.error)}
        href={jobs('status:error')}
        tone="bad"
        isStrong={stats.error > 0}
      />
      <Tile
        icon="clock"
        label="Oldest ready"
        value={rough(stats.oldestReadyMs)}
        href={jobs('status:new')}
        tone="warn"
        isStrong={(stats.oldestReadyMs ?? 0) > 60_000}
      />
      <Tile
        icon="check"
        label="Done a minute"
        value={short(stats.completePerMinute)}
        href={`history?part=job&of=${encodeURIComponent(name)}`}
        tone="good"
      />
    </div>
  );
}
