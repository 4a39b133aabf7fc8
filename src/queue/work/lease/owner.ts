import { LeaseLost, NotSupported } from '../../../base/errors.ts';
import type { ConditionCheckItem } from '../../../engine/dynamodb/index.ts';
import { Transaction } from '../../../engine/postgres/index.ts';
import type { ParentRecord } from '../../job.ts';
import { PostgresQueueStore } from '../../postgres/store.ts';
import type { HeldJob } from '../../store.ts';
import type { Job } from '../run/claimed-job.ts';
import type { Unit, UnitOwner } from '../run/unit.ts';
import type { WorkerParts } from '../worker-parts.ts';

/** The owner of units with a lease: the statements of their handlers while they run. */
export class LeaseOwner implements UnitOwner {
  readonly queueName: string;
  readonly #store: WorkerParts['store'];
  readonly #leaseMs: number;
  readonly #hasLease: () => boolean;

  /** @param hasLease  whether the lease has certainly not ended yet */
  constructor({ store, definition, settings }: WorkerParts, hasLease: () => boolean) {
    this.queueName = definition.name;
    this.#store = store;
    this.#leaseMs = settings.leaseMs;
    this.#hasLease = hasLease;
  }

  parents(job: Job): Promise<readonly ParentRecord[]> {
    return this.#store.parents(job.claim.shard, job.number);
  }

  async progress(unit: Unit, job: Job, json: string): Promise<void> {
    this.#requireLease(unit);
    await this.#store.progress(job.claim.shard, job.claim.id, job.number, json);
  }

  guard(unit: Unit, tx: unknown): Promise<void> {
    return this.guardAll([unit], tx);
  }

  async guardAll(units: readonly Unit[], tx: unknown): Promise<void> {
    for (const unit of units) {
      this.#requireLease(unit);
      // Set before the statement is sent, because the settlement of the unit needs to know it.
      unit.isGuarded = true;
    }
    // The process of another library may die when the server closes its connection; the engine's own connections survive
    // that.
    const idleMs = tx instanceof Transaction ? this.#leaseMs : undefined;
    const held = units.flatMap((unit) => heldJobs(unit, idleMs));
    await this.#store.guard(held, tx);
  }

  guardItems(unit: Unit): readonly ConditionCheckItem[] {
    this.#requireLease(unit);
    if (this.#store instanceof PostgresQueueStore) {
      throw new NotSupported('unit.guardItems() is for DynamoDB; on Postgres call unit.guard(tx)');
    }
    return this.#store.guardItems(unit.job.claim.id);
  }

  /** After a pause, the clock shows the loss of the lease earlier than a timer or the database. */
  #requireLease(unit: Unit): void {
    if (this.#hasLease()) return;
    throw new LeaseLost(`the lease of job ${unit.job.id} ran out before it could be renewed; stop working on it`);
  }
}

/** One job of each claim: the jobs of a unit leave their claim together. */
export function heldJobs(unit: Unit, idleMs: number | undefined): HeldJob[] {
  const ofClaim = new Map<number, HeldJob>();
  for (const { number, claim } of unit.jobs) {
    ofClaim.set(claim.id, { shard: claim.shard, claim: claim.id, id: number, idleMs });
  }
  return [...ofClaim.values()];
}
