import { describe, expect } from 'vitest';
import { ConnectionFailed, LockTimeout, Stopped } from '../../src/base/errors.ts';
import { createLocks, type Lock, type LockEngine, type LockOptions, type Locks } from '../../src/lock/index.ts';
import { until } from '../support/eventually.ts';
import { awakeMs } from '../support/time/awake.ts';
import { atTestEnd, together } from '../support/together.ts';

/** How a store answers: at once, later than a cancelled wait lasts, not at all, or with a refused connection. */
export type Condition = 'answers' | 'slow' | 'silent' | 'gone';

/** An engine whose store can fail on demand. */
export interface Unsteady {
  readonly engine: LockEngine;
  become(condition: Condition): void;
  /** How many requests it has received so far. */
  readonly asked: number;
  /** Resolves when all requests so far are answered. */
  answered(): Promise<unknown>;
}

export interface EndsWorld {
  engine(): LockEngine;
  unsteady(): Promise<Unsteady>;
  readonly hasSets: boolean;
}

/** Longer than a cancelled wait lasts for a statement that is under way. */
export const SLOW_MS = 900;
const WAIT_MS = 4000;
/** Of a wait, so much at least passes with a store that has changed. */
const LEFT_MS = 1500;
/**
 * And no more than this where the wait is longer than usual. A store that has not answered for five seconds is told as unreachable, and
 * a wait without a place has asked it some time before.
 */
const MOST_LEFT_MS = 3500;
/** Four times the age up to which an answer explains an unserved wait: on a busy machine the store is gone late. */
const LONG_WAIT_MS = 20_000;
/** The promise is one second; the rest is for a busy machine. */
const SOON_MS = 6000;

let nth = 0;

/** Throws every error except that of a store that has not answered in time. */
function unlessUnanswered(error: unknown): void {
  if (!(error instanceof ConnectionFailed)) throw error;
}

/** Every kind of wait for a lock, each with names of its own. */
const WAITS: Readonly<Record<string, (locks: Locks, name: string, options: LockOptions) => Promise<unknown>>> = {
  acquire: (locks, name, options) => locks.acquire(name, options),
  request: (locks, name, options) => locks.request(name, options, () => 'had'),
  shared: (locks, name, options) => locks.acquire(name, { ...options, mode: 'shared' }),
  unfair: (locks, name, options) => locks.acquire(name, { ...options, fair: false }),
  'without a lease': (locks, name, options) => locks.acquire(name, { ...options, lease: Infinity }),
  semaphore: (locks, name, options) => locks.semaphore(name, { permits: 2 }).acquire(options),
  'request of a semaphore': (locks, name, options) =>
    locks.semaphore(name, { permits: 2 }).request(options, () => 'had'),
  set: (locks, name, options) => locks.acquire([name, `${name} too`], options),
};

/**
 * For each kind of wait and of its end, while the store answers, is slow, is silent or is gone: which error comes, and when.
 */
export function describeEndsOfWaits(title: string, world: () => EndsWorld): void {
  interface Scene {
    readonly settled: Map<string, Promise<{ readonly error: unknown; readonly ms: number; readonly awake: number }>>;
    readonly abort: (reason: Error) => void;
    readonly locks: Locks;
    readonly store: Unsteady;
    /** How long the waits had lasted when the store changed. */
    readonly setMs: number;
    /** Fails if anything is left of the waits once the store answers again. */
    readonly expectNothingLeft: () => Promise<void>;
  }

  async function waiting(condition: Condition, wait: number): Promise<Scene> {
    const space = `ends ${(nth += 1)}`;
    const steady = createLocks(world().engine(), { namespace: space });
    const store = await world().unsteady();
    const locks = createLocks(store.engine, { namespace: space });
    atTestEnd(async () => {
      store.become('answers');
      await Promise.all([locks.stop(), steady.stop()]);
    });
    const kinds = Object.keys(WAITS).filter((kind) => kind !== 'set' || world().hasSets);
    const held: Lock[] = await Promise.all(kinds.map((kind) => steady.acquire(kind)));
    const controller = new AbortController();
    const settled: Scene['settled'] = new Map();
    const start = performance.now();
    const from = awakeMs();
    for (const kind of kinds) {
      const call = WAITS[kind]?.(locks, kind, { wait, signal: controller.signal }) ?? Promise.resolve();
      const end = (error: unknown): { error: unknown; ms: number; awake: number } => ({
        error,
        ms: performance.now() - start,
        awake: awakeMs() - from,
      });
      settled.set(
        kind,
        call.then(() => end('the lock was taken'), end),
      );
    }
    const seen = new Set<string>();
    const areOver = (): boolean => performance.now() - start > wait;
    // A wait without a place is invisible. On a busy machine the first wait may be over when the last one shows, or before it was seen.
    await until('they wait, or all waits are over', async () => {
      for (const { name } of (await steady.query()).waiting) seen.add(name);
      return kinds.every((kind) => kind === 'unfair' || seen.has(kind)) || areOver();
    });
    // Others see a waiter before it has its own answer. If the store failed now, the waiter would never learn that the lock
    // is held. Those that were still in line for a connection come before this question.
    await locks.query();
    await store.answered();
    store.become(condition);
    const setMs = performance.now() - start;
    const { asked } = store;
    await until('it was asked, or all waits are over', () => store.asked > asked || areOver());
    return {
      settled,
      locks,
      store,
      setMs,
      abort: (reason) => controller.abort(reason),
      expectNothingLeft: async () => {
        store.become('answers');
        // Where a busy store answers late, release() rejects and the lock goes on to repeat the request until it is answered.
        await Promise.all(held.map((lock) => lock.release().catch(unlessUnanswered)));
        await until('nothing is left of the waits', async () => {
          const seen = await steady.query();
          return seen.held.length === 0 && seen.waiting.length === 0;
        });
      },
    };
  }

  /**
   * Waits that end some time after the store has changed. On a busy machine the waits may be over, or nearly so, before the scene is
   * set: then it is set again, with the time that it took.
   */
  async function waitingInTime(condition: Condition): Promise<{ readonly scene: Scene; readonly wait: number }> {
    for (let wait = WAIT_MS; ; ) {
      const scene = await waiting(condition, wait);
      const leftMs = wait - scene.setMs;
      if (leftMs > LEFT_MS && (wait === WAIT_MS || leftMs <= MOST_LEFT_MS)) return { scene, wait };
      scene.abort(new Error('the scene was not set in time'));
      await Promise.all(scene.settled.values());
      await scene.expectNothingLeft();
      wait = scene.setMs + (LEFT_MS + MOST_LEFT_MS) / 2;
    }
  }

  const seconds = (ms: number): string => `${Math.round(ms)} ms`;

  describe(`${title}: ending a wait while the store`, () => {
    // One condition after the other: all at once, a hundred waiters kept the stand-in of a store from answering any.
    describe.each(['answers', 'slow', 'silent', 'gone'] as const)('%s', (condition) => {
      const is = condition === 'answers' ? condition : `is ${condition}`;

      together(`${is}: an aborted wait rejects with the reason of its signal within a second`, async () => {
        const { settled, abort, expectNothingLeft } = await waiting(condition, Infinity);
        const reason = new Error('the reason of the signal');
        const from = awakeMs();
        abort(reason);
        for (const [kind, end] of settled) expect([kind, (await end).error]).toEqual([kind, reason]);
        expect(awakeMs() - from, seconds(awakeMs() - from)).toBeLessThan(SOON_MS);
        await expectNothingLeft();
      });

      together(`${is}: a wait that is not served in time rejects with LockTimeout, never early`, async () => {
        const { scene, wait } = await waitingInTime(condition);
        const { settled, expectNothingLeft } = scene;
        for (const [kind, end] of settled) {
          const { error, ms, awake } = await end;
          expect([kind, error]).toEqual([kind, expect.any(LockTimeout)]);
          if (condition === 'gone') expect(String(error)).not.toContain('was still held');
          expect(ms, `${kind}: ${seconds(ms)}`).toBeGreaterThanOrEqual(wait - 1);
          expect(awake, `${kind}: ${seconds(awake)}`).toBeLessThan(wait + SOON_MS);
        }
        await expectNothingLeft();
      });

      together(`${is}: stopping the locks rejects a wait with Stopped within a second`, async () => {
        const { settled, locks, expectNothingLeft } = await waiting(condition, Infinity);
        const from = awakeMs();
        await locks.stop();
        for (const [kind, end] of settled) expect([kind, (await end).error]).toEqual([kind, expect.any(Stopped)]);
        expect(awakeMs() - from, seconds(awakeMs() - from)).toBeLessThan(SOON_MS);
        await expectNothingLeft();
      });

      // Its wait is the longest: it goes next to the shortest ones.
      if (condition === 'answers') describeLongOutage();
    });
  });

  function describeLongOutage(): void {
    together(
      'is gone for most of the wait: the wait rejects with ConnectionFailed, since the lock may be free',
      async () => {
        const { settled, expectNothingLeft } = await waiting('gone', LONG_WAIT_MS);
        for (const [kind, end] of settled) {
          expect([kind, (await end).error]).toEqual([kind, expect.any(ConnectionFailed)]);
        }
        await expectNothingLeft();
      },
    );
  }
}
