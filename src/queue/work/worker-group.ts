import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';

/** A worker, as its group sees it. */
export interface GroupMember {
  /** Sleeps, and would begin something now. */
  readonly isIdle: boolean;
  /** Polls just now, and would begin something. */
  readonly isPolling: boolean;
  /** Polls now, or as soon as it can begin something. */
  wake(): void;
  /** A notification came, for any worker. */
  noteNotification(): void;
  checkCancels(): void;
}

/**
 * The workers of one queue in this process. A notification says that there is work, as a rule for one: so it wakes one of them, and
 * a worker that took as much as it could wakes the next. Otherwise each of fifty would poll for a single job. If the one that was
 * woken fails, or stops, another is woken; and each finds by its own poll what was missed.
 */
export class WorkerGroup {
  static readonly #groups = new WeakMap<PostgresEngine, Map<number, WorkerGroup>>();

  readonly #store: PostgresQueueStore;
  readonly #queue: number;
  /** The one that was woken last comes last. */
  readonly #members = new Set<GroupMember>();
  /** Woken, and have not polled since. */
  readonly #woken = new Set<GroupMember>();
  #subscription: Promise<Subscription> | undefined;

  private constructor(store: PostgresQueueStore, queue: number) {
    this.#store = store;
    this.#queue = queue;
  }

  static of(store: PostgresQueueStore, queue: number): WorkerGroup {
    const ofEngine = WorkerGroup.#groups.get(store.engine) ?? new Map<number, WorkerGroup>();
    WorkerGroup.#groups.set(store.engine, ofEngine);
    const herd = ofEngine.get(queue) ?? new WorkerGroup(store, queue);
    ofEngine.set(queue, herd);
    return herd;
  }

  async join(member: GroupMember): Promise<Subscription> {
    this.#members.add(member);
    this.#subscription ??= this.#listen();
    try {
      return await this.#subscription;
    } catch (error) {
      this.#subscription = undefined;
      throw error;
    }
  }

  async leave(member: GroupMember): Promise<void> {
    this.#members.delete(member);
    if (this.#woken.delete(member)) this.notify();
    if (this.#members.size > 0) return;
    const subscription = this.#subscription;
    this.#subscription = undefined;
    await (await subscription?.catch(() => undefined))?.stop();
  }

  /** There is work for one of them. */
  notify(): void {
    const members = [...this.#members];
    const next = members.find((one) => one.isIdle && !this.#woken.has(one)) ?? members.find((one) => one.isPolling);
    if (next === undefined) {
      // No worker has a free slot. The first one to have one polls then.
      for (const one of members) one.wake();
      return;
    }
    this.#members.delete(next);
    this.#members.add(next);
    this.#woken.add(next);
    next.wake();
  }

  /** It has polled. @param isMore  there may be more than it could take, or its poll has failed */
  notePolled(member: GroupMember, isMore: boolean): void {
    this.#woken.delete(member);
    if (isMore && [...this.#members].some((one) => one !== member && one.isIdle)) this.notify();
  }

  #listen(): Promise<Subscription> {
    return this.#store.listen(this.#queue, {
      wake: () => {
        for (const one of this.#members) one.noteNotification();
        this.notify();
      },
      missed: () => {
        for (const one of Array.from(this.#members)) one.wake();
      },
      cancel: () => {
        for (const one of this.#members) one.checkCancels();
      },
    });
  }
}
