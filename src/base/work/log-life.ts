import { Stopped } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { endInFailure } from './exit-code.ts';
import { FailureLog } from './failure-log.ts';

/** A worker that runs for as long as its process. */
export interface LongLived {
  readonly started: Promise<void>;
  readonly events: {
    on(name: 'error', listener: (event: { readonly error: unknown }) => void): unknown;
    emit(name: 'error', event: { readonly error: unknown }): unknown;
  };
  stop(options: { readonly timeout: number }): Promise<void>;
}

export interface LifeLog {
  readonly logger: Logger;
  /** `queue worker`: its messages begin with it. */
  readonly what: string;
  /** `workers`, as messages call several of them. */
  readonly several: string;
  /** Stands in each line of the log. */
  readonly fields: object;
  /** Stands in the line that says that it has started. */
  readonly begins: object;
  readonly engine: { readonly isStopped: boolean; address(): Promise<string> };
  readonly isStopping: () => boolean;
}

/**
 * Writes to the log that a worker has started, each error at growing intervals, and that it gives up; then its process ends in
 * failure. A worker whose engine was stopped is stopped: it can do nothing more, and its timers would keep the process alive. Call it
 * at once when the worker is made: errors before that are not seen.
 */
export function logLife(
  worker: LongLived,
  { logger, what, several, fields, begins, engine, isStopping }: LifeLog,
): void {
  const failures = new FailureLog(logger, what);
  let hasGivenUp = false;
  const endWithEngine = (): void => {
    if (isStopping()) return;
    logger.warn(fields, `${what}: it ends, since the engine was stopped; stop ${several} before their engine`);
    void worker.stop({ timeout: 0 });
  };
  worker.events.on('error', ({ error }) => {
    if (engine.isStopped) endWithEngine();
    else if (hasGivenUp) logger.error({ err: error, ...fields }, `${what}: it cannot start and gives up`);
    else failures.warn(error, fields);
  });
  const logStart = async (): Promise<void> => {
    if (!isStopping())
      logger.info({ ...fields, ...begins, database: await engine.address() }, `${what}: it looks for work`);
  };
  worker.started.then(logStart, (error: unknown) => {
    if (error instanceof Stopped) return;
    hasGivenUp = true;
    endInFailure(worker);
    worker.events.emit('error', { error });
  });
}
