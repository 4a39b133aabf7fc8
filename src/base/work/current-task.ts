import { AsyncLocalStorage } from 'node:async_hooks';

/** What code that Pawl has called works on: a job, or a turn of an actor. */
export interface Task {
  readonly id: string | number;
}

interface TaskContext {
  readonly task: Task;
  /** Whose job it is, if it is one. The same number means another job in another database. */
  readonly engine: object | undefined;
}

/**
 * What the code that runs now works on. Queues and actors say it around each handler and body; locks that are kept on behalf of
 * code ask for it, and so does a stop. An asynchronous context costs each handler 0.35 µs (Node 24, 2026-11-23), and before Node 24
 * it makes every promise of the process more expensive: as long as no locks are kept for jobs, there is none, and only what a handler does
 * before its first `await` is known to be its own.
 */
class CurrentTask {
  /** Whether it is known behind an `await`, too: this process keeps locks for jobs. */
  isTracked = false;
  readonly #now = new AsyncLocalStorage<TaskContext>();
  #calling: Task | undefined;

  /** Calls a handler, so that what it awaits and begins is known to be its own. @param engine  of a job's queue */
  run<A, T>(task: Task, engine: object | undefined, handler: (given: A) => T, given: A): T {
    if (this.isTracked) return this.#now.run({ task, engine }, handler, given);
    const before = this.#calling;
    this.#calling = task;
    try {
      return handler(given);
    } finally {
      this.#calling = before;
    }
  }

  /** The id of the job, if it is one of this engine's. */
  jobOf(engine: object): string | undefined {
    const worked = this.#now.getStore();
    return worked?.engine === engine ? String(worked.task.id) : undefined;
  }

  get task(): Task | undefined {
    return this.#calling ?? this.#now.getStore()?.task;
  }
}

export const currentTask: CurrentTask = new CurrentTask();
