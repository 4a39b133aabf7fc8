import { InvalidInput } from '../base/errors.ts';
import {
  checkOptions,
  custom,
  duration,
  integer,
  list,
  oneOf,
  optional,
  signal,
  text,
} from '../base/options/options.ts';
import { isObject } from '../base/options/shape.ts';
import type { Duration } from '../base/time/duration.ts';
import type { ActorDefinition } from './definition.ts';
import type { PageChannel } from './pages/channel.ts';

/** Options of a dispatcher. */
export interface RunOptions {
  /**
   * How many bodies run at the same time in this process. Default 50. If states have `hold: 'transaction'`, whose bodies take a
   * connection each: at most two less than the connections of the pool.
   */
  readonly concurrency?: number | undefined;
  /**
   * How long a process keeps its turns without a heartbeat. It sends one every third of this time. Default `'20s'`, at least
   * `'1s'`.
   */
  readonly lease?: Duration | undefined;
  /** How often to poll for work if no notification comes. Default `'2s'`. */
  readonly poll?: Duration | undefined;
  /** Only these types. Default: all declared types. */
  readonly types?: readonly string[] | undefined;
  /** The channels that get notifications of pages. Default: none; the pages are kept. */
  readonly channels?: readonly PageChannel[] | undefined;
  /**
   * `'exit'`: if the event loop of this process was blocked for a lease, the running turns are written to stderr and the process
   * ends itself with SIGKILL, so that a supervisor can start another one. A thread watches the event loop. Default: not watched.
   */
  readonly onBlocked?: 'exit' | undefined;
  /** Stops the dispatcher when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

const LEASE = '20s';
const CONCURRENCY = 50;

const channel = custom('a channel such as webhook(url)', (value, place): PageChannel => {
  if (isObject(value) && typeof value['name'] === 'string' && typeof value['deliver'] === 'function') {
    return value as unknown as PageChannel;
  }
  throw new InvalidInput(
    `option "${place.field}" for run must be a channel such as webhook(url), or { name, deliver }`,
    { field: place.field },
  );
});

const runShape = {
  concurrency: optional(integer({ min: 1, max: 10_000 })),
  // Below a second a busy event loop looks like a dead one.
  lease: duration({ min: '1s', max: '24h', default: LEASE }),
  poll: duration({ min: '10ms', max: '1h', default: '2s' }),
  types: optional(list(text({ min: 1 }), { min: 1 })),
  channels: list(channel, { default: [] }),
  onBlocked: optional(oneOf(['exit'])),
  signal,
};

interface RunSettings {
  readonly concurrency: number | undefined;
  readonly lease: number;
  readonly poll: number;
  readonly types: readonly string[] | undefined;
  readonly channels: readonly PageChannel[];
  readonly onBlocked: 'exit' | undefined;
  readonly signal: AbortSignal | undefined;
}

export function readRunOptions(options: RunOptions): RunSettings {
  return checkOptions('run', options, runShape);
}

/** The name of a channel identifies the notifications that it has accepted. */
export function requireNames(channels: readonly PageChannel[]): void {
  const names = channels.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice === undefined) return;
  throw new InvalidInput(
    `there are two channels named "${twice}", and only one of them would get notifications; give one another name: webhook(url, { name: 'on call' })`,
    { field: 'channels' },
  );
}

/** The states whose bodies each take a connection. */
export function holding({ name, states }: ActorDefinition): string[] {
  return [...states.values()].filter(({ hold }) => hold === 'transaction').map((one) => `"${one.name}" of ${name}`);
}

/** @throws InvalidInput  bodies could take every connection, and no connection would remain for claims and commits */
export function roomFor(concurrency: number | undefined, holds: readonly string[], connections: number): number {
  const most = holds.length === 0 ? Infinity : connections - 2;
  const chosen = concurrency ?? Math.max(1, Math.min(CONCURRENCY, most));
  if (chosen <= most) return chosen;
  throw new InvalidInput(
    `concurrency ${chosen} needs ${chosen + 2} connections, since state ${holds.join(', ')} has hold: 'transaction', but the pool ` +
      `has ${connections}; lower concurrency, or give postgres() a larger max`,
    { field: 'concurrency' },
  );
}
