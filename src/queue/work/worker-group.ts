import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';

/** The interface of a worker for its group. */
export interface GroupMember {
  /** True: it sleeps, and has room for a job. */
  readonly isIdle: boolean;
  /** True: it polls now, and has room for a job. */
  readonly isPolling: boolean;
  /** True: it takes a part of the work. A notification that wakes it may be for another part. */
  readonly isPicky: boolean;
  /** Makes it poll now, or as soon as it has room. */
  wake(): void;
  /** Called when a notification has arrived for any of the workers. */
  noteNotification(): void;
  checkCancels(): void;
  /** Called when jobs may have ended that new jobs come after. */
  look(): void;
}

/**
 * The workers of one queue in this process. A notification usually means work for one worker, so it wakes one of them. A worker
 * that claimed as much as it could wakes the next. Otherwise each of fifty workers would poll for a single job. If the woken
 * worker fails or stops, another one is woken; and the polls of each worker find missed jobs.
 */
export class WorkerGroup {
  static readonly #groups = new WeakMap<PostgresEngine, Map<number, WorkerGroup>>();

  readonly #store: PostgresQueueStore;
  readonly #queue: number;
  /** In the order of waking: the worker that was woken last is last. */
  readonly #members = new Set<GroupMember>();
  /** Workers that were woken and have not polled since. */
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

  /** Called when there is work for one of them. */
  notify(): void {
    const members = [...this.#members].filter((one) => !one.isPicky);
    for (const one of this.#members) if (one.isPicky) one.wake();
    const next = members.find((one) => one.isIdle && !this.#woken.has(one)) ?? members.find((one) => one.isPolling);
    if (next === undefined) {
      // No worker has a free slot: the first one with a free slot polls.
      for (const one of members) one.wake();
      return;
    }
    this.#members.delete(next);
    this.#members.add(next);
    this.#woken.add(next);
    next.wake();
  }

  /** Called when a worker has polled. @param isMore  there may be more work than it could take, or its poll has failed */
  notePolled(member: GroupMember, isMore: boolean): void {
    this.#woken.delete(member);
    if (member.isPicky) return;
    if (isMore && [...this.#members].some((one) => one !== member && one.isIdle && !one.isPicky)) this.notify();
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
      look: () => {
        for (const one of this.#members) one.look();
      },
    });
  }
}
