import type { JSX } from 'preact';
import { SeriesCharts } from '../charts/series.tsx';
import { has, me } from '../data/api.ts';
import { live } from '../data/live.ts';
import type { Live } from '../data/types.ts';
import { Badge } from '../parts/badge.tsx';
import { Head } from '../parts/card.tsx';
import { Tile } from '../parts/tile.tsx';
import { BusiestQueues } from '../queues/queues.tsx';
import { count, plural, rough, short } from '../text/format.ts';
import { Attention } from './attention.tsx';
import { Dev } from './dev.tsx';

/** Shows whether all is well, and if not, what to check first. */
export function OverviewPage(): JSX.Element {
  const now = live.value;
  return (
    <>
      <Head title="Overview" about={now === undefined ? 'Looking…' : <Health of={now} />} />
      {now !== undefined && <Tiles of={now} />}
      <Attention />
      {me.value?.parts['dev'] === true && <Dev />}
      {has('charts') && <SeriesCharts path="series" />}
      <BusiestQueues />
    </>
  );
}

function Health({ of }: { readonly of: Live }): JSX.Element {
  const { totals, truncated } = of;
  const parts: (readonly [string, string])[] = [
    totals.unattended > 0
      ? ['lost', `${count(totals.unattended)} of ${plural(totals.queues, 'queue')} without a worker`]
      : ['live', `${plural(totals.queues, 'queue')}, ${plural(totals.workers, 'worker')}`],
    ['live', `${count(of.locks.held)} locks held`],
    ['live', `${plural(of.actors.length + truncated.actors, 'type')} of actors`],
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

function Tiles({ of: { totals, locks, pages } }: { readonly of: Live }): JSX.Element {
  const oldest = totals.oldestReadyMs ?? 0;
  return (
    <div class="tiles">
      <Tile
        icon="check"
        label="Done a minute"
        value={short(totals.completePerMinute)}
        href="history?part=job"
        tone="good"
      />
      <Tile
        icon="half"
        label="In progress"
        value={count(totals.inProgress, Infinity)}
        href="jobs?q=status:in-progress"
        tone="busy"
      />
      <Tile icon="circle" label="Ready" value={count(totals.ready, Infinity)} href="queues?sort=ready" tone="wait" />
      <Tile
        icon="clock"
        label="Oldest ready"
        value={oldest === 0 ? '–' : rough(oldest)}
        href="queues?sort=oldestReadyMs"
        tone="warn"
        isStrong={oldest > 60_000}
      />
      <Tile
        icon="cross"
        label="In error"
        value={count(totals.error, Infinity)}
        href="errors"
        tone="bad"
        isStrong={totals.error > 0}
      />
      <Tile
        icon="lock"
        label="Waiting for locks"
        value={count(locks.waiting)}
        href="locks?contended=true"
        tone="wait"
        isStrong={locks.waiting > 0}
      />
      <Tile
        icon="bell"
        label="Pages open"
        value={count(pages.open)}
        href="pages"
        tone="bad"
        isStrong={pages.open > 0}
      />
    </div>
  );
}
