import { useResource } from '../data/resource.ts';
import type { Workers } from '../data/types.ts';

/** A time on a chart, and the event at that time. */
export interface Mark {
  readonly at: number;
  readonly text: string;
}

/** Requested rarely, so that a hundred open dashboards do not load the server. */
const RARELY_MS = 300_000;
/** Workers that start within this time of each other are one deployment. */
const TOGETHER_MS = 60_000;

/** The times at which the live workers started. If a line changes, a deployment is the first suspect. */
export function useStarts(queue: string | undefined): readonly Mark[] {
  const workers = useResource<Workers>('workers', RARELY_MS);
  if (workers.data === undefined) return [];
  const { queues, actors } = workers.data;
  const all = queue === undefined ? [...queues, ...actors] : queues.filter((one) => one.queue === queue);
  const starts = all
    .map(({ startedAt, host, pid }) => ({ at: new Date(startedAt).getTime(), process: `${host}:${pid}` }))
    .sort((a, b) => a.at - b.at);
  const groups: { at: number; last: number; processes: Set<string> }[] = [];
  for (const { at, process } of starts) {
    const group = groups.at(-1);
    if (group === undefined || at - group.last > TOGETHER_MS)
      groups.push({ at, last: at, processes: new Set([process]) });
    else {
      group.last = at;
      group.processes.add(process);
    }
  }
  return groups.map(({ at, processes }) => ({ at, text: wording([...processes]) }));
}

function wording(processes: readonly string[]): string {
  if (processes.length === 1) return `worker ${processes[0]} started`;
  const names = processes.slice(0, 3).join(', ');
  return `${processes.length} workers started: ${names}${processes.length > 3 ? ' and more' : ''}`;
}
