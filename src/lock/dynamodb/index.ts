import { NotSupported } from '../../base/errors.ts';
import {
  type CallLimits,
  type ConditionCheckItem,
  type DynamoEngine,
  Expression,
} from '../../engine/dynamodb/index.ts';
import type { ProcessIdentity } from '../identity.ts';
import type {
  AcquireAnswer,
  AcquireCall,
  BrokenHolder,
  CallOptions,
  CountedRun,
  Explanation,
  GrantKey,
  LockStore,
  NoticeHandlers,
  NoticeStream,
  PastHolder,
  ReleaseResult,
  RenewResult,
  RequestKey,
  Snapshot,
  WakeUp,
} from '../store.ts';
import { AcquireAttempt } from './acquire-attempt.ts';
import { DeadlockDetector } from './deadlock.ts';
import { Grants } from './grants.ts';
import { ended, firstToEnd, type HeadHolder, MOST_HOLDERS } from './head.ts';
import { Heads } from './heads.ts';
import { LockInspector, toPastHolder } from './inspect.ts';
import { whileHeld } from './items/holder.ts';
import { headOf, lockKey, shortNonce } from './items/key.ts';
import { NewestFew } from './newest-few.ts';
import type { CallParts } from './running-call.ts';
import { Staleness } from './staleness.ts';
import { LocalWaiters } from './waiting/local-waiters.ts';
import { WaiterQueue } from './waiting/waiter-queue.ts';
import { Withdrawals } from './waiting/withdrawal.ts';

const OPERATOR: CallLimits = { timeoutMs: 10_000 };
/** A set takes two writes for each name, and a transaction has at most a hundred. */
const MOST_NAMES = 50;
/** The first lease of a lock without a lease, until the second write removes it. It is longer than a call may take. */
const UNKEPT_MS = 30_000;
/** How many renewals are under way at once. More would only wait for a connection. */
const BEATS_AT_ONCE = 40;

/**
 * Locks on DynamoDB. Every decision is a conditional write of the head of a lock, or, for a set, of all its heads in one
 * transaction. See `head.ts` for the head.
 */
export class DynamoLockStore implements LockStore {
  readonly mostPermits: number = MOST_HOLDERS;
  readonly #engine: DynamoEngine;
  readonly #parts: CallParts;
  readonly #survey: LockInspector;
  /** Claims that found the lock held. They read the head before they try again. */
  readonly #refused = new NewestFew<true>();
  readonly #withdrawals: Withdrawals;
  #notices: NoticeHandlers | undefined;

  constructor(engine: DynamoEngine, self: ProcessIdentity) {
    this.#engine = engine;
    const waiters = new LocalWaiters((nonce) => this.#notices?.onWakeUp({ nonce, token: undefined }));
    const heads = new Heads(
      engine,
      (pk, head) => waiters.observe(pk, head),
      () => waiters.size > 0,
    );
    const staleness = new Staleness();
    const queue = new WaiterQueue(engine, heads, staleness);
    const grants = new Grants(engine, self, heads, staleness);
    const deadlocks = new DeadlockDetector(engine, heads, queue, grants);
    this.#parts = { engine, self, heads, queue, deadlocks, staleness, waiters, grants };
    this.#withdrawals = new Withdrawals(this.#parts);
    this.#survey = new LockInspector(engine, heads, queue, deadlocks);
  }

  /**
   * A lock without a lease is first granted with one, which a second write removes. If the first write arrives after its
   * caller has given up, the grant ends by itself.
   */
  async acquire(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer> {
    if (call.names.length > MOST_NAMES) {
      throw new NotSupported(`on DynamoDB a set has at most ${MOST_NAMES} names, not ${call.names.length}`);
    }
    if (call.leaseMs !== Infinity) return this.#attempt(call, options);
    let { isRetry } = call;
    for (;;) {
      const answer = await this.#attempt({ ...call, leaseMs: UNKEPT_MS, isRetry }, options);
      if (answer.kind !== 'granted') return answer;
      if (await this.#parts.grants.makePermanent(call, answer.token, options)) return answer;
      // The grant was broken or ran out in between.
      isRetry = true;
    }
  }

  async #attempt(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer> {
    const { nonce, isRetry } = call;
    const isKnown = isRetry || this.#refused.get(nonce) === true || this.#parts.waiters.get(nonce) !== undefined;
    this.#withdrawals.noteDoubt(nonce, true);
    const answer = await new AcquireAttempt(this.#parts, call, options).run(!isKnown && call.names.length === 1);
    this.#withdrawals.noteDoubt(nonce, false);
    if (answer.kind === 'held') this.#refused.set(nonce, true);
    else this.#refused.delete(nonce);
    return answer;
  }

  async withdraw(
    claim: RequestKey,
    options: CallOptions,
  ): Promise<{ holder: string | undefined; wakeUps: readonly WakeUp[] }> {
    this.#refused.delete(claim.nonce);
    const holder = await this.#withdrawals.withdraw(claim, options);
    return { holder: holder === undefined ? undefined : `${holder.host} (pid ${holder.pid})`, wakeUps: [] };
  }

  /** Renews each lock in a request of its own, since a problem with one must not affect the others. */
  async renew(held: readonly GrantKey[], options: CallOptions): Promise<RenewResult> {
    const renewed = new Set<number>();
    const unknown = new Map<number, unknown>();
    const due = held.entries();
    const beatOn = async (): Promise<void> => {
      for (const [index, each] of due) {
        const fail = (error: unknown): void => void unknown.set(index, error);
        await this.#parts.grants.renew(each, options).then((isKept) => isKept && renewed.add(index), fail);
      }
    };
    await Promise.all(Array.from({ length: Math.min(BEATS_AT_ONCE, held.length) }, beatOn));
    return { renewed, unknown };
  }

  async release(held: GrantKey, finish: CountedRun | undefined, options: CallOptions): Promise<ReleaseResult> {
    const isReleased = await this.#parts.grants.release(held, finish !== undefined, options);
    // Waiters of this process were woken when the head was read.
    return { isReleased, wakeUps: [] };
  }

  async howEnded({ space, names, token }: GrantKey, options: CallOptions): Promise<PastHolder | undefined> {
    const found: PastHolder[] = [];
    for (const name of names) {
      const { past } = await this.#parts.heads.read(lockKey(space, name), options);
      found.push(...past.filter((each) => each.token === token).map((each) => toPastHolder(name, each)));
    }
    return found.find((each) => each.outcome === 'broken') ?? found[0];
  }

  checks({ space, names, capacity, nonce }: GrantKey): readonly ConditionCheckItem[] {
    const written = whileHeld(new Expression(), { nonce: shortNonce(nonce), capacity }).write();
    return names.map((name) => this.#engine.check(headOf(lockKey(space, name)), written));
  }

  async guard(): Promise<void> {
    throw new NotSupported(
      'on DynamoDB guard() takes no transaction, but returns the parts to put into yours: ' +
        'new TransactWriteItemsCommand({ TransactItems: [...lock.guard(), …] })',
    );
  }

  /** Breaks the locks of all present holders, in as many writes as they need. Readers that are granted the lock between two writes keep it. */
  async break(space: string, name: string, reason: string): Promise<readonly BrokenHolder[]> {
    const pk = lockKey(space, name);
    const broken: HeadHolder[] = [];
    let meant: ReadonlySet<string> | undefined;
    for (;;) {
      const before = await this.#parts.heads.read(pk, OPERATOR);
      const isMeant = ({ nonce }: HeadHolder): boolean => meant === undefined || meant.has(nonce);
      const which = firstToEnd(before, isMeant) ?? isMeant;
      const gone = before.holders.filter(which);
      if (gone.length === 0) return broken.map(toBroken);
      const after = ended(before, which, 'broken', reason, this.#engine.now());
      if (!(await this.#parts.heads.write([{ pk, before, after }], OPERATOR))) continue;
      meant ??= new Set(before.holders.map(({ nonce }) => nonce));
      broken.push(...gone);
    }
  }

  snapshot(space: string): Promise<Snapshot> {
    return this.#survey.snapshot(space);
  }

  explain(space: string, name: string): Promise<Explanation> {
    return this.#survey.explain(space, name);
  }

  history(space: string, name: string | undefined, limit: number): Promise<readonly PastHolder[]> {
    return this.#survey.history(space, name, limit);
  }

  /** Does nothing, since DynamoDB itself removes old rows of waiters, and heads must stay. */
  async sweep(): Promise<void> {}

  /** DynamoDB sends no notifications. So only states that this process itself reads wake waiters. */
  async notices(to: NoticeHandlers): Promise<NoticeStream> {
    this.#notices = to;
    return {
      isReliable: false,
      stop: async () => {
        this.#notices = undefined;
      },
    };
  }

  isTransient(error: unknown): boolean {
    return this.#engine.isTransient(error);
  }
}

function toBroken({ token, host, pid, grantedAt }: HeadHolder): BrokenHolder {
  return { token, host, pid, since: new Date(grantedAt) };
}
