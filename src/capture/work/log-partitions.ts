import { type Loop, startLoop } from '../../base/loop.ts';
import type { Backoff } from '../../base/time/backoff.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { maintainLogPartitions } from '../postgres/log-partitions.ts';

const HOUR_MS = 60 * 60 * 1000;
/** A table that is in use may be free in a minute; a missing privilege stays missing for long. */
const BACKOFF: Backoff = { kind: 'exponential', min: 60_000, max: HOUR_MS, factor: 2, jitter: 0.5 };

/**
 * Every worker of a capture makes the months of the log ahead and drops old ones, so that nothing has to be scheduled: at
 * once, and then about once an hour. It makes two months ahead, so it may fail for long without harm.
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
      // Random, so that the workers do not do it in the same minute.
      return HOUR_MS * (0.75 + Math.random() / 2);
    },
    onError: (error, failures) => {
      engine.options.logger.warn({ err: error, failures }, 'the months of the change log could not be made or dropped');
    },
  });
}
