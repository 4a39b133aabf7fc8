import { now } from '../../../base/time/clock.ts';
import { type Head, hasRoom } from '../head.ts';
import type { HeadView } from '../head-view.ts';
import { headOf } from '../items/key.ts';
import { takeTicket } from '../items/requests.ts';
import type { NewWaiter } from '../items/waiter.ts';
import type { RunningCall } from '../running-call.ts';
import type { LocalWaiter } from './local-waiters.ts';
import { renewInMs } from './waiter-queue.ts';

// Only waiters this near to the front watch it often; those farther behind rely on them.
const NEAR = 25;

/** The place of one claim among the waiters: its tickets, and its rows once it has to wait. */
export class Place {
  readonly #call: RunningCall;

  constructor(call: RunningCall) {
    this.#call = call;
  }

  /**
   * Takes tickets. The head counts a single ticket itself. The tickets of a set are taken in one transaction, so that all sets
   * have the same order in all queues.
   */
  async take(waiterMs: number, views: readonly HeadView[]): Promise<readonly Head[]> {
    const { engine, heads, waiters } = this.#call.parts;
    const taker = waiters.takerOf(this.#call.request.nonce);
    const [view] = views;
    if (view === undefined) return [];
    if (views.length > 1) return this.#takeOfSet(waiterMs, views, taker);
    const outcome = await engine.update(headOf(view.pk), takeTicket(taker), 'ALL_NEW', this.#call.limits());
    const head = heads.observe(view.pk, outcome) ?? (await heads.read(view.pk, this.#call.limits()));
    // If it was refused, an earlier request whose answer was lost has taken the ticket.
    if (outcome.isDone || head.taker === taker) {
      this.#add(waiterMs, new Map([[view.pk, head.last]]), undefined);
    }
    return [head];
  }

  async #takeOfSet(waiterMs: number, views: readonly HeadView[], taker: string): Promise<readonly Head[]> {
    const { heads, queue } = this.#call.parts;
    // An earlier call has taken the tickets, and its answers were lost.
    if (views.every(({ head }) => head.taker === taker)) {
      this.#add(waiterMs, new Map(views.map(({ pk, head }) => [pk, head.last])), undefined);
      return views.map(({ head }) => head);
    }
    const changes = views.map(({ pk, head }) => ({
      pk,
      before: head,
      after: { ...head, last: head.last + 1, taker },
    }));
    const tickets = new Map(views.map(({ pk, head }) => [pk, head.last + 1]));
    const rows = [...tickets].map(([pk, ticket]) => queue.taking(pk, ticket, this.#newWaiter(waiterMs, pk, tickets)));
    const isTaken = await heads.write(changes, this.#call.limits(), rows);
    const next = await this.#call.read();
    // If it was refused, an earlier request whose answer was lost may have taken the tickets.
    const isMine = next.every(
      (head, index) => head.taker === taker && head.last === tickets.get(this.#call.pks[index] ?? ''),
    );
    if (isTaken || isMine) this.#add(waiterMs, tickets, now());
    return next;
  }

  /** Writes the rows of the place once the claim has to wait, and renews them when they are due. */
  async renew(waiter: LocalWaiter): Promise<boolean> {
    const { queue } = this.#call.parts;
    const { renewedAt, waiterMs, tickets } = waiter;
    if (renewedAt !== undefined && renewInMs(renewedAt, waiterMs) > 0) return true;
    const at = now();
    const kept = await Promise.all(
      [...tickets].map(([pk, ticket]) =>
        renewedAt === undefined
          ? queue.take(pk, ticket, this.#newWaiter(waiterMs, pk, tickets), this.#call.limits())
          : queue.renew(pk, ticket, this.#call.nonce, this.#call.limits()),
      ),
    );
    waiter.renewedAt = at;
    return kept.every(Boolean);
  }

  /** Checks whether the waiters before the claim are alive: when it may be its turn without them, and from time to time. */
  async watchThoseBefore(views: readonly HeadView[]): Promise<{ isMoved: boolean; deadInMs: number }> {
    const waiter = this.#call.waiter;
    const { waiterMs } = this.#call.request;
    let isMoved = false;
    let soonest = Infinity;
    for (const { pk, head, standing, stale } of views) {
      if (standing !== 'waits' || head.next > head.last) continue;
      const until = waiter?.tickets.get(pk) ?? head.last + 1;
      if (until <= head.next) continue;
      // A request without a place is behind all waiters. Whether they are alive matters only if the lock has room.
      if (waiter === undefined && !hasRoom(head, this.#call.request.capacity, stale)) continue;
      const dueAt = waiter?.watchAt.get(pk) ?? 0;
      if (dueAt > now()) {
        if (until - head.next === 1) soonest = Math.min(soonest, dueAt - now());
        continue;
      }
      const front = await this.#call.parts.queue.watch(pk, head, until, waiterMs, this.#call.limits());
      isMoved ||= front.isMoved;
      const restMs = (waiterMs ?? 0) / (until - head.next <= NEAR ? 3 : 1);
      waiter?.watchAt.set(pk, now() + Math.min(restMs, front.deadInMs));
      soonest = Math.min(soonest, front.deadInMs);
    }
    return { isMoved, deadInMs: soonest };
  }

  /** Gives up a place that was lost, or that closes a circle. The next attempt takes another place. */
  async leave(): Promise<void> {
    const waiter = this.#call.waiter;
    this.#call.parts.waiters.lose(this.#call.request.nonce);
    const leaving = [...(waiter?.tickets ?? [])].map(([pk, ticket]) =>
      this.#call.parts.queue.leave(pk, ticket, this.#call.nonce, this.#call.limits()),
    );
    await Promise.all(leaving);
  }

  #add(waiterMs: number, tickets: ReadonlyMap<string, number>, renewedAt: number | undefined): void {
    this.#call.parts.waiters.add({
      requestNonce: this.#call.request.nonce,
      nonce: this.#call.nonce,
      capacity: this.#call.request.capacity,
      waiterMs,
      tickets,
      renewedAt,
      watchAt: new Map(),
      hint: undefined,
      deadlockSearch: 'unmarked',
    });
  }

  #newWaiter(waiterMs: number, pk: string, tickets: ReadonlyMap<string, number>): NewWaiter {
    const { engine, self } = this.#call.parts;
    const others = [...tickets].filter(([each]) => each !== pk).map(([each, ticket]) => ({ pk: each, ticket }));
    const { host, pid } = self;
    return {
      nonce: this.#call.nonce,
      capacity: this.#call.request.capacity,
      leaseMs: waiterMs,
      host,
      pid,
      since: engine.now(),
      others,
    };
  }
}
