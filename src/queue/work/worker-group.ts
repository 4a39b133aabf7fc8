import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';

/** A worker, as its herd sees it. */
export interface Grazing {
  /** Rests, and would begin something now. */
  readonly isIdle: boolean;
  /** Looks for work just now, and would begin something. */
  readonly isAwake: boolean;
  /** Looks for work now, or as soon as it can begin something. */
  wake(): void;
  /** A notification came, whoever it is for. */
  noteHearing(): void;
  askForCancels(): void;
}

/**
 * The workers of one queue in this process. A notification says that there is something, as a rule for one: so it wakes one of
 * them, and whoever took as much as it could wakes the next. Each of fifty would look otherwise, for a single job. If the one that
 * was woken fails, or stops, another is; and each finds by its poll what was missed.
 */
export class Herd {
  static readonly #herds = new WeakMap<PostgresEngine, Map<number, Herd>>();

  readonly #store: PostgresQueueStore;
  readonly #queue: number;
  /** Whoever was woken last comes last. */
  readonly #members = new Set<Grazing>();
  /** Woken, and have not looked since. */
  readonly #sent = new Set<Grazing>();
  #subscription: Promise<Subscription> | undefined;

  private constructor(store: PostgresQueueStore, queue: number) {
    this.#store = store;
    this.#queue = queue;
  }

  static of(store: PostgresQueueStore, queue: number): Herd {
    const ofEngine = Herd.#herds.get(store.engine) ?? new Map<number, Herd>();
    Herd.#herds.set(store.engine, ofEngine);
    const herd = ofEngine.get(queue) ?? new Herd(store, queue);
    ofEngine.set(queue, herd);
    return herd;
  }

  async join(member: Grazing): Promise<Subscription> {
    this.#members.add(member);
    this.#subscription ??= this.#listen();
    try {
      return await this.#subscription;
    } catch (error) {
      this.#subscription = undefined;
      throw error;
    }
  }

  async leave(member: Grazing): Promise<void> {
    this.#members.delete(member);
    if (this.#sent.delete(member)) this.notify();
    if (this.#members.size > 0) return;
    const subscription = this.#subscription;
    this.#subscription = undefined;
    await (await subscription?.catch(() => undefined))?.stop();
  }

  /** There is something for one of them. */
  notify(): void {
    const members = [...this.#members];
    const next = members.find((one) => one.isIdle && !this.#sent.has(one)) ?? members.find((one) => one.isAwake);
    if (next === undefined) {
      // Nobody has a free slot. Whoever is the first to have one looks then.
      for (const one of members) one.wake();
      return;
    }
    this.#members.delete(next);
    this.#members.add(next);
    this.#sent.add(next);
    next.wake();
  }

  /** It has looked. @param isMore  there may be more than it could take, or its look has failed */
  looked(member: Grazing, isMore: boolean): void {
    this.#sent.delete(member);
    if (isMore && [...this.#members].some((one) => one !== member && one.isIdle)) this.notify();
  }

  #listen(): Promise<Subscription> {
    return this.#store.listen(this.#queue, {
      wake: () => {
        for (const one of this.#members) one.noteHearing();
        this.notify();
      },
      missed: () => {
        for (const one of Array.from(this.#members)) one.wake();
      },
      cancel: () => {
        for (const one of this.#members) one.askForCancels();
      },
    });
  }
}
