import { Cooldown } from '../../../base/time/cooldown.ts';
import type { ClaimAnswer, Looked } from '../../store.ts';

/** What a look has read of a job. Jobs are never changed. */
export interface Seen {
  readonly kind: number;
  /** Enqueued at (ms). */
  readonly at: number;
  readonly payload: unknown;
  /** Where its row stood. */
  readonly tid?: string | undefined;
}

/** A job that is to be taken from where its row stood. */
export interface Candidate {
  readonly id: number;
  readonly seen: Seen;
}

/**
 * The jobs that a look has read, in their order, for lanes to pick from. It knows what the lanes hold, which a look shows as if
 * it were free.
 */
export class Candidates {
  /** Undefined where it is not known which jobs a lookahead has. */
  #jobs: Map<number, Seen> | undefined;
  /** Whether the transaction is over that took a job. */
  readonly #isOver = new Map<number, boolean>();
  /** Takes under way that search for a job. */
  #searches = 0;
  /** Of what is picked where other workers take it too, much is gone: a search takes what is left. */
  readonly #contention = new Cooldown();

  get jobs(): Map<number, Seen> | undefined {
    return this.#jobs;
  }

  /** A look begins, which will not show any more what is over by now. */
  beginLook(): void {
    for (const [id, isOver] of this.#isOver) if (isOver) this.#isOver.delete(id);
  }

  /** Begins anew with what a look has read, if it has. */
  set(looked: Looked | undefined): void {
    this.#jobs = looked?.jobs && new Map();
    if (looked !== undefined) this.add(looked);
  }

  /** Adds what a look has read, but for what the lanes hold, or held when it began. */
  add({ jobs, tids }: Looked): void {
    this.#jobs = jobs && this.#jobs && readSeen(jobs, tids, this.#jobs);
    for (const id of this.#isOver.keys()) this.#jobs?.delete(id);
  }

  /** Begins a take. @returns what to take; undefined: search for it */
  take(): Candidate | undefined {
    const pick = this.#contention.isOver ? this.#next() : undefined;
    if (pick === undefined) {
      this.#searches += 1;
    } else {
      this.#jobs?.delete(pick.id);
      this.#isOver.set(pick.id, false);
    }
    return pick;
  }

  /** The first job that no search that is under way will find. */
  #next(): Candidate | undefined {
    let found = this.#searches;
    for (const [id, seen] of this.#jobs ?? []) {
      if (found === 0) return seen.tid === undefined ? undefined : { id, seen };
      found -= 1;
    }
    return undefined;
  }

  /** Ends a take, with the job that it took; undefined: there was none. */
  took(pick: Candidate | undefined, job: number | undefined): void {
    if (pick === undefined) this.#searches -= 1;
    else this.#contention.record(job === undefined);
    if (job !== undefined) this.#jobs?.delete(job);
    else if (pick !== undefined) this.#isOver.delete(pick.id);
  }

  /** Keeps looks from showing what a lane has claimed. @returns to be called once its transaction is over */
  hold({ rows: [row] }: ClaimAnswer): () => void {
    if (row === undefined) return () => {};
    const [, id] = row;
    this.#isOver.set(id, false);
    return () => void this.#isOver.set(id, true);
  }
}

/** Adds jobs, by id, from the lists of a look. */
export function readSeen(
  jobs: readonly unknown[],
  tids: readonly string[] = [],
  to: Map<number, Seen> = new Map(),
): Map<number, Seen> {
  for (let at = 0; at < jobs.length; at += 4) {
    const [id, kind, enqueuedAt] = jobs.slice(at, at + 3) as number[];
    if (id === undefined) continue;
    to.set(id, { kind: kind ?? 0, at: enqueuedAt ?? 0, payload: jobs[at + 3], tid: tids[at / 4] });
  }
  return to;
}
