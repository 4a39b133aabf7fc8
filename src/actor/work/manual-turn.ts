import { Conflict, ConnectionFailed, LeaseLost } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import type { ActorDefinition } from '../definition.ts';
import type { ActorRecord } from '../record.ts';
import type { ActorClaim, CommitAnswer } from '../store.ts';
import type { TurnOwner } from '../turn/turn-requests.ts';
import type { LeaseHolder, WorkPorts } from './ports.ts';
import { startTurn } from './run/attempt.ts';
import { asOrphaning, asRefused, type TurnResult } from './run/turn-result.ts';
import { RowLocked } from './settler.ts';
import { unknownReason } from './unknown-state.ts';
import { workerRow } from './worker-row.ts';

/** The outcome of one turn. */
export interface WorkedTurn {
  /** `failed` is not an exception: the turn will be tried again, and `error` says why it failed. */
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  readonly from: string;
  readonly to: string;
  readonly error: unknown;
}

export interface ManualTurnRequest extends WorkPorts {
  readonly owner: TurnOwner;
  readonly types: ReadonlyMap<number, ActorDefinition>;
  readonly actor: number;
  readonly show: () => Promise<ActorRecord>;
}

/** A turn by hand has the lease of a dispatcher, but claims no other actor, and is not woken. */
const LEASE_MS = 20_000;
/** The epochs of the actors that it keeps. */
const NOTHING: ReadonlyMap<number, number> = new Map();
/** Between two tries of a commit whose answer was lost. */
const RETRY_MS = 200;

/** Runs one turn of one actor, now. @returns undefined if another process runs one @throws NotFound, Conflict, LeaseLost */
export async function runManualTurn(given: ManualTurnRequest): Promise<WorkedTurn | undefined> {
  const { store, keeper, types, actor } = given;
  const worker = await store.addWorker(workerRow(types, { concurrency: 1, leaseMs: LEASE_MS }, false));
  const kept = new ManualWorker(worker);
  keeper.add(kept);
  try {
    const claim = await store.claimOne(worker, actor);
    if (faults.armed) await faults.reach('actor.after_claim');
    if (claim === undefined) {
      const { finishedAt, type, state } = await given.show();
      if (finishedAt !== null)
        throw new Conflict(`actor ${actor} is final: ${type} ended in "${state}" at ${finishedAt.toISOString()}`);
      return undefined;
    }
    return await runTurn(given, claim, worker, kept);
  } catch (error) {
    // The answer to the claim was lost, the turn did not begin, or it is unknown whether it was written. If the actor is still this
    // worker's, it is given back: a rescue, if there is a dispatcher at all, would charge the attempt.
    if (!kept.isLost) await store.leave(worker, NOTHING).catch(() => {});
    throw error;
  } finally {
    await keeper.remove(kept);
    await store.endWorker(worker).catch(() => {});
  }
}

async function runTurn(
  { store, keeper, writer, owner, types }: ManualTurnRequest,
  claim: ActorClaim,
  worker: number,
  kept: ManualWorker,
): Promise<WorkedTurn> {
  const { id: actor, type, state: name, epoch, version } = claim;
  const definition = types.get(type);
  const state = definition?.states.get(name);
  if (definition === undefined || state === undefined || version > definition.version) {
    const reason = unknownReason(claim, definition);
    await store.reportUnknown({ actor, epoch, worker }, type, name, version, reason);
    throw new Conflict(reason);
  }
  if (!keeper.hasLease)
    throw new LeaseLost(
      `the process was suspended or blocked before the turn of actor ${actor} began; the turn was not run`,
    );
  const finished = await new Promise<TurnResult>((resolve) => {
    const running = startTurn(claim, { definition, state, worker, owner }, resolve, (turn, body) =>
      writer.hold(turn, body, state.timeoutMs),
    );
    void kept.whenLost.then((reason) => running.lose(reason));
  });
  if (finished.isLost) throw finished.error;
  const isKept = (): boolean => keeper.hasLease && !kept.isLost;
  const committed = finished.isWritten === true ? finished : await commit({ store, writer, worker, isKept }, finished);
  const { settled, error } = committed;
  return { kind: settled.kind, from: settled.from, to: settled.to ?? settled.from, error };
}

interface Committing extends Pick<WorkPorts, 'store' | 'writer'> {
  readonly worker: number;
  /** Whether the turn is still this process's, as far as it knows. */
  readonly isKept: () => boolean;
}

/** If its effects are refused, the turn has failed, and is written as a failed one. */
async function commit(by: Committing, finished: TurnResult): Promise<TurnResult> {
  try {
    const answer = await write(by, finished);
    return answer.refused.length > 0 ? asOrphaning(finished) : finished;
  } catch (error) {
    const isOver = error instanceof LeaseLost || error instanceof RowLocked || by.store.engine.isTransient(error);
    if (isOver || finished.settled.kind === 'failed') throw error;
    const failed = asRefused(finished, error);
    await write(by, failed);
    return failed;
  }
}

/**
 * Tries for a lease, until the answer is known.
 * @throws ConnectionFailed  an answer was lost, and whether the turn was written is not known: by now it is this turn's no more
 */
async function write(by: Committing, result: TurnResult): Promise<CommitAnswer> {
  // What the body's own transaction came to is not known either.
  let doubt = unknownOutcome(result.error);
  const begun = moment();
  for (let tries = 1; ; tries += 1) {
    try {
      return await by.writer.commit(by.worker, result, LEASE_MS);
    } catch (error) {
      if (error instanceof LeaseLost) throw doubt ?? error;
      if (!by.store.engine.isTransient(error)) throw error;
      doubt ??= unknownOutcome(error);
      if (!by.isKept() || waitedFor(begun) > LEASE_MS) throw doubt ?? error;
      await sleep(RETRY_MS * Math.min(tries, 10));
    }
  }
}

function unknownOutcome(error: unknown): ConnectionFailed | undefined {
  return error instanceof ConnectionFailed && error.outcome === 'unknown' ? error : undefined;
}

class ManualWorker implements LeaseHolder {
  readonly workerId: number;
  readonly wantsNotify = false;
  isLost = false;
  lost!: (reason: LeaseLost) => void;
  /** Resolves also if the lease was lost before the turn began. */
  readonly whenLost: Promise<LeaseLost> = new Promise((resolve) => {
    this.lost = (reason) => {
      this.isLost = true;
      resolve(reason);
    };
  });

  constructor(workerId: number) {
    this.workerId = workerId;
  }

  /** A failed heartbeat is tried again; the turn learns of it when its lease is over. */
  onError(): void {}
}
