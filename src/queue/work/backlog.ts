import { InvalidInput } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { type Check, duration, integer, object, optional } from '../../base/options/options.ts';
import { probe } from '../../base/probe.ts';
import { type Duration, formatDuration } from '../../base/time/duration.ts';
import type { Logger } from '../../engine/postgres/index.ts';
import { COUNT_LIMIT, type QueueStats } from '../operate/stats.ts';
import type { Backlog, WorkerEvents } from './report.ts';

/** The limits beyond which a queue has too much to do. At least one of `ready` and `oldest` is required. */
export interface BacklogOptions {
  /** The limit for the number of ready jobs, 1 to 10,000. */
  readonly ready?: number | undefined;
  /** The limit for the wait of the oldest ready job. */
  readonly oldest?: Duration | undefined;
  /** How often the worker checks. Default `'30s'`, at least `'100ms'`. A check is one statement, whose cost does not grow with the queue. */
  readonly every?: Duration | undefined;
}

/** The same, parsed: ages and waits in ms. */
export interface BacklogLimits {
  readonly ready: number | undefined;
  readonly oldest: number | undefined;
  readonly every: number;
}

const shape: { [N in keyof BacklogLimits]: Check<BacklogLimits[N]> } = {
  ready: optional(integer({ min: 1, max: COUNT_LIMIT })),
  oldest: optional(duration({ min: 1 })),
  every: duration({ min: '100ms', max: '24h', default: '30s' }),
};

export const backlogOptions: Check<BacklogLimits | undefined> = optional(object(shape));

/** @throws InvalidInput */
export function requireLimit(limits: BacklogLimits): void {
  if (limits.ready !== undefined || limits.oldest !== undefined) return;
  throw new InvalidInput("warn needs a limit: { ready: 5000 }, { oldest: '5m' }, or both", { field: 'warn' });
}

export interface BacklogWatch {
  readonly queue: string;
  readonly limits: BacklogLimits;
  readonly stats: () => Promise<Pick<QueueStats, 'ready' | 'oldestReadyMs'>>;
  readonly events: Events<WorkerEvents>;
  readonly logger: Logger;
}

/** Reports once that a limit is exceeded, and once that no limit is exceeded any more. */
export function watchBacklog({ queue, limits, stats, events, logger }: BacklogWatch): Loop {
  let isOver = false;
  const look = async (signal: AbortSignal): Promise<number> => {
    // A stopped worker reports nothing more, however late the answer comes, and whatever it is.
    const { ready, oldestReadyMs: oldestMs } = await stats().finally(() => signal.throwIfAborted());
    const backlog: Backlog = { ready, oldestMs, exceeds: exceeded(limits, ready, oldestMs) };
    if (backlog.exceeds.length > 0 && !isOver) {
      isOver = true;
      const age = formatDuration(Math.round(oldestMs ?? 0));
      logger.warn(
        { queue, ready, oldestMs },
        `queue "${queue}" has a backlog: ${ready} jobs are ready, the oldest for ${age}`,
      );
      events.emit('backlog', backlog);
    } else if (backlog.exceeds.length === 0 && isOver) {
      isOver = false;
      logger.info({ queue, ready, oldestMs }, `queue "${queue}" has caught up`);
      events.emit('caughtUp', backlog);
    }
    probe.hit('queue.looked_at_backlog', { queue, ready });
    return limits.every;
  };
  const onError = (error: unknown): void => events.emit('error', { error });
  return startLoop({ name: 'queue.backlog', run: look, onError, unref: true });
}

function exceeded(limits: BacklogLimits, ready: number, oldestMs: number | null): Backlog['exceeds'] {
  const { ready: most = Infinity, oldest: longest = Infinity } = limits;
  return [...(ready >= most ? (['ready'] as const) : []), ...((oldestMs ?? 0) >= longest ? (['oldest'] as const) : [])];
}
