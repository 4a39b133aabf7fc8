import { Draw } from '../../../support/random.ts';
import type { Decision, HoldEnd, LockHistory, Operation, Written } from '../history.ts';
import { SHARED, type Step } from '../plan.ts';

/** Ways in which a simulated store or client breaks a promise. */
export const BUGS = [
  'a held lock is taken',
  'who came last is served first',
  'a token stands still',
  'a holder believes too long',
  'a guard does nothing',
  'a release is forgotten',
  'a wait ends early',
  'a committed write is gone',
  'a refused write is there',
  'a run happens twice',
  'a healthy lease is lost',
  'a broken holder is not told',
] as const;

export type Bug = (typeof BUGS)[number];

/**
 * A legal history of locks: a store that decides in one order, and clients that wait, hold, write, are suspended, are killed,
 * and lose answers. With a bug, the history is not legal.
 */
export function simulate(seed: number, bug?: Bug): LockHistory {
  return new Simulation(seed, bug).run();
}

interface Waiter {
  readonly client: Client;
  readonly operation: Operation;
  readonly nonce: string;
  readonly ticket: number;
  until: number;
  keptAt: number;
}

interface Holder {
  readonly operation: Operation;
  readonly token: string;
  readonly capacity: number;
  until: number;
  /** No other client can get the lock before this time, because the transaction of a guard is open. */
  guardedUntil: number;
}

interface Client {
  readonly name: string;
  stepsLeft: number;
  standsUntil: number;
  isCalm: boolean;
  restsUntil: number;
  waiter: Waiter | undefined;
  holder: Holder | undefined;
  /** When the last confirmed renewal was sent. */
  sentAt: number;
  releasesAt: number;
  /** A write that is under way: the read value, and the times of its guard and of its commit. */
  writing:
    | { readonly value: number; readonly guardAt: number; readonly commitAt: number; isGuarded: boolean }
    | undefined;
}

const NAME = 'n';
const [LEASE_MS, PLACE_MS] = [1000, 1500];

class Simulation {
  readonly #draw: Draw;
  readonly #bug: Bug | undefined;
  readonly #clients: Client[];
  readonly #operations: Operation[] = [];
  readonly #written: Written[] = [];
  readonly #decisions: Decision[] = [];
  readonly #ended: HoldEnd[] = [];
  #holders: Holder[] = [];
  #waiters: Waiter[] = [];
  #value = 0;
  #token = 0;
  #now = 0;
  #decided = 0;
  #runs = 0;

  constructor(seed: number, bug: Bug | undefined) {
    this.#draw = new Draw(seed, 'simulated');
    this.#bug = bug;
    this.#clients = Array.from({ length: this.#draw.int(2, 5) }, (_, index) => ({
      name: `client-${index}`,
      stepsLeft: this.#draw.int(2, 6),
      standsUntil: 0,
      isCalm: true,
      restsUntil: 0,
      waiter: undefined,
      holder: undefined,
      sentAt: 0,
      releasesAt: 0,
      writing: undefined,
    }));
  }

  run(): LockHistory {
    while (
      this.#clients.some((client) => client.stepsLeft > 0 || client.waiter !== undefined || client.holder !== undefined)
    ) {
      this.#now += this.#draw.int(5, 60);
      for (const client of this.#clients) {
        this.#disturb(client);
        if (client.standsUntil <= this.#now) this.#live(client);
      }
      if (this.#draw.chance(0.8)) this.#decide();
    }
    return {
      engine: 'postgres',
      operations: this.#operations,
      written: this.#written,
      decisions: this.#decisions,
      ended: this.#ended,
      sightings: [],
      calm: new Set(this.#clients.filter(({ isCalm }) => isCalm).map(({ name }) => name)),
      wasRestarted: false,
      complaints: [],
      clockErrorMs: 2,
    };
  }

  #disturb(client: Client): void {
    if (this.#draw.chance(0.01)) {
      client.standsUntil = this.#now + this.#draw.int(100, 2500);
      client.isCalm = false;
    } else if (this.#draw.chance(0.004)) {
      // A kill ends the transaction and the place. The lock ends with its lease. The step has no more notes.
      if (client.holder !== undefined) client.holder.guardedUntil = 0;
      Object.assign(client, { waiter: undefined, holder: undefined, writing: undefined, isCalm: false });
      client.restsUntil = this.#now + 200;
    }
  }

  #live(client: Client): void {
    if (client.holder !== undefined) this.#hold(client, client.holder);
    else if (client.waiter !== undefined) this.#wait(client, client.waiter);
    else if (client.stepsLeft > 0 && client.restsUntil <= this.#now) this.#begin(client);
  }

  #begin(client: Client): void {
    client.stepsLeft -= 1;
    const kind = this.#draw.weighted({ exclusive: 6, shared: 2, permit: 2, break: 0.5, once: 0.5 });
    const step = this.#step(kind);
    const operation: Operation = {
      id: `${client.name}/${this.#operations.length}`,
      member: client.name,
      pid: 1,
      step,
      askedAt: this.#now,
      grantedAt: undefined,
      token: undefined,
      believedUntil: undefined,
      lostAt: undefined,
      lostReason: undefined,
      wrote: undefined,
      end: undefined,
    };
    this.#operations.push(operation);
    if (kind === 'break') this.#break(operation);
    else if (kind === 'once') this.#once(operation);
    else this.#takePlace(client, operation);
  }

  #step(kind: Step['kind']): Step {
    const capacity = kind === 'shared' ? SHARED : kind === 'permit' ? 2 : 1;
    const waitMs = this.#draw.pick(null, null, this.#draw.int(100, 2000));
    const writing = kind === 'exclusive' && this.#draw.chance(0.7) ? { pauseMs: 0, lateMs: 0, isUnaware: true } : null;
    const rest = { restMs: 0, isFair: true, abortMs: null, holdMs: 0, leaseMs: LEASE_MS };
    return { kind, names: [NAME], capacity, waitMs, writing, ...rest };
  }

  #break(operation: Operation): void {
    for (const holder of this.#holders.filter(({ guardedUntil }) => guardedUntil <= this.#now))
      this.#end(holder, 'broken', this.#now);
    operation.end = { at: this.#now, how: 'broke', error: undefined };
  }

  #once(operation: Operation): void {
    const isFirst = this.#runs === 0 || this.#bug === 'a run happens twice';
    this.#runs += 1;
    operation.end = { at: this.#now, how: isFirst ? 'run' : 'not run', error: undefined };
  }

  #takePlace(client: Client, operation: Operation): void {
    const ticket = Math.max(0, ...this.#waiters.map((each) => each.ticket)) + 1;
    const nonce = `${operation.id}#${this.#decisions.length}`;
    const waiter: Waiter = { client, operation, nonce, ticket, until: this.#now + PLACE_MS, keptAt: this.#now };
    client.waiter = waiter;
    this.#waiters.push(waiter);
    this.#note('place', waiter);
  }

  #wait(client: Client, waiter: Waiter): void {
    const { operation } = waiter;
    const { waitMs } = operation.step;
    const early = this.#bug === 'a wait ends early' ? 300 : 0;
    if (waitMs !== null && this.#now - operation.askedAt >= waitMs - early) {
      this.#leave(waiter);
      client.waiter = undefined;
      operation.end = { at: this.#now, how: 'refused', error: 'LockTimeout' };
      client.restsUntil = this.#now + this.#draw.int(0, 200);
    } else if (!this.#waiters.includes(waiter)) {
      this.#takePlace(client, operation);
    } else if (this.#now - waiter.keptAt > PLACE_MS / 3) {
      if (waiter.until <= this.#now) return;
      Object.assign(waiter, { until: this.#now + PLACE_MS, keptAt: this.#now });
      this.#note('kept', waiter);
    }
  }

  #hold(client: Client, holder: Holder): void {
    const { operation } = holder;
    const isThere = this.#holders.includes(holder);
    const isDeaf = this.#bug === 'a broken holder is not told';
    const isCredulous = this.#bug === 'a holder believes too long' || isDeaf;
    if (this.#write(client, holder, isThere)) return;
    if (this.#now >= client.sentAt + LEASE_MS * 0.99 && !isCredulous) return this.#lose(client, 'blocked');
    if (this.#now - client.sentAt > LEASE_MS / 3) {
      if (!isThere && !isCredulous) return this.#lose(client, 'broken');
      client.sentAt = this.#now;
      if (this.#bug !== 'a healthy lease is lost') holder.until = Math.max(holder.until, this.#now + LEASE_MS);
    }
    operation.believedUntil = this.#now;
    if (client.releasesAt <= this.#now && client.writing === undefined) this.#release(client, holder, isThere);
  }

  /** @returns whether the client waits for the commit of its write */
  #write(client: Client, holder: Holder, isThere: boolean): boolean {
    const { writing } = client;
    const { operation } = holder;
    if (writing === undefined || this.#now < writing.guardAt) return false;
    if (!writing.isGuarded) {
      writing.isGuarded = isThere;
      // The transaction keeps other clients out until it ends, however late.
      holder.guardedUntil = isThere ? Infinity : 0;
    }
    const passes = writing.isGuarded || this.#bug === 'a guard does nothing';
    if (passes && this.#now < writing.commitAt) return true;
    client.writing = undefined;
    holder.guardedUntil = 0;
    const isLost = this.#draw.chance(0.1);
    const isWritten = passes ? this.#bug !== 'a committed write is gone' : this.#bug === 'a refused write is there';
    operation.wrote = isLost ? 'unknown' : passes ? 'committed' : 'refused';
    if (!isWritten) return false;
    this.#value = writing.value;
    this.#written.push({
      op: operation.id,
      name: NAME,
      value: writing.value,
      token: holder.token,
      committedAt: this.#now,
    });
    return false;
  }

  #lose(client: Client, reason: string): void {
    const operation = client.holder?.operation;
    client.holder = undefined;
    client.writing = undefined;
    if (operation !== undefined) {
      Object.assign(operation, {
        lostAt: this.#now,
        lostReason: reason,
        end: { at: this.#now, how: 'lost', error: undefined },
      });
    }
  }

  #release(client: Client, holder: Holder, isThere: boolean): void {
    if (!isThere) return this.#lose(client, 'broken');
    client.holder = undefined;
    client.restsUntil = this.#now + this.#draw.int(0, 200);
    holder.operation.end = { at: this.#now, how: 'released', error: undefined };
    if (this.#bug !== 'a release is forgotten' || this.#draw.chance(0.5)) this.#end(holder, 'released', this.#now);
  }

  #end(holder: Holder, outcome: HoldEnd['outcome'], at: number): void {
    this.#holders = this.#holders.filter((each) => each !== holder);
    this.#ended.push({ name: NAME, token: holder.token, at, outcome });
  }

  #leave(waiter: Waiter): void {
    if (!this.#waiters.includes(waiter)) return;
    this.#waiters = this.#waiters.filter((each) => each !== waiter);
    this.#note('gone', waiter);
  }

  /** Evicts dead holders, then grants to waiters that fit, in order. */
  #decide(): void {
    this.#decided += 1;
    for (const holder of this.#holders) {
      if (holder.until <= this.#now && holder.guardedUntil <= this.#now) this.#end(holder, 'expired', holder.until);
    }
    for (const waiter of this.#waiters.filter(({ until }) => until <= this.#now)) this.#leave(waiter);
    let count = this.#holders.length;
    let least = Math.min(SHARED, ...this.#holders.map(({ capacity }) => capacity));
    const line = this.#bug === 'who came last is served first' ? this.#waiters.toReversed() : [...this.#waiters];
    for (const waiter of line) {
      least = Math.min(least, waiter.operation.step.capacity);
      count += 1;
      if (count > least && this.#bug !== 'a held lock is taken') return;
      this.#grant(waiter);
    }
  }

  #grant(waiter: Waiter): void {
    const { client, operation } = waiter;
    if (this.#bug !== 'a token stands still' || this.#token === 0) this.#token += 1;
    const token = String(this.#token);
    const { capacity } = operation.step;
    this.#note('grant', waiter, token);
    this.#leave(waiter);
    // A handed over lock first lasts as long as the place.
    const holder: Holder = {
      operation,
      token,
      capacity,
      until: Math.min(waiter.until, this.#now + LEASE_MS),
      guardedUntil: 0,
    };
    this.#holders.push(holder);
    // A suspended process learns of the grant late, or never; a killed one never.
    if (client.waiter !== waiter || client.standsUntil > this.#now) return;
    client.waiter = undefined;
    client.holder = holder;
    client.sentAt = Math.min(this.#now, holder.until - LEASE_MS);
    Object.assign(operation, { grantedAt: this.#now, token, believedUntil: this.#now });
    client.releasesAt = this.#now + this.#draw.pick(0, 50, 400, 1500);
    if (operation.step.writing === null) return;
    const guardAt = this.#now + this.#draw.pick(0, 100, 300);
    operation.wrote = 'unknown';
    client.writing = {
      value: this.#value + 1,
      guardAt,
      commitAt: guardAt + this.#draw.pick(0, 0, 200),
      isGuarded: false,
    };
  }

  #note(what: Decision['what'], { operation, nonce, ticket, until }: Waiter, token?: string): void {
    const { capacity } = operation.step;
    const at = this.#now + this.#decisions.length * 1e-6;
    const transaction = String(this.#decided);
    this.#decisions.push({ at, what, name: NAME, nonce, capacity, ticket, token, expiresAt: until, transaction });
  }
}
