import { FailureLog } from '../../base/work/failure-log.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';

export interface ConsumerErrorsOptions {
  /** The first words of its warnings: `a projection failed`. */
  readonly what: string;
  /** The captured database, and the other one that the consumer writes to, if there is one. */
  readonly engines: readonly [PostgresEngine, PostgresEngine | undefined];
  readonly report: (error: unknown) => void;
  readonly isStopping: () => boolean;
  readonly stop: () => Promise<void>;
}

/**
 * @returns a function to call with each error of a consumer's loop. It warns of the error, and reports it. If an engine of the
 * consumer was stopped, it stops the consumer instead: that can do nothing more, and its timers would keep the process alive.
 */
export function consumerErrors(options: ConsumerErrorsOptions): (error: unknown) => void {
  const { what, engines, report, isStopping, stop } = options;
  const { logger } = engines[0].options;
  const failures = new FailureLog(logger, what);
  return (error) => {
    if (!engines.some((engine) => engine?.isStopped === true)) {
      failures.warn(error);
      report(error);
    } else if (!isStopping()) {
      logger.warn({}, `${what}: it stops, because its engine was stopped; stop consumers before their engine`);
      void stop();
    }
  };
}
