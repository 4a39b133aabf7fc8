import { Stopped } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { endInFailure } from './exit-code.ts';
import { FailureLog } from './failure-log.ts';

/** A worker that runs as long as its process. */
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
  /** `queue worker`: the first words of its messages. */
  readonly what: string;
  /** `workers`: the name for several of them in messages. */
  readonly several: string;
  /** Fields of each line in the log. */
  readonly fields: object;
  /** Fields of the line that reports the start. */
  readonly begins: object;
  readonly engine: { readonly isStopped: boolean; address(): Promise<string> };
  readonly isStopping: () => boolean;
}

/**
 * Logs that a worker has started, each error at growing intervals, and that it gives up; after that its process ends in failure.
 * If its engine was stopped, the worker is stopped, too: it can do nothing more, and its timers would keep the process alive.
 * Call it as soon as the worker is made, because it does not see earlier errors.
 */
export function logLife(
  worker: LongLived,
  { logger, what, several, fields, begins, engine, isStopping }: LifeLog,
): void {
  const failures = new FailureLog(logger, what);
  let hasGivenUp = false;
  const endWithEngine = (): void => {
    if (isStopping()) return;
    logger.warn(fields, `${what}: it stops, because the engine was stopped; stop ${several} before their engine`);
    void worker.stop({ timeout: 0 });
  };
  worker.events.on('error', ({ error }) => {
    if (engine.isStopped) endWithEngine();
    else if (hasGivenUp) logger.error({ err: error, ...fields }, `${what}: it cannot start and gives up`);
    else failures.warn(error, fields);
  });
  const logStart = async (): Promise<void> => {
    if (!isStopping())
      logger.info({ ...fields, ...begins, database: await engine.address() }, `${what}: it polls for work`);
  };
  worker.started.then(logStart, (error: unknown) => {
    if (error instanceof Stopped) return;
    hasGivenUp = true;
    endInFailure(worker);
    worker.events.emit('error', { error });
  });
}
