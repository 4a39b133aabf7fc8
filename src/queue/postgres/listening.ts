import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { JobHandoff } from '../store.ts';

export interface JobNewsHandlers {
  /** A job was enqueued. */
  readonly wake: () => void;
  /** Called when notifications may have been lost. Without it, `wake` is called. */
  readonly missed?: () => void;
  /** Called when a running job of this process has to be cancelled. */
  readonly cancel: () => void;
  /** Jobs may have ended that others come after. */
  readonly look: () => void;
}

export interface HandoffHandlers {
  readonly onHandoff: (job: JobHandoff) => void;
  readonly onReconnect: () => void;
}

/** Calls back with notifications about the jobs of a queue. */
export function listenForJobs(engine: PostgresEngine, queue: number, handlers: JobNewsHandlers): Promise<Subscription> {
  const own = String(queue);
  const read = (payload: string): void => {
    if (payload === own) handlers.wake();
    else if (payload === `cancel ${own}`) handlers.cancel();
    else if (payload === 'look') handlers.look();
  };
  return engine.listen(engine.schema.channel('queue'), read, { onReconnect: handlers.missed ?? handlers.wake });
}

/** Calls back with each job that is handed over through this channel; marks the channel as listened to. */
export function listenForHandoffs(
  engine: PostgresEngine,
  channel: string,
  { onHandoff, onReconnect }: HandoffHandlers,
): Promise<Subscription> {
  const read = (payload: string): void => onHandoff(JSON.parse(payload) as JobHandoff);
  return engine.listen(channel, read, { onReconnect, isSeen: true });
}
