import type { JSX } from 'preact';
import { me } from '../api.ts';
import { count, plural, rough, short } from '../format.ts';
import { live } from '../live.ts';
import { Attention } from '../parts/attention.tsx';
import { Badge } from '../parts/badge.tsx';
import { Card, Head } from '../parts/card.tsx';
import { Dev } from '../parts/dev.tsx';
import { SeriesCharts } from '../parts/series.tsx';
import { Tile } from '../parts/tile.tsx';
import type { Live } from '../types.ts';
import { QueueTable } from './queues.tsx';

/** Whether all is well; if not, what to look at first. */
export function OverviewPage(): JSX.Element {
  const now = live.value;
  return (
    <>
      <Head title="Overview" about={now === undefined ? 'Looking…' : <Health of={now} />} />
      {now !== undefined && <Tiles of={now} />}
      <Attention />
      {me.value?.parts['dev'] === true && <Dev />}
      <SeriesCharts path="series" />
      <Card title="Queues" actions={<a href="queues">All queues</a>}>
        <QueueTable />
      </Card>
    </>
  );
}

function Health({ of }: { readonly of: Live }): JSX.Element {
  const workers = of.queues.reduce((sum, { stats }) => sum + stats.workers, 0);
  const stuck = of.queues.filter(({ stats }) => stats.ready > 0 && stats.workers === 0).length;
  const parts: (readonly [string, string])[] = [
    stuck > 0
      ? ['lost', `${stuck} of ${plural(of.queues.length, 'queue')} without a worker`]
      : ['live', `${plural(of.queues.length, 'queue')}, ${plural(workers, 'worker')}`],
    ['live', `${count(of.locks.held)} locks held`],
    ['live', `${plural(of.actors.length, 'type')} of actors`],
    [
      of.connections > of.maxConnections * 0.9 ? 'lost' : 'live',
      `${of.connections} of ${of.maxConnections} connections`,
    ],
  ];
  return (
    <div class="health">
      {parts.map(([status, text]) => (
        <Badge key={text} status={status}>
          {text}
        </Badge>
      ))}
    </div>
  );
}

function Tiles({ of }: { readonly of: Live }): JSX.Element {
  const sum = (pick: (stats: Live['queues'][number]['stats']) => number): number =>
    of.queues.reduce((all, { stats }) => all + pick(stats), 0);
  const errors = sum(({ error }) => error);
  const oldest = Math.max(0, ...of.queues.map(({ stats }) => stats.oldestReadyMs ?? 0));
  const waiting = of.locks.waiting;
  return (
    <div class="tiles">
      <Tile
        icon="check"
        label="Done a minute"
        value={short(sum(({ completePerMinute }) => completePerMinute))}
        href="history?part=job"
        tone="good"
      />
      <Tile
        icon="half"
        label="In progress"
        value={count(sum(({ inProgress }) => inProgress))}
        href="jobs?q=status:in-progress"
        tone="busy"
      />
      <Tile icon="circle" label="Ready" value={count(sum(({ ready }) => ready))} href="jobs?q=status:new" tone="wait" />
      <Tile
        icon="clock"
        label="Oldest ready"
        value={oldest === 0 ? '–' : rough(oldest)}
        href="queues"
        tone="warn"
        isStrong={oldest > 60_000}
      />
      <Tile
        icon="cross"
        label="In error"
        value={count(errors)}
        href="jobs?q=status:error"
        tone="bad"
        isStrong={errors > 0}
      />
      <Tile
        icon="lock"
        label="Waiting for locks"
        value={count(waiting)}
        href="locks?contended=true"
        tone="wait"
        isStrong={waiting > 0}
      />
      <Tile
        icon="bell"
        label="Pages open"
        value={count(of.pages.open)}
        href="pages"
        tone="bad"
        isStrong={of.pages.open > 0}
      />
    </div>
  );
}
