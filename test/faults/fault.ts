import type { Draw } from '../support/random.ts';

/** Something that goes wrong, once. */
export interface Fault {
  /** Milliseconds after all processes were ready. */
  readonly at: number;
  readonly do: FaultName;
  /** The index of the process that it hits. */
  readonly whom: number;
  /** How long it lasts, or by how much the clock is stepped. */
  readonly ms: number;
}

export const FAULT_NAMES = [
  /** SIGKILL; a supervisor starts the process again after `ms`. */
  'kill',
  /** It is told to stop, ends in order, and is started again. */
  'deploy',
  /** SIGSTOP for `ms`. */
  'stop',
  /** Its wall clock is set by `ms`, which may be negative. */
  'clock',
  /** Its event loop is kept busy for `ms`. */
  'block',
  /** Half of its server processes are ended. */
  'terminate',
  /** The server is stopped like in a crash, and started again. */
  'restart',
  /** Its connections are reset. */
  'reset',
  /** Its connections are reset, and new ones refused for `ms`. */
  'refuse',
  /** Its connections are silent for ever, and new ones for `ms`. */
  'silence',
  /** What it sends arrives, and it hears nothing: its connections for ever. */
  'deafen',
  /** What it and the server send each other is held back for `ms`, and then arrives. */
  'freeze',
  /** Its next three COMMITs are done, and instead of the answer comes a reset. */
  'lose',
] as const;

export type FaultName = (typeof FAULT_NAMES)[number];

/** How often each fault is drawn, compared with the others; none where it is left out. */
export type Weights = Readonly<Partial<Record<FaultName, number>>>;

/** How often what works by leases on Postgres meets each: a step of the clock and a reset are cheap, a restart of the server costs a second. */
export const USUAL: Weights = {
  kill: 3,
  deploy: 1,
  stop: 3,
  clock: 1,
  block: 1,
  terminate: 2,
  reset: 2,
  refuse: 1,
  silence: 2,
  deafen: 1,
  freeze: 2,
  lose: 2,
};

export interface Drawing {
  readonly n: number;
  readonly members: number;
  /** The faults begin within this time. */
  readonly withinMs: number;
  /** Stops and silences are shorter than it or longer, about as often. */
  readonly leaseMs: number;
  readonly weights: Weights;
}

/** Faults in the order of their times. */
export function drawFaults(draw: Draw, { n, members, withinMs, leaseMs, weights }: Drawing): Fault[] {
  const names = Object.fromEntries(FAULT_NAMES.map((name) => [name, weights[name] ?? 0])) as Record<FaultName, number>;
  return Array.from({ length: n }, (): Fault => {
    const name = draw.weighted(names);
    const ms = durationOf(name, draw, leaseMs);
    return { at: draw.int(50, withinMs), do: name, whom: draw.int(0, members - 1), ms };
  }).toSorted((a, b) => a.at - b.at);
}

function durationOf(name: FaultName, draw: Draw, leaseMs: number): number {
  switch (name) {
    case 'kill':
    case 'refuse':
      return draw.int(20, 600);
    case 'stop':
    case 'silence':
    case 'freeze':
      return draw.chance(0.5) ? draw.int(20, leaseMs) : draw.int(leaseMs, 2.5 * leaseMs);
    case 'block':
      return draw.chance(0.5) ? draw.int(20, leaseMs / 2) : draw.int(leaseMs, 1.5 * leaseMs);
    case 'clock':
      return draw.pick(-3_600_000, -1000, -50, 50, 1000, 3_600_000);
    case 'deploy':
    case 'terminate':
    case 'restart':
    case 'reset':
    case 'deafen':
    case 'lose':
      return 0;
  }
}

export function tellFault({ at, do: name, whom, ms }: Fault): string {
  return `${at} ${name}${name === 'restart' ? '' : ` ${whom}`}${ms === 0 ? '' : ` (${ms} ms)`}`;
}
