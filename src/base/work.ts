import { AsyncLocalStorage } from 'node:async_hooks';

/** A job whose handler runs. */
interface Worked {
  readonly job: string;
  /** Whose job: the engine of its queue. The same number means another job in another database. */
  readonly of: object;
}

/**
 * For which job the code that runs now works. A queue says it around each handler, and whoever keeps something on behalf of
 * code asks for it. Before Node 24 an asynchronous context makes every promise of the process dearer: as long as nobody asks,
 * there is none.
 */
class Work {
  /** Whether anybody in this process asks. */
  isAsked = false;
  readonly #now = new AsyncLocalStorage<Worked>();

  /** Runs a handler, so that what it awaits and begins is known to be for this job. */
  run<T>(of: object, job: string, handler: () => T): T {
    return this.#now.run({ of, job }, handler);
  }

  /** The id of the job, if it is one of this engine's. */
  jobOf(engine: object): string | undefined {
    const worked = this.#now.getStore();
    return worked?.of === engine ? worked.job : undefined;
  }
}

export const work: Work = new Work();
