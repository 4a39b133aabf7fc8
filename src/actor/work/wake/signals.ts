import type { HandoffSubscription } from '../../../base/handoff/handoff.ts';
import type { ActorDefinition } from '../../definition.ts';
import type { TurnStore } from '../ports.ts';
import type { RunningTurn } from '../run/attempt.ts';
import { Alarm } from './alarm.ts';
import { Interrupts } from './interrupts.ts';

export interface SignalsOptions {
  readonly store: TurnStore;
  /** The longest delay after a lost notification. */
  readonly pollMs: number;
  /** By actor. */
  readonly running: ReadonlyMap<number, RunningTurn>;
  /** Called when a timer of this process says that an actor is due. */
  readonly onDue: () => void;
  /** Called when a notification says that an actor is due, or when notifications were lost. */
  readonly onNotification: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Wakes a worker and its running bodies: by notifications, and by its own timers for actors that are due before the next poll.
 */
export class Signals {
  readonly #options: SignalsOptions;
  readonly #alarm: Alarm;
  readonly #interrupts: Interrupts;
  #subscription: HandoffSubscription | undefined;

  constructor(options: SignalsOptions) {
    this.#options = options;
    this.#alarm = new Alarm(options.onDue);
    this.#interrupts = new Interrupts(options);
  }

  /** @param onPage  called when a page may have been opened */
  async start(types: ReadonlyMap<number, ActorDefinition>, onPage: () => void): Promise<HandoffSubscription> {
    const { store, onNotification } = this.#options;
    const interrupt = (actor: number): void => this.#interrupts.note(actor);
    const missed = (): void => {
      onNotification();
      onPage();
      this.#interrupts.noteAll();
    };
    const handlers = { wake: onNotification, page: onPage, interrupt, missed };
    this.#subscription = await store.listen([...types.keys()], handlers);
    if ([...types.values()].some(hasInterrupts)) this.#interrupts.start();
    return this.#subscription;
  }

  /** An actor is due after `ms`. */
  wakeIn(ms: number): void {
    this.#alarm.in(ms);
  }

  /** Ends the timers, because the worker claims nothing more. Interrupts still reach running bodies. */
  stopAlarm(): void {
    this.#alarm.stop();
  }

  async stop(): Promise<void> {
    this.#alarm.stop();
    await Promise.all([this.#interrupts.stop(), this.#subscription?.stop()]);
  }
}

/** Whether a semaphore may interrupt turns of this type. */
function hasInterrupts({ states }: ActorDefinition): boolean {
  return [...states.values()].some(({ interrupts }) => interrupts.length > 0);
}
