import type { CallLimits, DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { ProcessIdentity } from '../identity.ts';
import type { GrantKey, RequestKey } from '../store.ts';
import { type HeadHolder, toPast } from './head.ts';
import type { Heads } from './heads.ts';
import { ANY_TRACE } from './items/holder.ts';
import { headOf, lockKey, shortNonce } from './items/key.ts';
import { makePermanent, release, renew } from './items/requests.ts';
import type { Staleness } from './staleness.ts';

/** The facts that this process knows about one of its grants. */
interface Grant {
  /** The time of the grant by the clock of the service. */
  readonly grantedAt: number;
  beats: number;
  /** The holder has waited for another lock meanwhile. */
  hasWaited: boolean;
}

/** The grants of this process: renews and releases them. Also judges whether other holders are alive. */
export class Grants {
  readonly #engine: DynamoEngine;
  readonly #self: ProcessIdentity;
  readonly #heads: Heads;
  readonly #staleness: Staleness;
  readonly #known = new Map<string, Grant>();

  constructor(engine: DynamoEngine, self: ProcessIdentity, heads: Heads, staleness: Staleness) {
    this.#engine = engine;
    this.#self = self;
    this.#heads = heads;
    this.#staleness = staleness;
  }

  /** @param beats  how often the grant was renewed already */
  add(claim: string, beats: number): void {
    this.#known.set(claim, { grantedAt: this.#engine.now(), beats, hasWaited: false });
  }

  /** Forgets a grant that was given back. */
  forget(claim: string): void {
    this.#known.delete(claim);
  }

  /** Notes that the holder will wait for another lock. */
  noteWaiting(claim: string): void {
    const known = this.#known.get(claim);
    if (known !== undefined) known.hasWaited = true;
  }

  /**
   * Removes the lease of a grant, so that the lock stays held until it is released or broken. @returns false if it is not held in
   * all of its names
   */
  async makePermanent(claim: RequestKey, token: bigint, limits: CallLimits): Promise<boolean> {
    const known = this.#known.get(claim.nonce);
    if (known === undefined) return false;
    known.beats += 1;
    const { host, pid } = this.#self;
    const { grantedAt, beats } = known;
    const beatAt = this.#engine.now();
    const beat = `${beats} ${beatAt}`;
    const nonce = shortNonce(claim.nonce);
    const holder = { nonce, token, capacity: claim.capacity, host, pid, grantedAt, beatAt, beat, waitsFor: undefined };
    const written = makePermanent(holder, beat);
    const writes = claim.names.map((name) => ({ key: headOf(lockKey(claim.space, name)), written }));
    const [only] = writes;
    // Changes all names of a set or none. Otherwise a name without a lease could stay held without the others.
    if (only === undefined || writes.length > 1) return (await this.#engine.transact(writes, limits)).isDone;
    return (await this.#engine.update(only.key, only.written, 'NONE', limits)).isDone;
  }

  /** Renews a grant in all its names. @returns whether it is held in all of them */
  async renew({ space, names, capacity, nonce }: GrantKey, limits: CallLimits): Promise<boolean> {
    const known = this.#known.get(nonce);
    if (known === undefined) return false;
    known.beats += 1;
    const written = renew({ nonce: shortNonce(nonce), capacity }, `${known.beats} ${this.#engine.now()}`);
    const beating = names.map((name) => {
      return this.#engine.update(headOf(lockKey(space, name)), written, 'NONE', limits);
    });
    const isKept = (await Promise.all(beating)).every((outcome) => outcome.isDone);
    if (!isKept) this.#known.delete(nonce);
    return isKept;
  }

  /** Releases a grant in each name in which it is held. @returns whether it was held in all of its names */
  async release(held: GrantKey, isCounted: boolean, limits: CallLimits): Promise<boolean> {
    const { space, names, token, capacity, nonce } = held;
    const at = this.#engine.now();
    const { grantedAt = at, beats = 1, hasWaited = true } = this.#known.get(nonce) ?? {};
    const trace = { hasBeaten: beats > 0, hasWaited };
    const { host, pid } = this.#self;
    const past = {
      token,
      capacity,
      host,
      pid,
      grantedAt,
      endedAt: at,
      outcome: 'released',
      reason: undefined,
    } as const;
    const releasing = names.map(async (name) => {
      const pk = lockKey(space, name);
      const written = release(shortNonce(nonce), past, trace, isCounted ? grantedAt : undefined);
      const outcome = await this.#engine.update(headOf(pk), written, this.#heads.returns, limits);
      const told = this.#heads.observe(pk, outcome);
      if (outcome.isDone) return true;
      const head = told ?? (await this.#heads.read(pk, limits));
      const remembered = head.past.find((each) => each.token === token);
      // The first try may have been carried out. If later holders have pushed its record out of the head, nothing shows
      // that. The lock is not held, which is the goal.
      return remembered === undefined ? outcome.isRepeated : remembered.outcome === 'released';
    });
    const released = await Promise.all(releasing);
    this.#known.delete(nonce);
    return released.every(Boolean);
  }

  /** Removes a grant of this process that no caller needs. */
  async drop(pk: string, holder: HeadHolder, limits: CallLimits): Promise<void> {
    const past = toPast(holder, 'released', undefined, this.#engine.now());
    const written = release(holder.nonce, past, ANY_TRACE, undefined);
    this.#heads.observe(pk, await this.#engine.update(headOf(pk), written, 'ALL_NEW', limits));
  }

  /** How long until a holder that does not renew has certainly lost its lease; 0 if it has. */
  staleInMs(pk: string, { nonce, beat, leaseMs, beatAt }: HeadHolder): number {
    const leftMs = this.#staleness.observe(`${pk} ${nonce}`, beat, leaseMs);
    const { clockSkewMs } = this.#engine;
    if (clockSkewMs === undefined) return leftMs;
    return Math.max(0, Math.min(leftMs, beatAt + leaseMs + clockSkewMs - this.#engine.now()));
  }
}
