import { hostname } from 'node:os';
import type { Logger } from '../../base/logger.ts';
import type { Capture, CaptureWorker, RunOptions } from '../../capture/index.ts';

/** Starts the consumers of a capture as a part of `pawl worker`, and logs their events. */
export function startCapture(capture: Capture, options: RunOptions, logger: Logger): CaptureWorker {
  const { entity, projections, followers } = capture;
  // The consumers themselves log errors of the database.
  for (const { name, events } of projections) {
    events.on('projected', (told) => logger.debug({ capture: entity, consumer: name, ...told }, 'projected'));
    events.on('failed', ({ key, attempt, error }) =>
      logger.warn({ capture: entity, consumer: name, key, attempt, err: error }, 'an entity could not be projected'),
    );
  }
  for (const { name, events } of followers) {
    events.on('delivered', (told) => logger.debug({ capture: entity, consumer: name, ...told }, 'delivered'));
  }
  const worker = capture.run(options);
  const consumers = [...projections, ...followers].map(({ name }) => name);
  worker.started.then(
    () => logger.info({ capture: entity, consumers, host: hostname(), pid: process.pid }, 'capture started'),
    () => {},
  );
  return worker;
}
