import type { LeaseLost } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import { UNREGISTERED } from '../../base/work/lease-keeper.ts';
import type { EndedJob } from '../lost-jobs.ts';
import type { Heartbeat } from '../store.ts';
import type { LeaseHolder } from './keeper.ts';
import { JobSource } from './lease/job-source.ts';
import { LeaseOwner } from './lease/owner.ts';
import type { GroupPort, KeeperPort } from './ports.ts';
import type { WorkerEvents } from './report.ts';
import { reportEndedWaiting, reportLost } from './run/failed-job.ts';
import type { Unit } from './run/unit.ts';
import type { GroupMember } from './worker-group.ts';
import { portsOf, type WorkerParts } from './worker-parts.ts';

/**
 * A worker with hold: 'lease': claims many jobs at once, runs each unit's handler, settles many at once. Its {@link JobSource}
 * does that. This class is the worker's interface for the keeper of leases, and for the group of workers that notifications wake.
 */
export class LeaseWorker implements LeaseHolder, GroupMember {
  readonly events: Events<WorkerEvents>;
  readonly queue: number;
  readonly #owner: LeaseOwner;
  readonly #jobs: JobSource;
  readonly #keeper: KeeperPort;
  readonly #group: GroupPort;

  constructor(parts: WorkerParts) {
    const ports = portsOf(parts);
    this.events = parts.events;
    this.queue = parts.registered.queue;
    this.#keeper = ports.keeper;
    this.#group = ports.group;
    this.#owner = new LeaseOwner(parts, () => ports.keeper.hasLease);
    this.#jobs = new JobSource(parts, ports, this.#owner, this);
  }

  /** Starts polling, at once and after every enqueue. */
  async start(): Promise<void> {
    await this.#jobs.loop.register();
    await this.#keeper.add(this);
    this.#jobs.loop.start(await this.#group.join(this));
  }

  /** Polls now. */
  wake(): void {
    this.#jobs.wake();
  }

  /** Resolves when no work is left that this worker could run now. */
  whenQuiet(): Promise<void> {
    return this.#jobs.whenQuiet();
  }

  stop(timeoutMs: number): Promise<void> {
    return this.#jobs.loop.stop(timeoutMs);
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    return this.#jobs.othersEnded(task);
  }

  // For {@link GroupMember}.

  get isIdle(): boolean {
    return this.#jobs.loop.isIdle;
  }

  get isPolling(): boolean {
    return this.#jobs.loop.isPolling;
  }

  get isPicky(): boolean {
    return this.#jobs.isPicky;
  }

  noteNotification(): void {
    this.#jobs.loop.noteNotification();
  }

  checkCancels(): void {
    this.#keeper.beatNow().catch((error: unknown) => this.onError(error));
  }

  look(): void {
    this.#keeper.look();
  }

  // For {@link LeaseHolder}.

  get workerId(): number | undefined {
    return this.#jobs.loop.id;
  }

  /** Why the worker can claim nothing now. */
  get problem(): string | undefined {
    return this.#jobs.loop.problem ?? this.#keeper.problem ?? (this.workerId === undefined ? UNREGISTERED : undefined);
  }

  heartbeat(): Heartbeat | undefined {
    const { id, wantsNotify } = this.#jobs.loop;
    return id === undefined ? undefined : { worker: id, wantsNotify, holding: [], tells: this.tellsEnds };
  }

  lost(reason: LeaseLost): void {
    this.#jobs.lost(reason);
  }

  cancel(job: number, reason: string | null): void {
    for (const first of this.#jobs.units) {
      for (let unit: Unit | undefined = first; unit !== undefined; unit = unit.next) {
        if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
      }
    }
  }

  get reportsFailures(): boolean {
    return this.events.has('failed') || this.events.has('ended');
  }

  jobsEnded(jobs: readonly EndedJob[]): void {
    for (const job of jobs) reportLost(this.events, job, this.#owner);
  }

  get tellsEnds(): boolean {
    return this.events.has('ended');
  }

  jobsEndedWaiting(jobs: readonly EndedJob[]): void {
    for (const job of jobs) reportEndedWaiting(this.events, job, this.#owner);
  }

  onError(error: unknown): void {
    this.events.emit('error', { error });
  }
}
