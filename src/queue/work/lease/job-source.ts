import type { LeaseLost } from '../../../base/errors.ts';
import type { Offer, RecallResult } from '../../../base/handoff/handoff.ts';
import { probe } from '../../../base/probe.ts';
import type { Budget } from '../../../base/time/budget.ts';
import { sleep, within } from '../../../base/time/clock.ts';
import { ClaimLoop } from '../../../base/work/claim-loop.ts';
import type { ClaimSource, NextPoll } from '../../../base/work/claim-source.ts';
import { STOP_MS } from '../../../base/work/deadlines.ts';
import { pausedPartOf, type StoredPart } from '../../paused-part.ts';
import type { ClaimAnswer, ClaimedPart, JobHandoff } from '../../store.ts';
import { Gatherer, ReadyBatch } from '../batch/gatherer.ts';
import { type ClaimedUnits, countUnits, hasJobs, readClaim } from '../claim-reader.ts';
import type { LeaseHolder } from '../keeper.ts';
import { Quiet } from '../once/quiet.ts';
import { countOutcome } from '../once/tally.ts';
import { NO_HANDOFF, type WorkerPorts } from '../ports.ts';
import { reportFailures, reportOutcome } from '../report.ts';
import { type AttemptResult, breakSuccessors } from '../run/attempt.ts';
import type { Unit, UnitOwner } from '../run/unit.ts';
import { Settler } from '../settle/settler.ts';
import type { GroupMember } from '../worker-group.ts';
import type { WorkerParts } from '../worker-parts.ts';
import { addWorker } from '../worker-row.ts';
import { Holdings } from './holdings.ts';
import { Returns } from './returns.ts';
import { PREFETCH_MAX, Room } from './room.ts';
import { RunningUnits } from './running-units.ts';
import { Shards } from './shards.ts';

/** The most jobs of one key in a claim: enough to be worth the cost of a claim, few enough to share a hot key's time. */
const CHAIN = 32;

/**
 * The jobs of a worker with hold: 'lease'. Its {@link ClaimLoop} decides when it polls, and how much runs. The path of a job:
 * `claim`, `post`, `begin`, `#finish`, which passes the outcome to the settler.
 */
export class JobSource implements ClaimSource<Unit | ReadyBatch, ClaimAnswer, JobHandoff> {
  readonly isExclusive = false;
  /** True: the worker takes a part of the work. */
  readonly isPicky: boolean;
  readonly loop: ClaimLoop<Unit | ReadyBatch, ClaimAnswer, JobHandoff>;
  readonly settler: Settler;
  readonly #parts: WorkerParts;
  readonly #ports: WorkerPorts;
  readonly #owner: UnitOwner;
  readonly #worker: LeaseHolder & GroupMember;
  readonly #chain: number;
  readonly #part: ClaimedPart | undefined;
  readonly #shards: Shards;
  readonly #holdings = new Holdings();
  readonly #running: RunningUnits;
  readonly #returns: Returns;
  readonly #room: Room;
  /** Undefined: no kind has a batch handler. */
  readonly #gatherer: Gatherer | undefined;
  readonly #quiet = new Quiet();
  /** The paused parts of the queue, by the last claim that brought jobs; undefined: none. */
  #pausedParts: readonly StoredPart[] | undefined;
  /** Units that were handed over: their enqueue has seen that no part was paused any more. */
  readonly #handed = new WeakSet<Unit>();

  /** @param owner  of the units @param worker  the worker of these jobs, for its keeper and for its group */
  constructor(parts: WorkerParts, ports: WorkerPorts, owner: UnitOwner, worker: LeaseHolder & GroupMember) {
    const { definition, settings, handlers, batchHandlers } = parts;
    this.#parts = parts;
    this.#ports = ports;
    this.#owner = owner;
    this.#worker = worker;
    // A job with a single attempt must not lose it because the job before it killed the worker. If a key stops at an error, a job
    // has not succeeded before its outcome is written, because the database may refuse its result.
    const isOneByOne = definition.blocksKeys || [...definition.kinds.values()].some((kind) => kind.attempts === 1);
    this.#chain = isOneByOne ? 1 : CHAIN;
    const { takes } = settings;
    this.isPicky = takes !== undefined;
    this.#part = takes && {
      kinds: takes.kinds.flatMap((kind) => parts.registered.kindId.get(kind) ?? []),
      upto: takes.max,
    };
    const from = takes && { priority: takes.min, id: 0 };
    this.#shards = new Shards(definition.shards, () => this.#endRound(), from);
    this.#gatherer = Gatherer.for(definition, batchHandlers, handlers.size === 0, (gathered) =>
      this.loop.addNext(gathered),
    );
    this.loop = new ClaimLoop(
      this,
      { name: 'queue', ...settings, prefetchMax: PREFETCH_MAX, aheadMs: ports.aheadMs },
      (loop) =>
        // An enqueue with a direct hand-off does not check which jobs the worker takes.
        this.isPicky
          ? NO_HANDOFF
          : ports.handoff({
              id: () => loop.id,
              isFree: () => loop.acceptsHandoff,
              isAsleep: () => loop.isAsleep,
              onHandoff: (job) => loop.receive(job),
              onError: (error) => this.onError(error),
            }),
    );
    this.settler = this.#makeSettler();
    this.#returns = new Returns({
      holdings: this.#holdings,
      settler: this.settler,
      wake: () => parts.store.wake(this.#worker.queue),
      onError: (error) => this.onError(error),
    });
    this.#running = new RunningUnits({
      ...parts,
      logger: parts.store.engine.options.logger,
      generation: () => this.loop.generation,
      onEnd: (unit, outcome) => this.#finish(unit, outcome),
      onUnknownKind: (unit) => this.#returns.unknownKind(unit),
    });
    this.#room = new Room({
      concurrency: settings.concurrency,
      holdings: this.#holdings,
      running: this.#running,
      gatherer: this.#gatherer,
      waiting: this.loop.slots,
    });
  }

  #makeSettler(): Settler {
    const { store, registered } = this.#parts;
    return new Settler({
      queue: registered.queue,
      settle: (settlement, offer) => store.settle(settlement, offer),
      offer: () => this.loop.offer(),
      onStale: (claims) => this.#parts.events.emit('stale', { claims }),
      onRefused: (unit, failed) => reportFailures(this.#parts.events, unit, failed),
      onError: (error) => this.onError(error),
      onMore: () => this.loop.pollAgain(),
    });
  }

  /** Resolves when no work is left that this worker could run now. */
  whenQuiet(): Promise<void> {
    const quiet = this.#quiet.wait();
    this.wake();
    return quiet;
  }

  /** Polls now. */
  wake(): void {
    this.#shards.wake();
    this.loop.wake();
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    return this.#running.othersEnded(task);
  }

  get hasLease(): boolean {
    return this.#ports.keeper.hasLease;
  }

  capacity(prefetch: number): number {
    return this.#room.of(prefetch);
  }

  get slotsTaken(): number {
    return this.#running.slotsTaken;
  }

  async claim(worker: number, limit: number, offer: Offer | undefined): Promise<ClaimAnswer> {
    this.#quiet.recordPoll(this.#isBusy);
    const { shard, cursor, rows, restMs } = this.#shards.scan;
    if (restMs > 0) await sleep(restMs);
    return this.#parts.store.claim(
      {
        queue: this.#worker.queue,
        shard,
        worker,
        limit,
        slots: this.#room.slots,
        rows,
        chain: this.#chain,
        cursor,
        part: this.#part,
      },
      offer,
    );
  }

  countUnits(answer: ClaimAnswer): number {
    return countUnits(answer);
  }

  post(answer: ClaimAnswer, limit: number): void {
    const { shard } = this.#shards.scan;
    const { runs, seen } = answer;
    if (probe.listening) probe.hit('queue.claimed', { shard, worker: this.loop.id, rows: runs.length, seen });
    this.#ports.group.notePolled(this.#worker, countUnits(answer) >= limit);
    this.#room.setAside = 0;
    if (!hasJobs(answer)) return;
    this.#pausedParts = answer.pausedParts;
    this.#add(this.#read(answer, shard));
  }

  #read(answer: ClaimAnswer, shard: number): ClaimedUnits {
    const { definition, registered } = this.#parts;
    return readClaim(answer, { shard, definition, registered, owner: this.#owner });
  }

  #add({ units, claims, count, jobs }: ClaimedUnits): void {
    this.#holdings.add(claims, count);
    this.#parts.events.emit('claimed', { jobs });
    // See queue_claim, p_slots.
    const first = units.filter(({ job }) => job.claim.isAlone);
    if (first.length === 0) this.loop.add(units);
    else
      this.loop.add(
        units.filter(({ job }) => !job.claim.isAlone),
        first,
      );
  }

  begin(unit: Unit | ReadyBatch): void {
    if (unit instanceof ReadyBatch) return this.#running.startBatch(unit);
    const part = this.#handed.has(unit) ? undefined : this.#pausedParts && pausedPartOf(this.#pausedParts, unit);
    if (part !== undefined) {
      this.#room.setAside += 1;
      this.#returns.setAside(unit, part);
    } else if (this.#gatherer?.add(unit) !== true) this.#running.start(unit);
  }

  #finish(unit: Unit, outcome: AttemptResult): void {
    this.#holdings.count -= 1;
    countOutcome(this.#parts.tally, outcome);
    reportOutcome(this.#parts.events, unit, outcome);
    let { next } = unit;
    // A failed unit may have a guarding transaction that is still open: no other job of its key begins before it ends.
    const mayWrite = unit.isGuarded && outcome.failed.length > 0;
    if (outcome.isRetried || mayWrite || this.loop.isStopping) {
      this.#returns.behind(next);
      this.settler.add(unit, outcome, true);
      next = undefined;
    } else {
      this.settler.add(unit, outcome, next === undefined);
      breakSuccessors(unit, outcome, this.#parts.definition);
    }
    this.loop.ended(next);
    this.#running.recordEnd();
    if (this.#quiet.isAwaited && this.#holdings.count === 0) void this.settler.flushed().then(() => this.wake());
  }

  /** True: own work is under way, which may lead to more jobs. */
  get #isBusy(): boolean {
    return this.#holdings.count > 0 || this.settler.isBusy;
  }

  nextPoll(answer: ClaimAnswer, limit: number): NextPoll {
    return this.#shards.next(answer, limit);
  }

  /** Called when all shards were polled, and none had a job. */
  #endRound(): void {
    if (this.#quiet.isAwaited) this.#gatherer?.hurry();
    if (this.#quiet.recordEmptyRound() && !this.#isBusy) this.wake();
  }

  takeHandoff(handoff: JobHandoff): void {
    const claimed = this.#read(handoff, handoff.shard);
    for (const unit of claimed.units) this.#handed.add(unit);
    this.#add(claimed);
  }

  // The methods from here on run rarely.

  declineHandoff(handoff: JobHandoff): void {
    const { claims, units } = this.#read(handoff, handoff.shard);
    this.#holdings.add(claims, 0);
    this.#returns.declined(units);
  }

  noteUnclaimed(): void {
    this.#ports.group.notePolled(this.#worker, true);
  }

  release(units: readonly (Unit | ReadyBatch)[], why: 'stopped' | 'stalled'): void {
    this.#returns.all(units, why);
  }

  async register(): Promise<number> {
    const { store, settings } = this.#parts;
    const id = await addWorker(store, this.#worker.queue, settings);
    this.settler.startFor(id);
    this.#shards.restart();
    return id;
  }

  setWantsNotify(worker: number, wants: boolean): Promise<void> {
    return this.#parts.store.setWants(worker, wants);
  }

  recall(worker: number): Promise<RecallResult> {
    return this.#parts.store.recall(this.#worker.queue, worker, this.#holdings.knownClaims());
  }

  leave(worker: number): Promise<void> {
    return this.#parts.store.leave(this.#worker.queue, worker, this.#holdings.knownClaims());
  }

  drain(time: Budget): Promise<void> {
    // Not before the last poll has ended; otherwise that poll would claim them again.
    if (this.#gatherer !== undefined) this.release(this.#gatherer.clear(), 'stopped');
    return this.#running.drain(time, () => this.settler.flushed());
  }

  async close(worker: number | undefined): Promise<void> {
    const onError = (error: unknown): void => this.onError(error);
    if (this.#returns.hasReleased) await within(STOP_MS, this.#parts.store.wake(this.#worker.queue).catch(onError));
    await this.#ports.group.leave(this.#worker);
    await this.#ports.keeper.remove(this.#worker);
    if (worker !== undefined) await this.#parts.store.removeWorker(worker).catch(onError);
  }

  lost(reason: LeaseLost): void {
    this.settler.drop();
    this.#holdings.clear();
    this.#gatherer?.clear();
    this.loop.reset();
    // Later outcomes of handlers are ignored: the settler has dropped their claims.
    this.#running.lose(reason);
    this.#parts.events.emit('lost', { reason });
    this.#running.recordEnd();
    this.wake();
  }

  /** All units that it holds, except those that come after another unit of their key. */
  get units(): readonly Unit[] {
    const unbegun = this.loop.slots.waiting.flatMap((one) => (one instanceof ReadyBatch ? one.units : [one]));
    return [...this.#running.units, ...unbegun, ...(this.#gatherer?.units ?? [])];
  }

  onError(error: unknown): void {
    this.#worker.onError(error);
  }
}
