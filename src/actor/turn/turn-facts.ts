import { createHash } from 'node:crypto';
import { checkOptions, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import type { ActorClaim, TurnToken } from '../store.ts';
import { TurnLife } from './turn-life.ts';

const keyShape = { name: text({ min: 1 }) };

/** What a body can read of its turn: the actor as it was claimed, and the keys of its visit. */
export class TurnFacts<F> {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  /** As they were when the turn began. Change them by what you give to the outcome. */
  readonly fields: F;
  /** 1 for the first try in a row. */
  readonly attempt: number;
  /** Rises with each transition: the same number is the same visit of the same state. */
  readonly visit: number;
  readonly enteredAt: Date;
  /** When the turn was claimed, by the database's clock. */
  readonly now: Date;
  /** Why the turn before failed; null when it did not. */
  readonly error: string | null;
  /** Why the actor was moved to this state, where that was a failure: by `fatal()` or after so many `tries`. For the whole visit. */
  readonly cause: string | null;
  readonly parent: string | null;
  /** Children that were not final when the turn began. */
  readonly openChildren: number;
  /** Rises with each turn of this actor: pass it to whatever you write, to refuse a late owner's writes there. */
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
   * A key for whatever takes one (an idempotency key, a client token, a name): the same for every try of this visit of the
   * state, another on the next visit, with another name or other arguments, and for another actor.
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
