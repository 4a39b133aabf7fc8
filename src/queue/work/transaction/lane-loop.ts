import { LeaseLost } from '../../../base/errors.ts';
import { faults } from '../../../base/fault.ts';
import { probe } from '../../../base/probe.ts';
import { within } from '../../../base/time/clock.ts';
import type { Sleepers } from '../../../base/work/sleepers.ts';
import type { Candidate, ClaimAnswer } from '../../store.ts';
import { hasJobs } from '../claim-reader.ts';
import { Scan, type ScanVerdict } from '../scan.ts';
import { CLOSED, type Lane, OPEN, type PendingCommit } from './lane.ts';
import type { LaneConnections } from './lane-connections.ts';
import { type Lookahead, READ_MS } from './lookahead.ts';
import type { LostTransactions } from './lost-transactions.ts';
import { claimOne, commit, enrol, take } from './pipeline.ts';
import type { Registration } from './registration.ts';
import type { UnitRunner } from './unit-runner.ts';

/** The parts that the lanes of a worker share. */
export interface LaneParts {
  readonly queue: number;
  readonly pollMs: number;
  readonly registration: Registration;
  readonly connections: LaneConnections;
  /** The look-aheads of the lanes, one per shard. */
  readonly lookaheads: readonly Lookahead[];
  readonly runner: UnitRunner;
  readonly lostTransactions: LostTransactions;
  /** Closed when the worker stops. */
  readonly sleepers: Sleepers;
  readonly beatNow: () => Promise<void>;
  /**
   * Called when the lane has found nothing, and has nothing to commit. @returns a function to call when the lane searches again
   */
  readonly onRest: () => () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Runs a lane until the worker stops: one connection, one unit after another. A look-ahead or a search finds the job, one
 * message commits the unit before it and claims the next one, and the handler runs. A failed connection is closed, and
 * another one opened.
 */
export class LaneLoop {
  readonly #parts: LaneParts;
  readonly #shards: readonly { readonly scan: Scan; readonly lookahead: Lookahead }[];
  /** The work that the next message commits. */
  #pending: PendingCommit = CLOSED;
  /** How many times in a row others held all ready rows. */
  #busy = 0;

  constructor(parts: LaneParts) {
    this.#parts = parts;
    this.#shards = parts.lookaheads.map((lookahead, shard) => ({ scan: new Scan(shard), lookahead }));
  }

  async run(): Promise<void> {
    const { connections, sleepers, onError } = this.#parts;
    let lane: Lane | undefined;
    for (let failures = 0; !sleepers.isClosed; ) {
      try {
        lane ??= await connections.connect();
        await this.#work(lane);
      } catch (error) {
        failures = lane?.hasAnswered === true ? 1 : failures + 1;
        onError(error);
        await this.#giveUp(lane, error);
        lane = undefined;
        await sleepers.sleep(Math.min(100 * 2 ** failures, 5000));
      }
    }
    if (lane !== undefined) connections.close(lane.session);
  }

  /** Claims and runs, and rests when no work is left. */
  async #work(lane: Lane): Promise<void> {
    const { registration, runner, sleepers } = this.#parts;
    this.#pending = CLOSED;
    this.#busy = 0;
    for (let at = 0; !sleepers.isClosed; ) {
      const wakes = sleepers.count;
      const shard = this.#shards[at % this.#shards.length];
      if (shard === undefined) return;
      const { scan, lookahead } = shard;
      const worker = registration.id ?? (await registration.register());
      const candidate = lookahead.next();
      const { reading } = lookahead;
      if (candidate === undefined && reading !== undefined) {
        await this.#commit(lane);
        await within(READ_MS, reading);
        at += 1;
        continue;
      }
      if (lane.worker !== worker) await enrol(lane, worker);
      const answer =
        candidate === undefined
          ? await this.#search(lane, worker, scan, lookahead)
          : await this.#take(lane, scan.shard, lookahead, candidate);
      this.#pending = OPEN;
      if (answer?.again === true) continue;
      at += 1;
      // Another worker has taken the candidate.
      if (answer === undefined) continue;
      const verdict = scan.read(answer, 1);
      if (hasJobs(answer)) {
        this.#busy = 0;
        // Told to stop while the claim was under way, the worker begins no handler any more.
        if (sleepers.isClosed) return this.#undo(lane);
        this.#pending = await runner.run(lane, answer, scan.shard, worker);
      } else if (verdict !== 'again' && this.#shards.every((each) => each.scan.quiet !== undefined)) {
        await this.#rest(lane, verdict, worker, wakes);
      }
    }
    await this.#commit(lane);
  }

  /** Rolls a claim back: its jobs are new again, uncharged. */
  async #undo(lane: Lane): Promise<void> {
    this.#pending = CLOSED;
    await lane.session.run('rollback', lane.answer);
  }

  async #commit(lane: Lane): Promise<void> {
    const pending = this.#pending;
    if (pending.kind === 'closed') return;
    if (lane.unconfirmed !== undefined) lane.unconfirmed.isSent = true;
    await commit(lane, pending);
    this.#pending = CLOSED;
    lane.unconfirmed = undefined;
    if (faults.armed && pending.kind !== 'open') await faults.reach('queue.after_settle');
  }

  /** Claims the first unit, when the look-ahead has no candidate. */
  async #search(lane: Lane, worker: number, scan: Scan, lookahead: Lookahead): Promise<ClaimAnswer> {
    const { shard, cursor, rows, blocker } = scan;
    const request = { queue: this.#parts.queue, shard, worker, rows, cursor, blocker };
    const { claimed, unblocked = 0 } = await this.#send(lane, () => claimOne(lane, this.#pending, request));
    scan.blocker = claimed.blockedBy && { what: claimed.blockedBy, rows, cursor };
    // Other lanes may be asleep, since there was nothing for them.
    if (unblocked > 0) this.#parts.sleepers.wakeAll();
    if (!hasJobs(claimed)) lookahead.foundNone();
    else if (claimed.claimedAt !== undefined && claimed.last !== undefined) lookahead.found(claimed.last);
    return claimed;
  }

  /** @returns undefined when another worker has the candidate */
  async #take(lane: Lane, shard: number, lookahead: Lookahead, candidate: Candidate): Promise<ClaimAnswer | undefined> {
    let answer: ClaimAnswer | undefined;
    try {
      const { queue } = this.#parts;
      answer = await this.#send(lane, () => take(lane, this.#pending, { queue, shard }, candidate));
      return answer;
    } finally {
      lookahead.ended(candidate, answer !== undefined);
    }
  }

  /** Sends a message that commits the pending outcome and claims. */
  async #send<T>(lane: Lane, claim: () => Promise<T>): Promise<T> {
    const { kind } = this.#pending;
    if (lane.unconfirmed !== undefined) lane.unconfirmed.isSent = true;
    const answer = await claim();
    lane.hasAnswered = true;
    lane.unconfirmed = undefined;
    if (faults.armed && kind !== 'closed' && kind !== 'open') await faults.reach('queue.after_settle');
    if (faults.armed) await faults.reach('queue.after_claim');
    return answer;
  }

  /**
   * Rests while no shard has jobs, until one is due or a wake-up comes. @param wakes  how many wake-ups had come before the
   * first shard was polled
   */
  async #rest(lane: Lane, verdict: ScanVerdict, worker: number, wakes: number): Promise<void> {
    const { pollMs, sleepers } = this.#parts;
    await this.#commit(lane);
    for (const { scan } of this.#shards) scan.quiet = undefined;
    const due = Math.min(...this.#shards.map(({ scan }) => scan.due));
    const ms = verdict === 'busy' ? Math.min(2 ** this.#busy++, 100) : Math.min(pollMs, due);
    if (verdict === 'empty' && probe.listening) probe.hit('queue.idle', { worker });
    if (wakes !== sleepers.count) return;
    const onEnd = this.#parts.onRest();
    await sleepers.sleep(ms);
    onEnd();
  }

  /** Called when the connection of a lane has failed: the pending commit is rolled back with it. */
  async #giveUp(lane: Lane | undefined, error: unknown): Promise<void> {
    const { connections, lostTransactions, sleepers, beatNow, onError } = this.#parts;
    // The lease is over, but perhaps no worker has found that: the heartbeat reports the loss, or renews the lease.
    if (error instanceof LeaseLost) await beatNow().catch(onError);
    if (lane === undefined) return;
    const backend = connections.giveUp(lane.session, error);
    await lostTransactions.add(backend, sleepers.isClosed ? undefined : lane.unconfirmed, error);
  }
}
