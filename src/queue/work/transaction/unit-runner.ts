import { Conflict, ConnectionFailed, DatabaseError, LeaseLost } from '../../../base/errors.ts';
import type { Events } from '../../../base/events.ts';
import { faults } from '../../../base/fault.ts';
import { answerDeadline } from '../../../base/work/deadlines.ts';
import { statement, Transaction } from '../../../engine/postgres/index.ts';
import type { Definition } from '../../definition.ts';
import type { ChargedJob } from '../../lost-jobs.ts';
import { namePart, pausedPartOf, type StoredPart, setAsideMs } from '../../paused-part.ts';
import type { ClaimAnswer, QueueIds } from '../../store.ts';
import { readClaim } from '../claim-reader.ts';
import { countOutcome, type Tally } from '../once/tally.ts';
import type { WorkerEvents } from '../report.ts';
import { reportOutcome } from '../report.ts';
import { type AttemptResult, type Handler, startAttempt } from '../run/attempt.ts';
import type { Job } from '../run/claimed-job.ts';
import type { Unit, UnitOwner } from '../run/unit.ts';
import { type HeldUnit, type Lane, OPEN, type PendingCommit, type UnconfirmedUnit } from './lane.ts';
import { pendingCommitOf } from './settlement.ts';

/** A unit whose handler runs, and the time of its start by the monotonic clock. */
export interface RunningUnit {
  readonly since: number;
  fail: ((why: unknown) => void) | undefined;
}

export interface UnitRunnerParts {
  readonly owner: UnitOwner;
  readonly definition: Definition;
  readonly registered: QueueIds;
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly events: Events<WorkerEvents>;
  readonly tally: Tally;
  readonly leaseMs: number;
  /** Called before a handler begins, which waits for what it returns. */
  readonly onStart: () => Promise<void> | undefined;
  /** Called when the connection of a unit was lost while its handler ran. */
  readonly onLost: (unit: UnconfirmedUnit, error: Error) => void;
  readonly onError: (error: unknown) => void;
}

const CONSTRAINTS = statement('queue.constraints', 'set constraints all immediate', { prepare: false });
/** "current transaction is aborted" */
const IS_ABORTED = '25P02';
/** How long a job of an unknown kind is delayed for a worker that knows it. */
const UNKNOWN_KIND_MS = 30_000;

/** Runs the handlers of units inside the transactions in which they are claimed. */
export class UnitRunner {
  readonly running: Map<Unit, RunningUnit> = new Map();
  readonly #parts: UnitRunnerParts;
  readonly #handlers: ReadonlyMap<string, Handler>;
  /** Jobs whose failed attempt was reported. */
  readonly #reported = new WeakSet<Job>();

  constructor(parts: UnitRunnerParts) {
    this.#parts = parts;
    this.#handlers = new Map([...parts.handlers].map(([kind, handler]) => [kind, checked(handler)]));
  }

  /**
   * Runs the unit of a claim in the lane's open transaction. @returns the statements that settle it, to be sent before its
   * COMMIT
   */
  async run(lane: Lane, answer: ClaimAnswer, shard: number, worker: number): Promise<PendingCommit> {
    const { definition, registered, owner, events, leaseMs, onLost, onError } = this.#parts;
    const { session } = lane;
    const tx = new Transaction(session);
    const batch = readClaim(answer, { shard, definition, registered, owner, tx });
    const unit = batch.units[0];
    if (unit === undefined) return OPEN;
    events.emit('claimed', { jobs: unit.jobs.length });
    const held: HeldUnit = { unit, answer, queue: registered.queue, shard, worker };
    const owed: UnconfirmedUnit = {
      held,
      since: performance.now(),
      ranMs: undefined,
      outcome: undefined,
      isSent: false,
    };
    lane.unconfirmed = owed;
    const lose = (error: Error): void => {
      // A client whose server process is ended emits two errors: what the server says, and the end of the connection.
      if (lane.unconfirmed !== owed) return;
      unit.abort(new LeaseLost('the connection whose transaction held the job was lost; the job is new again'));
      // At once, before another worker has the job; its handler may still take long.
      lane.unconfirmed = undefined;
      onLost(owed, error);
    };
    session.client.on('error', lose);
    const part = answer.pausedParts && pausedPartOf(answer.pausedParts, unit);
    const outcome = await (part === undefined ? this.#attempt(unit) : setAside(unit, part)).finally(() =>
      session.client.removeListener('error', lose),
    );
    owed.ranMs = performance.now() - owed.since;
    owed.outcome = outcome;
    tx.end();
    tx.end();
    if (faults.armed) await faults.reach('queue.before_settle');
    if (unit.hasUsedTx && session.client.getTransactionStatus?.() === 'I') onError(endedByHand(unit));
    // The handler has left a statement under way: the outcome would wait behind it, possibly for ever.
    if (outcome.complete.length === 0 && session.isBusy) await session.cancel(answerDeadline(leaseMs));
    if (session.isBroken) throw new ConnectionFailed('the connection of the claim was lost; the job is new again');
    if (outcome.isLost)
      throw new ConnectionFailed('the claim was lost; its transaction is rolled back, and the job is new again');
    countOutcome(this.#parts.tally, outcome);
    return pendingCommitOf(held, outcome);
  }

  #attempt(unit: Unit): Promise<AttemptResult> {
    return new Promise((resolve) => {
      const running: RunningUnit = { since: performance.now(), fail: undefined };
      this.running.set(unit, running);
      const end = (outcome: AttemptResult): void => {
        this.running.delete(unit);
        resolve(outcome);
      };
      const begin = (): void => {
        // Its connection, or its worker, was lost while it was recorded.
        if (unit.abortReason !== undefined) return end(NOT_BEGUN);
        running.fail = startAttempt(unit, this.#parts.definition, this.#handlers, (outcome) => {
          this.#report(unit, outcome);
          end(outcome);
        });
        if (running.fail === undefined) end(releasedForOthers(unit));
      };
      const recorded = this.#parts.onStart();
      if (recorded === undefined) begin();
      else void recorded.then(begin);
    });
  }

  #report(unit: Unit, outcome: AttemptResult): void {
    for (const { id } of outcome.failed) {
      const job = unit.jobs.find(({ number }) => number === id);
      if (job !== undefined) this.#reported.add(job);
    }
    reportOutcome(this.#parts.events, unit, outcome);
  }

  /** Reports attempts that were spent before their handlers ended. */
  reportCharged(unit: Unit, charged: readonly ChargedJob[], error: string): void {
    for (const { id, to } of charged) {
      const job = unit.jobs.find(({ number }) => number === id);
      if (job !== undefined && !this.#reported.has(job)) {
        this.#parts.events.emit('failed', { unit, job, to: to === 'new' ? 'retry' : to, error });
        if (to === 'error') this.#parts.events.emit('ended', { unit, job, status: to, error: error ?? null });
      }
    }
  }
}

const NOT_BEGUN: AttemptResult = { failed: [], complete: [], result: undefined, isLost: true, isRetried: true };

/** Gives back a unit without a handler in this program. */
function releasedForOthers(unit: Unit): AttemptResult {
  return released(unit, `no handler for kind "${unit.kind}"`, UNKNOWN_KIND_MS);
}

/** Gives back a unit of a part of the queue that is paused, until that is resumed. */
async function setAside(unit: Unit, part: StoredPart): Promise<AttemptResult> {
  return released(unit, `paused: ${namePart(part)}`, setAsideMs(part));
}

function released(unit: Unit, reason: string, wait: number): AttemptResult {
  const failed = unit.jobs.map(
    (job) => ({ claim: job.claim.id, id: job.number, to: 'release', reason, wait }) as const,
  );
  return { failed, complete: [], result: undefined, isLost: false, isRetried: true };
}

/**
 * A handler that swallowed a failed statement has not succeeded: the database refuses everything after it, including COMMIT.
 * Neither has one whose writes break a deferred constraint; this is checked now, since a failed COMMIT would fail again every
 * time.
 */
function checked(handler: Handler): Handler {
  return async (unit) => {
    const result = await handler(unit);
    if (!unit.hasUsedTx) return result;
    const { client, firstFailure } = unit.tx;
    const failed = (): Error => (firstFailure instanceof Error ? firstFailure : swallowed());
    if (client.getTransactionStatus?.() === 'E') throw failed();
    try {
      await unit.tx.query(CONSTRAINTS);
    } catch (error) {
      // The transaction status arrives after the swallowed error, possibly only after the handler has returned.
      throw error instanceof DatabaseError && error.sqlState === IS_ABORTED ? failed() : error;
    }
    return result;
  };
}

function swallowed(): Conflict {
  return new Conflict(
    'a statement of the handler failed, and its error was caught: the transaction accepts nothing more, and is rolled back; let the ' +
      'error through, or use a savepoint',
  );
}

function endedByHand({ job, kind }: Unit): Conflict {
  return new Conflict(
    `the handler of kind "${kind}" has ended the transaction of job ${job.id} itself, by a commit or rollback through unit.tx.client: its ` +
      'writes and the outcome of the job no longer commit together; leave commit and rollback to the worker',
  );
}
