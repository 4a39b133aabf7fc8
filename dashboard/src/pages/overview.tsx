import type { JSX } from 'preact';
import { me } from '../api.ts';
import { count, duration, plural, short } from '../format.ts';
import { live } from '../live.ts';
import { Badge } from '../parts/badge.tsx';
import { Card, Head, Loaded } from '../parts/card.tsx';
import { Dev } from '../parts/dev.tsx';
import { Icon } from '../parts/icon.tsx';
import { SeriesCharts } from '../parts/series.tsx';
import { Tile } from '../parts/tile.tsx';
import { useResource } from '../resource.ts';
import type { Live } from '../types.ts';
import { QueueTable } from './queues.tsx';

interface Attention {
  readonly items: readonly {
    readonly level: string;
    readonly text: string;
    readonly advice?: string;
    readonly look: string;
  }[];
}

/** Whether all is well; if not, what to look at first. */
export function OverviewPage(): JSX.Element {
  const attention = useResource<Attention>('attention', 4000);
  const now = live.value;
  return (
    <>
      <Head title="Overview" about={now === undefined ? 'Looking…' : <Health of={now} />} />
      {now !== undefined && <Tiles of={now} />}
      {me.value?.parts['dev'] === true && <Dev />}
      <Card title="Needs attention">
        <Loaded of={attention}>
          {({ items }) =>
            items.length === 0 ? (
              <p class="calm">
                <Icon name="check" size={20} /> Nothing needs you now.
              </p>
            ) : (
              <ul class="attention">
                {items.map(({ level, text, advice, look }) => (
                  <li key={text} class={`tone-${level === 'error' ? 'bad' : 'warn'}`}>
                    <Icon name={level === 'error' ? 'cross' : 'warn'} />
                    <span class="wrap">
                      <span class="hidden">{level}: </span>
                      {text}
                      {advice !== undefined && <span class="muted">: {advice}</span>}
                    </span>
                    <a href={look}>Look</a>
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
      </Card>
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
    [stuck > 0 ? 'lost' : 'live', `${plural(of.queues.length, 'queue')}, ${plural(workers, 'worker')}`],
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
        value={oldest === 0 ? '–' : duration(oldest)}
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
