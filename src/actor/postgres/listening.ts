import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { ActorHandoff } from '../store.ts';
import { readHandoff } from './claim-reader.ts';

/** Stands before the id of an actor: a semaphore was raised that interrupts its turn. */
const INTERRUPT = 'interrupt:';

export interface NewsHandlers {
  readonly wake: () => void;
  readonly page: () => void;
  readonly interrupt: (actor: number) => void;
  /** Called when notifications may have been lost: any of them may have come. */
  readonly missed: () => void;
}

export interface HandoffHandlers {
  readonly onHandoff: (handed: ActorHandoff) => void;
  readonly onReconnect: () => void;
}

/** Calls back when something came for actors of these types, or when a page has to be delivered. */
export function listenForNews(
  engine: PostgresEngine,
  types: readonly number[],
  handlers: NewsHandlers,
): Promise<Subscription> {
  const read = (payload: string): void => {
    if (payload === 'page') handlers.page();
    else if (payload.startsWith(INTERRUPT)) handlers.interrupt(Number(payload.slice(INTERRUPT.length)));
    else if (payload.split(',').some((type) => types.includes(Number(type)))) handlers.wake();
  };
  return engine.listen(engine.schema.channel('actor'), read, { onReconnect: handlers.missed });
}

/** Calls back with each actor that is handed over on this channel, and shows producers that the channel has a listener. */
export function listenForHandoffs(
  engine: PostgresEngine,
  channel: string,
  { onHandoff, onReconnect }: HandoffHandlers,
): Promise<Subscription> {
  const read = (payload: string): void => onHandoff(readHandoff(payload));
  return engine.listen(channel, read, { onReconnect, isSeen: true });
}
