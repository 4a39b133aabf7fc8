import { ConnectionFailed } from '../../base/errors.ts';
import { moment, now, sleep, waitedFor } from '../../base/time/clock.ts';
import type { CallLimits, DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { ProcessIdentity } from '../identity.ts';
import type { AcquireAnswer, AcquireCall, CallOptions } from '../store.ts';
import type { DeadlockDetector } from './deadlock.ts';
import { fastAcquire } from './fast-acquire.ts';
import type { Grants } from './grants.ts';
import { granted, type Head, type HeadHolder, hasRoom, type Standing, standingOf } from './head.ts';
import type { Heads } from './heads.ts';
import { headOf, lockKey, shortNonce } from './items/key.ts';
import { renew, takeTicket } from './items/requests.ts';
import type { NewWaiter } from './items/waiter.ts';
import { type LocalWaiter, type LocalWaiters, takeHint } from './local-waiters.ts';
import { type Queue, renewInMs } from './queue.ts';
import type { Staleness } from './staleness.ts';

/** The state that all attempts of one process share. */
export interface Parts {
  readonly engine: DynamoEngine;
  readonly self: ProcessIdentity;
  readonly heads: Heads;
  readonly queue: Queue;
  readonly deadlocks: DeadlockDetector;
  readonly staleness: Staleness;
  readonly waiters: LocalWaiters;
  readonly grants: Grants;
}

/** A head that was read, and its meaning for this attempt. */
interface HeadView {
  readonly pk: string;
  readonly head: Head;
  readonly stale: ReadonlySet<string>;
  /** How long until a lease has certainly run out, if nothing changes. */
  readonly staleInMs: number;
  readonly standing: Standing;
}

// Only waiters this near to the front watch it often; those farther behind rely on them.
const NEAR = 25;
const CIRCLE_MS = 25;

/** One call of `acquire`: takes the lock, takes a place, or checks its place. */
export class Attempt {
  readonly #parts: Parts;
  readonly #request: AcquireCall;
  readonly #options: CallOptions;
  readonly #pks: readonly string[];
  readonly #nonce: string;
  readonly #start = moment();

  constructor(parts: Parts, call: AcquireCall, options: CallOptions) {
    this.#parts = parts;
    this.#request = call;
    this.#options = options;
    this.#pks = call.names.map((name) => lockKey(call.space, name));
    this.#nonce = shortNonce(call.nonce);
  }

  /** @param isFirst  nothing is known about the lock: the attempt then tries to take it without reading the head first */
  async run(isFirst: boolean): Promise<AcquireAnswer> {
    let heads = isFirst ? await this.#fastAcquire() : await this.#readFirst();
    for (let tries = 0; ; tries++) {
      if (typeof heads === 'bigint') return this.#granted(heads);
      if (tries > 2) await this.#pause(tries);
      const next = await this.#decide(heads.map((head, index) => this.#view(this.#pks[index] ?? '', head)));
      if ('kind' in next) return next;
      heads = next;
    }
  }

  async #fastAcquire(): Promise<bigint | readonly Head[]> {
    const asked = { call: this.#request, holderAt: (at: number) => this.#holder(at), limits: () => this.#limits() };
    const taken = await fastAcquire(this.#parts, asked);
    return typeof taken === 'bigint' ? taken : [taken];
  }

  async #readFirst(): Promise<readonly Head[]> {
    const hint = takeHint(this.#waiter);
    return hint === undefined ? this.#read() : [hint];
  }

  /** @returns the answer, or the heads as they are now when something has changed */
  async #decide(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const done = await this.#periodLeftMs(views);
    if (done !== undefined) return { kind: 'done', retryMs: done };
    const is = (standing: Standing): boolean => views.some((view) => view.standing === standing);
    if (is('held')) return this.#confirmGrant(views);
    if (is('lost')) {
      await this.#leaveLostPlace();
      return this.#read();
    }
    if (!is('waits')) {
      const token = await this.#grant(views);
      return token === undefined ? this.#read() : this.#granted(token);
    }
    return this.#wait(views);
  }

  /** How long until the next run of `oncePer` may begin. */
  async #periodLeftMs([view]: readonly HeadView[]): Promise<number | undefined> {
    const { periodMs } = this.#request;
    const ranAt = view?.head.ranAt;
    if (periodMs === undefined || ranAt === undefined) return undefined;
    const leftMs = ranAt + periodMs - (await this.#parts.engine.serviceTime(this.#limits()));
    return leftMs > 0 ? leftMs : undefined;
  }

  /** An earlier request of this claim was carried out, though its answer was lost. */
  async #confirmGrant(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const holders = views.map(({ head }) => head.holders.find((holder) => holder.nonce === this.#nonce));
    const [token] = holders.map((holder) => holder?.token);
    if (token !== undefined && holders.every((holder) => holder?.token === token)) {
      // The lease begins now: the caller counts it from the moment before this call.
      const isKept = !this.#request.isRetry || (await this.#renew());
      return isKept ? this.#granted(token) : this.#read();
    }
    // The heads of a set are read one by one: a grant between two reads looks like half a grant.
    const again = await this.#read();
    const half = again.flatMap((head, index) =>
      head.holders.filter((each) => each.nonce === this.#nonce).map((each) => ({ pk: this.#pks[index] ?? '', each })),
    );
    if (half.length === again.length) return again;
    await Promise.all(half.map(({ pk, each }) => this.#parts.grants.drop(pk, each, this.#limits())));
    return this.#read();
  }

  async #renew(): Promise<boolean> {
    const { engine } = this.#parts;
    const written = renew({ nonce: this.#nonce, capacity: this.#request.capacity }, `again ${engine.now()}`);
    const kept = await Promise.all(this.#pks.map((pk) => engine.update(headOf(pk), written, 'NONE', this.#limits())));
    return kept.every((outcome) => outcome.isDone);
  }

  async #grant(views: readonly HeadView[]): Promise<bigint | undefined> {
    const at = this.#parts.engine.now();
    const fences = views.map(({ head }) => head.fence);
    const token = fences.reduce((most, each) => (each > most ? each : most), 0n) + 1n;
    const holder: HeadHolder = { ...this.#holder(at), token };
    const changes = views.map(({ pk, head, stale }) => ({
      pk,
      before: head,
      after: granted(head, holder, this.#waiter?.tickets.get(pk), stale, at),
    }));
    return (await this.#parts.heads.write(changes, this.#limits())) ? token : undefined;
  }

  async #wait(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const { waiterMs, holds } = this.#request;
    if (waiterMs === undefined) {
      if ((await this.#watchThoseBefore(views)).isMoved) return this.#read();
      return { kind: 'held', holder: holderOf(views) };
    }
    const waiter = this.#waiter;
    if (waiter === undefined) return this.#takePlace(waiterMs, views);
    if (!(await this.#renewPlace(waiter))) {
      await this.#leaveLostPlace();
      return this.#read();
    }
    const { isMoved, deadInMs } = await this.#watchThoseBefore(views);
    if (isMoved) return this.#read();
    const cycle = holds.length > 0 ? await this.#parts.deadlocks.detect(waiter, holds, this.#limits()) : undefined;
    if (cycle !== undefined) {
      await this.#leaveLostPlace();
      this.#parts.waiters.remove(this.#request.nonce);
      return { kind: 'cycle', cycle };
    }
    const searchMs = holds.length > 0 && waiter.deadlockSearch === 'pending' ? CIRCLE_MS : Infinity;
    const retryMs = Math.min(deadInMs, searchMs, ...views.map((view) => view.staleInMs));
    return {
      kind: 'waiting',
      ticket: BigInt(waiter.tickets.get(this.#pks[0] ?? '') ?? 0),
      ahead: Math.max(...views.map(({ pk, head }) => (waiter.tickets.get(pk) ?? 0) - head.next)),
      retryMs: retryMs === Infinity ? undefined : Math.ceil(retryMs),
      placeMs: 0,
      isNew: false,
    };
  }

  /**
   * A single ticket is counted in the head itself. The tickets of a set are taken in one transaction, so that no two sets
   * cross.
   */
  async #takePlace(waiterMs: number, views: readonly HeadView[]): Promise<readonly Head[]> {
    const { engine, heads, queue, waiters } = this.#parts;
    const taker = waiters.takerOf(this.#request.nonce);
    const [view] = views;
    if (view === undefined) return [];
    if (views.length > 1) {
      const changes = views.map(({ pk, head }) => ({
        pk,
        before: head,
        after: { ...head, last: head.last + 1, taker },
      }));
      const tickets = new Map(views.map(({ pk, head }) => [pk, head.last + 1]));
      const rows = [...tickets].map(([pk, ticket]) => queue.taking(pk, ticket, this.#newWaiter(waiterMs, pk, tickets)));
      const isTaken = await heads.write(changes, this.#limits(), rows);
      const next = await this.#read();
      // After a refusal: a request whose answer was lost may have taken the tickets.
      const isMine = next.every(
        (head, index) => head.taker === taker && head.last === tickets.get(this.#pks[index] ?? ''),
      );
      if (isTaken || isMine) this.#addPlace(waiterMs, tickets, now());
      return next;
    }
    const outcome = await engine.update(headOf(view.pk), takeTicket(taker), 'ALL_NEW', this.#limits());
    const head = heads.observe(view.pk, outcome) ?? (await heads.read(view.pk, this.#limits()));
    // After a refusal: a request whose answer was lost has taken the ticket.
    if (outcome.isDone || head.taker === taker) {
      this.#addPlace(waiterMs, new Map([[view.pk, head.last]]), undefined);
    }
    return [head];
  }

  /** Writes the rows of the place once it is known that it has to wait, and renews them when they are due. */
  async #renewPlace(waiter: LocalWaiter): Promise<boolean> {
    const { queue } = this.#parts;
    const { renewedAt, waiterMs, tickets } = waiter;
    if (renewedAt !== undefined && renewInMs(renewedAt, waiterMs) > 0) return true;
    const at = now();
    const kept = await Promise.all(
      [...tickets].map(([pk, ticket]) =>
        renewedAt === undefined
          ? queue.take(pk, ticket, this.#newWaiter(waiterMs, pk, tickets), this.#limits())
          : queue.renew(pk, ticket, this.#nonce, this.#limits()),
      ),
    );
    waiter.renewedAt = at;
    return kept.every(Boolean);
  }

  /** Checks whether the waiters before it are alive: as soon as it may be its turn without them, and now and then. */
  async #watchThoseBefore(views: readonly HeadView[]): Promise<{ isMoved: boolean; deadInMs: number }> {
    const waiter = this.#waiter;
    const { waiterMs } = this.#request;
    let isMoved = false;
    let soonest = Infinity;
    for (const { pk, head, standing, stale } of views) {
      if (standing !== 'waits' || head.next > head.last) continue;
      const until = waiter?.tickets.get(pk) ?? head.last + 1;
      if (until <= head.next) continue;
      // A request without a place is behind all waiters. Whether they are alive matters only when the lock has room.
      if (waiter === undefined && !hasRoom(head, this.#request.capacity, stale)) continue;
      const dueAt = waiter?.watchAt.get(pk) ?? 0;
      if (dueAt > now()) {
        if (until - head.next === 1) soonest = Math.min(soonest, dueAt - now());
        continue;
      }
      const front = await this.#parts.queue.watch(pk, head, until, waiterMs, this.#limits());
      isMoved ||= front.isMoved;
      const restMs = (waiterMs ?? 0) / (until - head.next <= NEAR ? 3 : 1);
      waiter?.watchAt.set(pk, now() + Math.min(restMs, front.deadInMs));
      soonest = Math.min(soonest, front.deadInMs);
    }
    return { isMoved, deadInMs: soonest };
  }

  #view(pk: string, head: Head): HeadView {
    const stale = new Set<string>();
    let staleInMs = Infinity;
    for (const holder of head.holders) {
      if (holder.nonce === this.#nonce || holder.leaseMs === Infinity) continue;
      const leftMs = this.#parts.grants.staleInMs(pk, holder);
      if (leftMs <= 0) stale.add(holder.nonce);
      else staleInMs = Math.min(staleInMs, leftMs);
    }
    const ticket = this.#waiter?.tickets.get(pk);
    const standing = standingOf(head, { nonce: this.#nonce, capacity: this.#request.capacity, ticket }, stale);
    return { pk, head, stale, staleInMs, standing };
  }

  #granted(token: bigint): AcquireAnswer {
    const { grants, waiters, queue } = this.#parts;
    const waiter = this.#waiter;
    waiters.remove(this.#request.nonce);
    if (waiter?.renewedAt !== undefined) for (const [pk, ticket] of waiter.tickets) queue.tidy(pk, [ticket]);
    grants.add(this.#request.nonce, this.#request.isRetry ? 1 : 0);
    return { kind: 'granted', token };
  }

  async #leaveLostPlace(): Promise<void> {
    const waiter = this.#waiter;
    this.#parts.waiters.lose(this.#request.nonce);
    const leaving = [...(waiter?.tickets ?? [])].map(([pk, ticket]) =>
      this.#parts.queue.leave(pk, ticket, this.#nonce, this.#limits()),
    );
    await Promise.all(leaving);
  }

  #addPlace(waiterMs: number, tickets: ReadonlyMap<string, number>, renewedAt: number | undefined): void {
    this.#parts.waiters.add({
      requestNonce: this.#request.nonce,
      nonce: this.#nonce,
      capacity: this.#request.capacity,
      waiterMs,
      tickets,
      renewedAt,
      watchAt: new Map(),
      hint: undefined,
      deadlockSearch: 'unmarked',
    });
  }

  #newWaiter(waiterMs: number, pk: string, tickets: ReadonlyMap<string, number>): NewWaiter {
    const { engine, self } = this.#parts;
    const others = [...tickets].filter(([each]) => each !== pk).map(([each, ticket]) => ({ pk: each, ticket }));
    const { host, pid } = self;
    return {
      nonce: this.#nonce,
      capacity: this.#request.capacity,
      leaseMs: waiterMs,
      host,
      pid,
      since: engine.now(),
      others,
    };
  }

  #holder(at: number): Omit<HeadHolder, 'token'> {
    const { capacity, leaseMs } = this.#request;
    const { host, pid } = this.#parts.self;
    return {
      nonce: this.#nonce,
      capacity,
      leaseMs,
      host,
      pid,
      grantedAt: at,
      beatAt: at,
      beat: '',
      waitsFor: undefined,
    };
  }

  get #waiter(): LocalWaiter | undefined {
    return this.#parts.waiters.get(this.#request.nonce);
  }

  async #read(): Promise<readonly Head[]> {
    return Promise.all(this.#pks.map((pk) => this.#parts.heads.read(pk, this.#limits())));
  }

  /** The time that is left for this call. */
  #limits(): CallLimits {
    const leftMs = Math.max(1, this.#options.timeoutMs - waitedFor(this.#start));
    return { timeoutMs: leftMs, signal: this.#options.signal };
  }

  /** Pauses when others decide at the same time, longer after each conflict. @throws ConnectionFailed  past the time */
  async #pause(tries: number): Promise<void> {
    if (waitedFor(this.#start) > this.#options.timeoutMs) {
      throw new ConnectionFailed(`too many clients decide about ${this.#pks.length} locks at the same time`, {
        outcome: 'nothing_written',
      });
    }
    await sleep(Math.random() * Math.min(5 * tries, 200), this.#options.signal);
  }
}

function holderOf(views: readonly HeadView[]): string | undefined {
  const [holder] = views.flatMap(({ head, stale }) => head.holders.filter((each) => !stale.has(each.nonce)));
  return holder === undefined ? undefined : `${holder.host} (pid ${holder.pid})`;
}
