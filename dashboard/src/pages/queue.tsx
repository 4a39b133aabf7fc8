import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { can, sendText } from '../api.ts';
import { count, duration, short } from '../format.ts';
import { refresh } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Head, Loaded } from '../parts/card.tsx';
import { CopyAs } from '../parts/copy.tsx';
import { Modal } from '../parts/dialog.tsx';
import { Icon } from '../parts/icon.tsx';
import { PauseQueue } from '../parts/pause-queue.tsx';
import { SeriesCharts } from '../parts/series.tsx';
import { Tile } from '../parts/tile.tsx';
import { attempt } from '../parts/toast.tsx';
import { useResource } from '../resource.ts';
import { urlOf } from '../router.ts';
import type { Queue, Stats } from '../types.ts';
import { JobList } from './jobs.tsx';

interface Diagnosis {
  readonly isMoving: boolean;
  readonly findings: readonly {
    readonly code: string;
    readonly text: string;
    readonly level: string;
    readonly advice?: string;
  }[];
}

/** One queue: how it stands, why it does not move, what is in it. */
export function QueuePage({ name }: { readonly name: string }): JSX.Element {
  const at = `queues/${encodeURIComponent(name)}`;
  const queue = useResource<Queue>(at);
  const diagnosis = useResource<Diagnosis>(`${at}/diagnosis`, 4000);
  const [isAdding, setAdding] = useState(false);
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
                CLI: `pawl queue stats ${JSON.stringify(name)}`,
                curl: `curl ${urlOf(`api/v1/${at}`)}`,
                TypeScript: `createQueueAdmin(engine).stats(${JSON.stringify(name)})`,
              }}
            />
            {can('job:enqueue') && (
              <button type="button" onClick={() => setAdding(true)}>
                Add a job
              </button>
            )}
            {queue.data !== undefined && can('queue:pause') && <PauseQueue name={name} isPaused={paused} />}
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
          <Loaded of={diagnosis}>
            {({ findings }) => (
              <ul class="reasons">
                {findings.map(({ code, text, level, advice }) => (
                  <li key={code}>
                    <Icon name={level === 'ok' ? 'check' : level === 'error' ? 'cross' : 'warn'} />
                    <span class="wrap">
                      {text}
                      {advice !== undefined && <span class="muted">: {advice}</span>}
                    </span>
                  </li>
                ))}
              </ul>
            )}
          </Loaded>
        </div>
      </Card>
      <SeriesCharts path={`${at}/series`} />
      <JobList queue={name} />
      {isAdding && queue.data !== undefined && <AddJob queue={queue.data} onClose={() => setAdding(false)} />}
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
        value={duration(stats.oldestReadyMs)}
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

function AddJob({ queue, onClose }: { readonly queue: Queue; readonly onClose: () => void }): JSX.Element {
  const add = async (event: Event): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const field = (name: string): string => {
      const value = form.get(name);
      return typeof value === 'string' ? value.trim() : '';
    };
    const isAdded = await attempt(async () => {
      const payload = field('payload') || 'null';
      JSON.parse(payload);
      const rest = {
        kind: field('kind'),
        ...(field('key') === '' ? {} : { key: field('key') }),
        priority: Number(field('priority')),
      };
      // The payload is sent as it was written: reading it here would round long numbers.
      const body = `${JSON.stringify(rest).slice(0, -1)},"payload":${payload}}`;
      const { id, duplicate } = await sendText<{ id: string; duplicate: boolean }>(
        `queues/${encodeURIComponent(queue.name)}/jobs`,
        body,
      );
      return duplicate ? `job ${id} of this key was there already` : `job ${id} is added`;
    });
    if (!isAdded) return;
    refresh();
    onClose();
  };
  return (
    <Modal title="Add a job" onClose={onClose}>
      <form method="dialog" onSubmit={(event) => void add(event)}>
        <h2>Add a job to {queue.name}</h2>
        <label>
          Kind
          <select name="kind">
            {queue.kinds.map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
        <label>
          Payload, as JSON
          <textarea name="payload" spellcheck={false} defaultValue="{}" />
        </label>
        <label>
          Key, if jobs of it are to run one after another
          <input name="key" />
        </label>
        <label>
          Priority: lower runs first
          <input name="priority" type="number" min={-32768} max={32767} defaultValue="0" />
        </label>
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Add
          </button>
        </div>
      </form>
    </Modal>
  );
}
