import { AsyncLocalStorage } from 'node:async_hooks';

/** The job, or the turn of an actor, that the running code works on. */
export interface Task {
  readonly id: string | number;
}

interface TaskContext {
  readonly task: Task;
  /** The engine of the job, if it is a job. The same id names another job in another database. */
  readonly engine: object | undefined;
}

/**
 * The task of the code that runs now. Queues and actors set it around each handler and body. Locks that are kept for a task read
 * it, and so does a stop. An asynchronous context costs each handler 0.35 µs (Node 24, 2026-11-23). Before Node 24 it makes every
 * promise of the process more expensive. So as long as no locks are kept for jobs, there is no such context, and the task is
 * known only before the first `await` of a handler.
 */
class CurrentTask {
  /** True: the task is also known after an `await`, because this process keeps locks for jobs. */
  isTracked = false;
  readonly #now = new AsyncLocalStorage<TaskContext>();
  #calling: Task | undefined;

  /** Calls a handler, so that the code that it awaits and starts has this task. @param engine  of a job's queue */
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

  /** The id of the job, if it is a job of this engine. */
  jobOf(engine: object): string | undefined {
    const worked = this.#now.getStore();
    return worked?.engine === engine ? String(worked.task.id) : undefined;
  }

  get task(): Task | undefined {
    return this.#calling ?? this.#now.getStore()?.task;
  }
}

export const currentTask: CurrentTask = new CurrentTask();
