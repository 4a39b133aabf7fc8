import { type Loop, startLoop } from '../../base/loop.ts';
import type { Backoff } from '../../base/time/backoff.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { maintainLogPartitions } from '../postgres/log-partitions.ts';

const HOUR_MS = 60 * 60 * 1000;
/** A table that is in use may be free in a minute; a privilege that is missing is missing for long. */
const BACKOFF: Backoff = { kind: 'exponential', min: 60_000, max: HOUR_MS, factor: 2, jitter: 0.5 };

/**
 * The months of the log are made ahead and dropped by whoever works on a capture, so that nothing has to be scheduled: at once, and
 * then about once an hour. Months are made for two ahead, so it does not matter when this fails for long.
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
      // Not all of them in the same minute.
      return HOUR_MS * (0.75 + Math.random() / 2);
    },
    onError: (error, failures) => {
      engine.options.logger.warn({ err: error, failures }, 'the months of the change log were not looked after');
    },
  });
}
