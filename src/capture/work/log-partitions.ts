import { type Loop, startLoop } from '../../base/loop.ts';
import type { Backoff } from '../../base/time/backoff.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { maintainLogPartitions } from '../postgres/log-partitions.ts';

const HOUR_MS = 60 * 60 * 1000;
/** A table that is in use may be free in a minute; a missing privilege stays missing for long. */
const BACKOFF: Backoff = { kind: 'exponential', min: 60_000, max: HOUR_MS, factor: 2, jitter: 0.5 };

/**
 * Every worker of a capture makes the next months of the log and drops old ones, at once and then about once an hour. So no
 * schedule is needed for that. The worker makes two months ahead, so it may fail for a long time without harm.
 * @param ready  settles when the capture is installed
 */
export function startLogPartitions(engine: PostgresEngine, ready: () => Promise<unknown>): Loop {
  return startLoop({
    name: 'capture.keep',
    unref: true,
    backoff: BACKOFF,
    run: async () => {
      await ready();
      await maintainLogPartitions(engine);
      // Random, so that not all workers do this in the same minute.
      return HOUR_MS * (0.75 + Math.random() / 2);
    },
    onError: (error, failures) => {
      engine.options.logger.warn({ err: error, failures }, 'the months of the change log could not be made or dropped');
    },
  });
}
