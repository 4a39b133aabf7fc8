import type { JSX } from 'preact';
import { LazyGraph } from '../charts/lazy-graph.tsx';
import type { JobDetail } from '../data/types.ts';
import { toneOf } from '../parts/badge.tsx';

const LIFE: readonly (readonly [from: string, to: string, label: string])[] = [
  ['new', 'in-progress', 'claim'],
  ['in-progress', 'complete', ''],
  ['in-progress', 'error', ''],
  ['in-progress', 'new', 'retry'],
  ['in-progress', 'cancelled', ''],
  ['new', 'cancelled', 'cancel'],
];

/** All transitions of jobs, and those that this job made. */
export function Life({ of: { status, history } }: { readonly of: JobDetail }): JSX.Element {
  const times = new Map<string, number>();
  for (const { from, to } of history) times.set(`${from} ${to}`, (times.get(`${from} ${to}`) ?? 0) + 1);
  const edges = LIFE.map(([from, to, label]) => {
    const n = times.get(`${from} ${to}`) ?? 0;
    const many = n > 1 ? `${label} ×${n}` : label;
    return { from, to, ...(many === '' ? {} : { label: many }), look: n > 0 ? ('taken' as const) : ('soft' as const) };
  });
  const nodes = ['new', 'in-progress', 'complete', 'error', 'cancelled'].map((name) => ({
    id: name,
    title: name,
    ...(name === status ? { tone: toneOf(name), isCurrent: true, under: 'it is here' } : {}),
  }));
  return <LazyGraph title="Life of the job" nodes={nodes} edges={edges} direction="LR" />;
}
