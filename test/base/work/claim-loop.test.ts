import { describe, expect, onTestFinished, test } from 'vitest';
import type { Handoff, HandoffPort } from '../../../src/base/handoff/handoff.ts';
import { probe } from '../../../src/base/probe.ts';
import { ClaimLoop } from '../../../src/base/work/claim-loop.ts';
import type { ClaimSource, NextPoll } from '../../../src/base/work/claim-source.ts';
import { END_MS } from '../../../src/base/work/deadlines.ts';
import { until } from '../../support/eventually.ts';
import { awakeMs } from '../../support/time/awake.ts';

/** The loop without hand-off. */
const NO_HANDOFF: HandoffPort = {
  start: () => {},
  nextOffer: () => undefined,
  cancelOffer: () => {},
  offerSoon: () => {},
  withdraw: () => {},
  isOverdue: () => false,
  recall: async (ask) => {
    await ask();
    return true;
  },
  noteNotification: () => {},
  reset: () => {},
  close: () => false,
  stop: () => Promise.resolve(),
};

interface Answer {
  readonly units: readonly number[];
  readonly next: NextPoll;
  readonly offered?: boolean;
}

/** A worker without a database: it claims numbers, and each runs until the test ends it. */
class Numbers implements ClaimSource<number, Answer, Handoff> {
  readonly running = new Set<number>();
  get slotsTaken(): number {
    return this.running.size;
  }

  readonly isExclusive = false;
  readonly settler = { flushed: async () => {}, drop: () => {} };
  readonly wishes: boolean[] = [];
  readonly released: number[] = [];
  readonly errors: unknown[] = [];
  readonly claims: number[] = [];
  readonly begun: number[] = [];
  hasLease = true;
  /** What there is to claim. */
  left: number[];
  readonly loop: ClaimLoop<number, Answer, Handoff>;
  #ids = 0;

  constructor(left: number[], prefetch = 0) {
    this.left = left;
    const options = { name: 'numbers', concurrency: 2, leaseMs: 10_000, pollMs: 60_000, prefetch, prefetchMax: 100 };
    this.loop = new ClaimLoop(this, options, () => NO_HANDOFF);
    onTestFinished(() => this.loop.stop(0));
  }

  async start(): Promise<void> {
    await this.loop.register();
    this.loop.start({ arrived: Promise.resolve(), stop: async () => {} });
  }

  end(unit: number): void {
    this.running.delete(unit);
    this.loop.ended();
  }

  async register(): Promise<number> {
    this.#ids += 1;
    return this.#ids;
  }
  capacity(prefetch: number): number {
    return 2 + prefetch - this.running.size - this.loop.slots.waiting.length;
  }
  async claim(_worker: number, limit: number): Promise<Answer> {
    this.claims.push(limit);
    const units = this.left.splice(0, limit);
    return { units, next: units.length > 0 ? 'more' : Infinity };
  }
  countUnits({ units }: Answer): number {
    return units.length;
  }
  post({ units }: Answer): void {
    this.loop.add(units);
  }
  nextPoll({ next }: Answer): NextPoll {
    return next;
  }
  begin(unit: number): void {
    this.begun.push(unit);
    this.running.add(unit);
  }
  release(units: readonly number[]): void {
    this.released.push(...units);
  }
  async setWantsNotify(_worker: number, wants: boolean): Promise<void> {
    this.wishes.push(wants);
  }
  lost(): void {
    this.running.clear();
    this.loop.reset();
    this.loop.wake();
  }
  recall = async () => ({ lost: 0, offers: [] });
  leave = async () => {};
  drain = async () => {};
  close = async () => {};
  noteUnclaimed = () => {};
  takeHandoff = () => {};
  declineHandoff = () => {};
  onError = (error: unknown) => void this.errors.push(error);
}

test('as many run as there are slots, and each that ends makes room for the next one', async () => {
  const numbers = new Numbers([1, 2, 3, 4]);
  await numbers.start();
  await until('both slots are taken', () => numbers.begun.length === 2);
  numbers.end(1);
  await until('the third one runs', () => numbers.begun.length === 3);
  expect(numbers.claims).toEqual([2, 1]);
  expect([...numbers.running]).toEqual([2, 3]);
  numbers.end(2);
  numbers.end(3);
  await until('the last one runs', () => numbers.begun.length === 4);
  expect(numbers.errors).toEqual([]);
});

test('what is claimed ahead waits for a slot, and is released by a stop', async () => {
  const numbers = new Numbers([1, 2, 3, 4, 5], 2);
  await numbers.start();
  await until('all there is room for is claimed', () => numbers.left.length === 1);
  expect(numbers.loop.slots.waiting).toEqual([3, 4]);
  numbers.end(1);
  expect(numbers.begun).toEqual([1, 2, 3]);
  await numbers.loop.stop(0);
  expect(numbers.released.slice(0, 1)).toEqual([4]);
});

/** A worker with a claim under way that gets no answer. */
async function unanswered(): Promise<Numbers> {
  const numbers = new Numbers([]);
  let isAsked = false;
  numbers.claim = () => {
    isAsked = true;
    return new Promise(() => {});
  };
  await numbers.start();
  await until('the claim is under way', () => isAsked);
  return numbers;
}

test('though a claim gets no answer, the worker is removed by the time that a stop resolves', async () => {
  const numbers = await unanswered();
  let isRemoved = false;
  numbers.close = async () => {
    await new Promise((resolve) => setTimeout(resolve, 50));
    isRemoved = true;
  };
  await numbers.loop.stop(0);
  expect(isRemoved).toBe(true);
});

test('a stop ends in its time, though neither a claim nor the return of its units gets an answer', async () => {
  const numbers = await unanswered();
  numbers.leave = () => new Promise(() => {});
  const since = awakeMs();
  const stopped = numbers.loop.stop(0);
  // Its loop has begun to stop by then, and has not asked for a recall yet.
  await new Promise((resolve) => setTimeout(resolve, 2000));
  numbers.loop.requireRecall();
  await stopped;
  // A second more for a busy machine.
  expect(awakeMs() - since).toBeLessThan(END_MS + 1000);
});

test('without a lease nothing is claimed and nothing begins, and afterwards the loop goes on under a new id', async () => {
  const numbers = new Numbers([1, 2, 3], 1);
  await numbers.start();
  await until('all is claimed', () => numbers.left.length === 0);
  numbers.hasLease = false;
  numbers.end(1);
  expect(numbers.begun).toEqual([1, 2]);
  numbers.left = [4];
  const { generation } = numbers.loop;
  numbers.lost();
  expect(numbers.loop.generation).toBe(generation + 1);
  numbers.hasLease = true;
  await until('what came since is begun', () => numbers.begun.includes(4));
  expect(numbers.loop.id).toBe(2);
  expect(numbers.begun).toEqual([1, 2, 4]);
});

test('a worker that has been busy for long asks for no notifications, and asks for them before it sleeps', async () => {
  const numbers = new Numbers(Array.from({ length: 1_000_000 }, (_, index) => index));
  using idle = probe.watch('numbers.idle');
  numbers.begin = () => queueMicrotask(() => numbers.loop.ended());
  await numbers.start();
  await until('it asks for none', () => numbers.wishes.length === 1);
  expect(numbers.wishes).toEqual([false]);
  numbers.left = [];
  await idle.next();
  expect(numbers.wishes).toEqual([false, true]);
  expect(numbers.loop.wantsNotify).toBe(true);
});

describe('claimed units begin while the claim of the next ones is on its way', () => {
  /** Each claim answers at most four units. @returns how many units had begun at each claim */
  function watched(numbers: Numbers): number[] {
    const begun: number[] = [];
    const claim = numbers.claim.bind(numbers);
    numbers.claim = (worker, limit) => {
      begun.push(numbers.begun.length);
      return claim(worker, Math.min(limit, 4));
    };
    return begun;
  }

  test('if there is room for more', async () => {
    const numbers = new Numbers([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 7);
    const begunAtClaim = watched(numbers);
    await numbers.start();
    await until('all there is room for is claimed', () => numbers.left.length === 2);
    expect(begunAtClaim).toEqual([0, 0, 2]);
    expect(numbers.begun).toEqual([1, 2]);
  });

  test('and not later, if that claim does not answer', async () => {
    const numbers = new Numbers([1, 2, 3, 4, 5], 7);
    const begunAtClaim = watched(numbers);
    const claim = numbers.claim.bind(numbers);
    numbers.claim = (worker, limit) => (begunAtClaim.length === 0 ? claim(worker, limit) : new Promise(() => {}));
    await numbers.start();
    await until('they have begun', () => numbers.begun.length === 2);
    expect(numbers.left).toEqual([5]);
  });

  test('and not later, if that claim fails', async () => {
    const numbers = new Numbers([1, 2, 3, 4, 5], 7);
    const begunAtClaim = watched(numbers);
    const claim = numbers.claim.bind(numbers);
    numbers.claim = (worker, limit) => {
      if (begunAtClaim.length === 1) throw new Error('no connection');
      return claim(worker, limit);
    };
    await numbers.start();
    await until('they have begun', () => numbers.begun.length === 2);
    expect(numbers.left).toEqual([5]);
    expect(numbers.errors).toHaveLength(1);
  });

  test('and are given back, if the worker stops before that claim', async () => {
    const numbers = new Numbers([1, 2, 3, 4, 5], 7);
    const begunAtClaim = watched(numbers);
    let stopped: Promise<void> | undefined;
    const nextPoll = numbers.nextPoll.bind(numbers);
    numbers.nextPoll = (answer) => {
      stopped = numbers.loop.stop(0);
      return nextPoll(answer);
    };
    await numbers.start();
    await until('it stops', () => stopped !== undefined);
    await stopped;
    expect(begunAtClaim).toEqual([0]);
    expect(numbers.begun).toEqual([]);
    expect(numbers.released).toEqual([1, 2, 3, 4]);
  });

  test('and not at all, if the lease has ended when that claim would go out', async () => {
    const numbers = new Numbers([1, 2, 3, 4, 5], 7);
    const begunAtClaim = watched(numbers);
    const nextPoll = numbers.nextPoll.bind(numbers);
    numbers.nextPoll = (answer) => {
      numbers.hasLease = false;
      return nextPoll(answer);
    };
    await numbers.start();
    await until('they are claimed', () => numbers.loop.slots.waiting.length === 4);
    await numbers.loop.stop(0);
    expect(begunAtClaim).toEqual([0]);
    expect(numbers.begun).toEqual([]);
  });

  test('and at once, if there is no other claim', async () => {
    const numbers = new Numbers([1, 2, 3, 4], 2);
    const begunAtClaim = watched(numbers);
    await numbers.start();
    await until('they have begun', () => numbers.begun.length === 2);
    expect(begunAtClaim).toEqual([0]);
  });
});
