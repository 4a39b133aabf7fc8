import type { Draw } from '../support/random.ts';

/** One fault of a schedule. */
export interface Fault {
  /** Milliseconds after all processes were ready. */
  readonly at: number;
  readonly do: FaultName;
  /** The index of the process that the fault hits. */
  readonly whom: number;
  /** The duration of the fault, or the step of the clock. */
  readonly ms: number;
}

export const FAULT_NAMES = [
  /** SIGKILL; a supervisor starts the process again after `ms`. */
  'kill',
  /** The process is asked to stop, ends in order, and is started again. */
  'deploy',
  /** SIGSTOP for `ms`. */
  'stop',
  /** The wall clock of the process is stepped by `ms`, which may be negative. */
  'clock',
  /** The event loop of the process is blocked for `ms`. */
  'block',
  /** Half of the server processes of its connections are terminated. */
  'terminate',
  /** The server is stopped as in a crash, and started again. */
  'restart',
  /** Its connections are reset. */
  'reset',
  /** Its connections are reset, and new ones refused for `ms`. */
  'refuse',
  /** Its connections carry no data any more; new connections carry none for `ms`. */
  'silence',
  /** Its connections still carry its data to the server, but never again data of the server. */
  'deafen',
  /** The network delays all data of its connections for `ms`; then the data arrives. */
  'freeze',
  /** The server executes its next three COMMITs, but the answer to each is a reset of the connection. */
  'lose',
] as const;

export type FaultName = (typeof FAULT_NAMES)[number];

/** The relative frequency of each fault; a fault that is left out is never drawn. */
export type Weights = Readonly<Partial<Record<FaultName, number>>>;

/** The weights for parts with leases on Postgres. A step of the clock and a reset are cheap, a restart of the server costs a second. */
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
  /** About half of the stops and silences are shorter than the lease, the others are longer. */
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
