import type { ParentRecord } from '../job.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';
import { heldJobs } from '../work/lease/owner.ts';
import type { Job } from '../work/run/claimed-job.ts';
import type { Unit, UnitOwner } from '../work/run/unit.ts';

/** The owner of pulled units: the database decides whether they are still held. */
export class PullOwner implements UnitOwner {
  readonly queueName: string;
  readonly #store: PostgresQueueStore;

  constructor(store: PostgresQueueStore, queueName: string) {
    this.#store = store;
    this.queueName = queueName;
  }

  parents(job: Job): Promise<readonly ParentRecord[]> {
    return this.#store.parents(job.claim.shard, job.number);
  }

  progress(_unit: Unit, { claim, number }: Job, json: string): Promise<void> {
    return this.#store.progress(claim.shard, claim.id, number, json);
  }

  async guard(unit: Unit, tx: unknown): Promise<void> {
    // Set before the statement is sent, because the settlement of the unit needs to know it.
    unit.isGuarded = true;
    await this.#store.guard(heldJobs(unit, undefined), tx);
  }
}
