import type { HandoffSubscription } from '../../../base/handoff/handoff.ts';
import { type Loop, startLoop } from '../../../base/loop.ts';
import { within } from '../../../base/time/clock.ts';
import { STOP_MS } from '../../../base/work/deadlines.ts';
import { LeaseKeeper } from '../../../base/work/lease-keeper.ts';
import { type DynamoEngine, Liveness } from '../../../engine/dynamodb/index.ts';
import { Scheduler, type TickRows } from '../../operate/scheduler.ts';
import type { Heartbeat, HeartbeatAnswer } from '../../store.ts';
import type { LeaseHolder } from '../../work/keeper.ts';
import type { GroupPort, KeeperPort } from '../../work/ports.ts';
import type { GroupMember } from '../../work/worker-group.ts';
import { QueueRows } from '../database.ts';
import { workersKey } from '../rows.ts';
import type { Pruning } from './pruning.ts';
import { AwaitedJobs } from './waits.ts';

/** How often a process checks for dead workers. It also checks when a lease runs out, so jobs do not wait for the next interval. */
const RESCUE_MS = 5000;
const TIMEOUT_MS = 5000;
/** How often a process reads all schedules of the queue, in one request. Within this time it finds a schedule that another process declares. */
const LOOK_MS = 10_000;

/**
 * The state that all workers and producers of one queue in this process share: which workers live, and wake-ups. DynamoDB has no notifications. So
 * an enqueue wakes workers of its own process, and workers of other processes find the job at their next poll.
 */
export class Household implements GroupPort {
  static readonly #households = new WeakMap<DynamoEngine, Map<string, Household>>();

  readonly liveness: Liveness;
  /** The jobs for which other jobs wait, as far as this process has read them. */
  readonly awaited: AwaitedJobs = new AwaitedJobs();
  /** The jobs for which batches wait, likewise. */
  readonly members: AwaitedJobs = new AwaitedJobs();
  readonly #members = new Set<GroupMember>();
  #chores: Loop | undefined;
  #pruning: Loop | undefined;
  #scheduler: Scheduler | undefined;
  /** The schedules of the queue; set by the first worker. */
  ticks: TickRows | undefined;
  /** The removal of old jobs of the queue; set by the first worker. */
  pruning: Pruning | undefined;
  readonly #engine: DynamoEngine;
  readonly #queue: string;

  private constructor(engine: DynamoEngine, queue: string) {
    this.#engine = engine;
    this.#queue = queue;
    this.liveness = new Liveness(new QueueRows(engine, queue, TIMEOUT_MS), workersKey(queue));
  }

  static of(engine: DynamoEngine, queue: string): Household {
    const ofEngine = Household.#households.get(engine) ?? new Map<string, Household>();
    Household.#households.set(engine, ofEngine);
    const household = ofEngine.get(queue) ?? new Household(engine, queue);
    ofEngine.set(queue, household);
    return household;
  }

  join(member: GroupMember): Promise<HandoffSubscription> {
    this.#members.add(member);
    this.#chores ??= startLoop({
      name: 'queue.rescue',
      run: () => this.#runChores(),
      onError: (error) => this.#engine.logger.warn({ err: error, queue: this.#queue }, 'queue worker: no rescue'),
      unref: true,
    });
    if (this.pruning !== undefined) this.#pruning ??= this.#prune(this.pruning);
    if (this.ticks !== undefined) {
      this.#scheduler ??= new Scheduler({
        rows: this.#waking(this.ticks),
        lookMs: LOOK_MS,
        queues: () => [],
        onError: (error) => this.#engine.logger.warn({ err: error, queue: this.#queue }, 'queue worker: no schedules'),
      });
    }
    return Promise.resolve({ arrived: new Promise(() => {}), stop: () => Promise.resolve() });
  }

  async leave(member: GroupMember): Promise<void> {
    this.#members.delete(member);
    if (this.#members.size > 0) return;
    const ending = [this.#chores, this.#scheduler, this.#pruning];
    this.#chores = undefined;
    this.#pruning = undefined;
    this.#scheduler = undefined;
    await within(STOP_MS, Promise.all(ending.map(async (one) => one?.stop())));
  }

  /** Wakes an idle worker, since there is work; or all workers, if none is idle. */
  notify(): void {
    const members = [...this.#members];
    const next = members.find((one) => one.isIdle);
    if (next === undefined) {
      for (const one of members) one.wake();
      return;
    }
    this.#members.delete(next);
    this.#members.add(next);
    next.wake();
  }

  notePolled(member: GroupMember, isMore: boolean): void {
    const other = isMore ? [...this.#members].find((one) => one !== member && one.isIdle) : undefined;
    other?.wake();
  }

  /** Makes the workers check for wishes to cancel a running job. */
  checkCancels(): void {
    for (const one of this.#members) one.checkCancels();
  }

  /** Reads the schedules again, since one was declared in this process. */
  lookAtSchedules(): void {
    this.#scheduler?.look();
  }

  /** The same ticks, but a tick that enqueues a job also wakes a worker. */
  #waking(ticks: TickRows): TickRows {
    return {
      due: (queues) => ticks.due(queues),
      tick: async (tick) => {
        const jobs = await ticks.tick(tick);
        if (jobs !== null && jobs > 0) this.notify();
        return jobs;
      },
    };
  }

  #prune(pruning: Pruning): Loop {
    return startLoop({
      name: 'queue.prune',
      run: () => pruning.run(),
      onError: (error) => this.#engine.logger.warn({ err: error, queue: this.#queue }, 'queue worker: no pruning'),
      unref: true,
    });
  }

  async #runChores(): Promise<number> {
    const { removed, nextMs } = await this.liveness.removeDead();
    if (removed > 0) for (const one of this.#members) one.wake();
    return Math.min(nextMs, RESCUE_MS * (0.75 + Math.random() / 2));
  }
}

/** Keeps the lease of one worker by heartbeats, which write its row. */
export function keeperOf(
  leaseMs: number,
  beat: (beats: readonly Heartbeat[], signal?: AbortSignal) => Promise<HeartbeatAnswer>,
): KeeperPort {
  const lease = new LeaseKeeper<LeaseHolder, HeartbeatAnswer>({
    name: 'queue',
    leaseMs,
    send: (workers) => beat([...workers.values()].flatMap((worker) => worker.heartbeat() ?? [])),
    // Each request has a time limit of its own.
    giveUp: () => {},
    onAnswer: ({ cancel }) => {
      for (const { worker, id, reason } of cancel) {
        for (const one of lease.workers) if (one.workerId === worker) one.cancel(id, reason);
      }
    },
  });
  return {
    get hasLease() {
      return lease.hasLease;
    },
    get problem() {
      return lease.problem;
    },
    add: (worker) => Promise.resolve(lease.add(worker)),
    remove: async (worker) => {
      if (lease.remove(worker)) await within(STOP_MS, lease.stop());
    },
    // Claims check the jobs that come after others.
    look: () => {},
    beatNow: async () => {
      await lease.beat();
    },
  };
}
