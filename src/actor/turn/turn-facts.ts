import { createHash } from 'node:crypto';
import { checkOptions, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import type { ActorClaim, TurnToken } from '../store.ts';
import { TurnLife } from './turn-life.ts';

const keyShape = { name: text({ min: 1 }) };

/** The part of a turn that its body can read: the actor as it was claimed, and the keys of its visit. */
export class TurnFacts<F> {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  /** The fields as they were when the turn began. To change them, pass a patch to the outcome. */
  readonly fields: F;
  /** 1 for the first try in a row. */
  readonly attempt: number;
  /** Rises with each transition: the same number means the same visit of the same state. */
  readonly visit: number;
  readonly enteredAt: Date;
  /** When the turn was claimed, by the database's clock. */
  readonly now: Date;
  /** The error of the previous turn; null if that did not fail. */
  readonly error: string | null;
  /** If a failure moved the actor to this state, by `fatal()` or after `tries`: its error. It stays for the whole visit. */
  readonly cause: string | null;
  readonly parent: string | null;
  /** Children that were not final when the turn began. */
  readonly openChildren: number;
  /**
   * The fencing token: it rises with each turn of this actor. Pass it with each write, so that the receiver can refuse writes of
   * a late owner.
   */
  readonly token: bigint;
  /** @internal */
  readonly claim: ActorClaim;
  /** @internal */
  readonly worker: number;
  /** @internal */
  readonly life: TurnLife;

  /** @internal */
  constructor(claim: ActorClaim, worker: number, type: string, fields: F) {
    const { id, state, visit, epoch, attempt, children, enteredMs, parent } = claim;
    this.id = String(id);
    this.type = type;
    this.state = state;
    this.fields = fields;
    this.attempt = attempt;
    this.visit = visit;
    this.enteredAt = new Date(enteredMs);
    this.now = new Date(claim.nowMs);
    this.error = claim.error ?? null;
    this.cause = claim.cause ?? null;
    this.parent = parent === 0 ? null : String(parent);
    this.openChildren = children;
    this.token = BigInt(epoch);
    this.claim = claim;
    this.worker = worker;
    this.life = new TurnLife(`${type} ${id}`);
  }

  /**
   * A key for any service that takes one (an idempotency key, a client token, a name). It is the same for every try of this visit
   * of the state. It differs for another visit, another name, other arguments, and another actor.
   */
  key(name: string, args?: unknown): string {
    checkOptions('key', { name }, keyShape);
    const parts = toJson([this.type, this.id, this.visit, name, args ?? null], `the arguments of key("${name}")`);
    return createHash('sha256').update(parts).digest('hex').slice(0, 32);
  }

  /** @internal */
  get turnToken(): TurnToken {
    return { actor: this.claim.id, epoch: this.claim.epoch, worker: this.worker };
  }
}
