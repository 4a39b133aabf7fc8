import { ConnectionFailed } from '../../base/errors.ts';
import { sleep } from '../../base/time/clock.ts';
import type { AcquireAnswer, AcquireCall, CallOptions } from '../store.ts';
import { fastAcquire } from './fast-acquire.ts';
import { ended, firstToEnd, granted, type Head, type HeadHolder, type RequestStanding } from './head.ts';
import { type HeadView, viewOf } from './head-view.ts';
import { headOf } from './items/key.ts';
import { renew } from './items/requests.ts';
import { type CallParts, RunningCall } from './running-call.ts';
import { takeHint } from './waiting/local-waiters.ts';
import { Place } from './waiting/place.ts';

const CIRCLE_MS = 25;

/** One call of `acquire`: takes the lock, takes a place, or checks its place. */
export class AcquireAttempt {
  readonly #call: RunningCall;
  readonly #place: Place;

  constructor(parts: CallParts, request: AcquireCall, options: CallOptions) {
    this.#call = new RunningCall(parts, request, options);
    this.#place = new Place(this.#call);
  }

  /** @param isFirst  nothing is known about the lock: the attempt then tries to take it without reading the head first */
  async run(isFirst: boolean): Promise<AcquireAnswer> {
    let heads = isFirst ? await this.#fastAcquire() : await this.#readFirst();
    for (let tries = 0; ; tries++) {
      if (typeof heads === 'bigint') return this.#granted(heads);
      if (tries > 2) await this.#pause(tries);
      const next = await this.#decide(
        heads.map((head, index) => viewOf(this.#call, this.#call.pks[index] ?? '', head)),
      );
      if ('kind' in next) return next;
      heads = next;
    }
  }

  async #fastAcquire(): Promise<bigint | readonly Head[]> {
    const asked = {
      call: this.#call.request,
      holderAt: (at: number) => this.#holder(at),
      limits: () => this.#call.limits(),
    };
    const taken = await fastAcquire(this.#call.parts, asked);
    return typeof taken === 'bigint' ? taken : [taken];
  }

  async #readFirst(): Promise<readonly Head[]> {
    const hint = takeHint(this.#call.waiter);
    return hint === undefined ? this.#call.read() : [hint];
  }

  /** @returns the answer; or the heads as they are now, if something has changed */
  async #decide(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const done = await this.#periodLeftMs(views);
    if (done !== undefined) return { kind: 'done', retryMs: done };
    const is = (standing: RequestStanding): boolean => views.some((view) => view.standing === standing);
    if (is('held')) return this.#confirmGrant(views);
    if (is('lost')) {
      await this.#place.leave();
      return this.#call.read();
    }
    if (!is('waits')) {
      const token = await this.#grant(views);
      return token === undefined ? this.#call.read() : this.#granted(token);
    }
    return this.#wait(views);
  }

  /** How long until the next run of `oncePer` may begin. */
  async #periodLeftMs([view]: readonly HeadView[]): Promise<number | undefined> {
    const { periodMs } = this.#call.request;
    const ranAt = view?.head.ranAt;
    if (periodMs === undefined || ranAt === undefined) return undefined;
    const leftMs = ranAt + periodMs - (await this.#call.parts.engine.serviceTime(this.#call.limits()));
    return leftMs > 0 ? leftMs : undefined;
  }

  /** Confirms the grant if an earlier request of this claim was carried out and its answer was lost. */
  async #confirmGrant(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const holders = views.map(({ head }) => head.holders.find((holder) => holder.nonce === this.#call.nonce));
    const [token] = holders.map((holder) => holder?.token);
    if (token !== undefined && holders.every((holder) => holder?.token === token)) {
      // The lease begins now: the caller counts it from the moment before this call.
      const isKept = !this.#call.request.isRetry || (await this.#renew());
      return isKept ? this.#granted(token) : this.#call.read();
    }
    // The heads of a set are read one by one. So a grant between two reads looks like half a grant, and they are read again.
    const again = await this.#call.read();
    const half = again.flatMap((head, index) =>
      head.holders
        .filter((each) => each.nonce === this.#call.nonce)
        .map((each) => ({ pk: this.#call.pks[index] ?? '', each })),
    );
    if (half.length === again.length) return again;
    await Promise.all(half.map(({ pk, each }) => this.#call.parts.grants.drop(pk, each, this.#call.limits())));
    return this.#call.read();
  }

  async #renew(): Promise<boolean> {
    const { engine } = this.#call.parts;
    const written = renew({ nonce: this.#call.nonce, capacity: this.#call.request.capacity }, `again ${engine.now()}`);
    const kept = await Promise.all(
      this.#call.pks.map((pk) => engine.update(headOf(pk), written, 'NONE', this.#call.limits())),
    );
    return kept.every((outcome) => outcome.isDone);
  }

  /** @returns undefined if another client has decided meanwhile, or if there are more dead holders than one write removes */
  async #grant(views: readonly HeadView[]): Promise<bigint | undefined> {
    const at = this.#call.parts.engine.now();
    if (await this.#evictedSome(views, at)) return undefined;
    const fences = views.map(({ head }) => head.fence);
    const token = fences.reduce((most, each) => (each > most ? each : most), 0n) + 1n;
    const holder: HeadHolder = { ...this.#holder(at), token };
    const changes = views.map(({ pk, head, stale }) => ({
      pk,
      before: head,
      after: granted(head, holder, this.#call.waiter?.tickets.get(pk), stale, at),
    }));
    return (await this.#call.parts.heads.write(changes, this.#call.limits())) ? token : undefined;
  }

  /** If there are more dead holders than the grant's own write can remove, removes some of them, as their releases would. */
  async #evictedSome(views: readonly HeadView[], at: number): Promise<boolean> {
    for (const { pk, head, stale } of views) {
      const which = firstToEnd(head, ({ nonce }) => stale.has(nonce));
      if (which === undefined) continue;
      const change = { pk, before: head, after: ended(head, which, 'expired', undefined, at) };
      await this.#call.parts.heads.write([change], this.#call.limits());
      return true;
    }
    return false;
  }

  async #wait(views: readonly HeadView[]): Promise<AcquireAnswer | readonly Head[]> {
    const { waiterMs, holds } = this.#call.request;
    if (waiterMs === undefined) {
      if ((await this.#place.watchThoseBefore(views)).isMoved) return this.#call.read();
      return { kind: 'held', holder: holderOf(views) };
    }
    const waiter = this.#call.waiter;
    if (waiter === undefined) return this.#place.take(waiterMs, views);
    if (!(await this.#place.renew(waiter))) {
      await this.#place.leave();
      return this.#call.read();
    }
    const { isMoved, deadInMs } = await this.#place.watchThoseBefore(views);
    if (isMoved) return this.#call.read();
    const cycle =
      holds.length > 0 ? await this.#call.parts.deadlocks.detect(waiter, holds, this.#call.limits()) : undefined;
    if (cycle !== undefined) {
      await this.#place.leave();
      this.#call.parts.waiters.remove(this.#call.request.nonce);
      return { kind: 'cycle', cycle };
    }
    const searchMs = holds.length > 0 && waiter.deadlockSearch === 'pending' ? CIRCLE_MS : Infinity;
    const retryMs = Math.min(deadInMs, searchMs, ...views.map((view) => view.staleInMs));
    return {
      kind: 'waiting',
      ticket: BigInt(waiter.tickets.get(this.#call.pks[0] ?? '') ?? 0),
      ahead: Math.max(...views.map(({ pk, head }) => (waiter.tickets.get(pk) ?? 0) - head.next)),
      retryMs: retryMs === Infinity ? undefined : Math.ceil(retryMs),
      placeMs: 0,
      isNew: false,
    };
  }

  #granted(token: bigint): AcquireAnswer {
    const { grants, waiters, queue } = this.#call.parts;
    const waiter = this.#call.waiter;
    waiters.remove(this.#call.request.nonce);
    if (waiter?.renewedAt !== undefined) for (const [pk, ticket] of waiter.tickets) queue.tidy(pk, [ticket]);
    grants.add(this.#call.request.nonce, this.#call.request.isRetry ? 1 : 0);
    return { kind: 'granted', token };
  }

  #holder(at: number): Omit<HeadHolder, 'token'> {
    const { capacity, leaseMs } = this.#call.request;
    const { host, pid } = this.#call.parts.self;
    return {
      nonce: this.#call.nonce,
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

  /** Pauses after a conflict with others, longer each time. @throws ConnectionFailed  the time of the call is over */
  async #pause(tries: number): Promise<void> {
    if (this.#call.isLate) {
      throw new ConnectionFailed(`too many clients decide about ${this.#call.pks.length} locks at the same time`, {
        outcome: 'nothing_written',
      });
    }
    await sleep(Math.random() * Math.min(5 * tries, 200), this.#call.options.signal);
  }
}

function holderOf(views: readonly HeadView[]): string | undefined {
  const [holder] = views.flatMap(({ head, stale }) => head.holders.filter((each) => !stale.has(each.nonce)));
  return holder === undefined ? undefined : `${holder.host} (pid ${holder.pid})`;
}
