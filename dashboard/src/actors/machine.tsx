import type { JSX } from 'preact';
import type { Edge } from '../charts/graph.tsx';
import { LazyGraph } from '../charts/lazy-graph.tsx';
import type { Machine, Move } from '../data/types.ts';
import { Table } from '../parts/table.tsx';
import { count, duration } from '../text/format.ts';

interface MachineProps {
  readonly machine: Machine;
  readonly counts?: Readonly<Record<string, number>>;
  readonly current?: string;
  readonly paused?: readonly string[];
  readonly history?: readonly Move[];
  /** The type of the actors. Each state links to the list of its actors. */
  readonly type?: string;
}

/** A state machine with the number of actors in each state, or with the state of one actor and the way it came. */
export function MachineGraph({ machine, counts, current, paused = [], history = [], type }: MachineProps): JSX.Element {
  const taken = new Set(history.map(({ from, to }) => `${from} ${to}`));
  const names = Object.keys(machine.states);
  const nodes = names.map((name) => {
    const n = counts?.[name] ?? 0;
    const isCurrent = name === current;
    const under = isCurrent ? 'it is here' : n > 0 ? `${count(n, 1000)} ${n === 1 ? 'actor' : 'actors'}` : undefined;
    const note = paused.includes(name) ? `${under ?? ''} paused`.trim() : under;
    return {
      id: name,
      title: name === machine.initial ? `▸ ${name}` : name,
      ...(note === undefined ? {} : { under: note }),
      ...(isCurrent
        ? { tone: 'accent' as const, isCurrent }
        : paused.includes(name)
          ? { tone: 'warn' as const }
          : n > 0
            ? { tone: 'busy' as const }
            : {}),
      ...(type === undefined ? {} : { href: `actors?${new URLSearchParams({ type, state: name })}` }),
    };
  });
  const edges: Edge[] = names.flatMap((name) =>
    (machine.states[name]?.to ?? []).map(
      (to): Edge => ({ from: name, to, ...(taken.has(`${name} ${to}`) ? { look: 'taken' } : {}) }),
    ),
  );
  // A transition from any state is one arrow from a separate box, not an arrow from each state.
  const always = Object.entries(machine.always);
  for (const [semaphore, to] of always) {
    nodes.push({ id: `always ${semaphore}`, title: `any state`, under: semaphore });
    edges.push({ from: `always ${semaphore}`, to, label: 'always', look: 'soft' });
  }
  return (
    <>
      <LazyGraph title="State machine" nodes={nodes} edges={edges} direction={names.length > 3 ? 'LR' : 'TB'} />
      <details class="twin body">
        <summary>As a table</summary>
        <Table
          caption="States"
          rows={names}
          keyOf={(name) => name}
          columns={[
            { title: 'State', of: (name) => (name === current ? <strong>{name} (it is here)</strong> : name) },
            { title: 'Actors', align: 'right', of: (name) => count(counts?.[name] ?? 0, 1000) },
            { title: 'Leads to', of: (name) => machine.states[name]?.to.join(', ') || 'nothing' },
            { title: 'Every', align: 'right', of: (name) => duration(machine.states[name]?.everyMs) },
            { title: 'Timeout', align: 'right', of: (name) => duration(machine.states[name]?.timeoutMs) },
            { title: 'Deadline', align: 'right', of: (name) => duration(machine.states[name]?.deadlineMs) },
          ]}
        />
      </details>
    </>
  );
}
