import type { LiveSnapshot } from '../store/live.ts';

/** This many queues, and types of actors, are shown one by one: a stream sends the picture whenever any part of it changes. */
const SHOWN = 200;

/** Sums over all queues, shown or not. */
const SUMS = [
  'ready',
  'delayed',
  'parked',
  'inProgress',
  'error',
  'cancelled',
  'completePerMinute',
  'workers',
  'slots',
] as const;

export type Totals = Readonly<Record<(typeof SUMS)[number] | 'queues' | 'paused' | 'unattended', number>> & {
  readonly oldestReadyMs: number | null;
};

/** The live picture in the form that is sent: the first queues by name, and the sums over all of them. */
export interface Picture extends LiveSnapshot {
  readonly totals: Totals;
  /** The numbers of queues and types that the lists leave out. */
  readonly truncated: { readonly queues: number; readonly actors: number };
}

export function pictureOf(snapshot: LiveSnapshot): Picture {
  const { queues, actors } = snapshot;
  return {
    ...snapshot,
    queues: queues.slice(0, SHOWN),
    actors: actors.slice(0, SHOWN),
    totals: totalsOf(queues),
    truncated: { queues: Math.max(0, queues.length - SHOWN), actors: Math.max(0, actors.length - SHOWN) },
  };
}

type Figures = LiveSnapshot['queues'][number]['stats'];

/** Whether jobs wait that no worker will ever run. */
export function isUnattended(stats: Figures): boolean {
  return (
    stats['pausedAt'] === null && stats['workers'] === 0 && Number(stats['ready']) + Number(stats['inProgress']) > 0
  );
}

function totalsOf(queues: LiveSnapshot['queues']): Totals {
  const all = queues.map(({ stats }) => stats);
  const sums = Object.fromEntries(
    SUMS.map((field) => [field, all.reduce((sum, stats) => sum + Number(stats[field]), 0)]),
  ) as Record<(typeof SUMS)[number], number>;
  const waits = all.flatMap(({ oldestReadyMs }) => (typeof oldestReadyMs === 'number' ? [oldestReadyMs] : []));
  return {
    ...sums,
    queues: queues.length,
    paused: all.filter(({ pausedAt }) => pausedAt !== null).length,
    unattended: all.filter(isUnattended).length,
    oldestReadyMs: waits.reduce<number | null>((most, wait) => Math.max(most ?? 0, wait), null),
  };
}
