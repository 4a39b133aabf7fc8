import type { Logger } from '../../../engine/postgres/index.ts';
import type { Unit } from './unit.ts';

/** Logs that a stop has left running handlers behind. */
export function logAbandoned(logger: Logger, queue: string, units: readonly Unit[]): void {
  const jobs = units.map(({ job }) => job.id);
  logger.warn(
    { queue, jobs },
    `queue worker: it was stopped while ${jobs.length === 1 ? 'a handler was' : `${jobs.length} handlers were`} still running; ` +
      'their jobs are given back and run again. A handler that awaits the stop of its worker behind another await may wait for itself: call ' +
      'stop() there without await',
  );
}
