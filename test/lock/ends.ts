import { describe, expect } from 'vitest';
import { ConnectionFailed, LockTimeout, Stopped } from '../../src/base/errors.ts';
import { createLocks, type Lock, type LockEngine, type LockOptions, type Locks } from '../../src/lock/index.ts';
import { until } from '../support/eventually.ts';
import { atTestEnd, together } from '../support/together.ts';

/** How a store answers: at once, later than a waiter has patience for, not at all, or with a refused connection. */
export type Condition = 'answers' | 'slow' | 'silent' | 'gone';

/** An engine whose store can be made to fail. */
export interface Unsteady {
  readonly engine: LockEngine;
  become(condition: Condition): void;
  /** How many requests it was sent so far. */
  readonly asked: number;
  /** Resolves when all that it was asked until now is answered. */
  answered(): Promise<unknown>;
}

export interface EndsWorld {
  engine(): LockEngine;
  unsteady(): Promise<Unsteady>;
  readonly hasSets: boolean;
}

/** Longer than a waiter has patience for with a statement that is under way. */
export const SLOW_MS = 900;
const WAIT_MS = 4000;
/** More than twice as long as an answer says why a wait was not served. */
const LONG_WAIT_MS = 12_000;
/** What is promised is a second; the rest is for a machine that does much else. */
const SOON_MS = 6000;

let nth = 0;

/** Every way to wait for a lock, of names of its own. */
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

/** For each way to wait and to be ended, while the store answers, is slow, is silent, is gone: which error, after how long. */
export function describeEndsOfWaits(title: string, world: () => EndsWorld): void {
  interface Scene {
    readonly settled: Map<string, Promise<{ readonly error: unknown; readonly ms: number }>>;
    readonly abort: (reason: Error) => void;
    readonly locks: Locks;
    readonly store: Unsteady;
    /** Fails when anything is left of the waits once the store answers again. */
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
    for (const kind of kinds) {
      const call = WAITS[kind]?.(locks, kind, { wait, signal: controller.signal }) ?? Promise.resolve();
      const end = (error: unknown): { error: unknown; ms: number } => ({ error, ms: performance.now() - start });
      settled.set(
        kind,
        call.then(() => end('it was had'), end),
      );
    }
    const seen = new Set<string>();
    // One that waits without a place is not seen. On a busy machine the first may have waited enough when the last is seen.
    await until('they wait', async () => {
      for (const { name } of (await steady.query()).waiting) seen.add(name);
      return kinds.every((kind) => kind === 'unfair' || seen.has(kind));
    });
    // A waiter is seen by others before it knows: cut off here, it would never have been told that somebody holds the lock.
    // Those that were still in line for a connection come before this question.
    await locks.query();
    await store.answered();
    store.become(condition);
    const { asked } = store;
    await until('it was asked', () => store.asked > asked);
    return {
      settled,
      locks,
      store,
      abort: (reason) => controller.abort(reason),
      expectNothingLeft: async () => {
        store.become('answers');
        await Promise.all(held.map((lock) => lock.release()));
        await until('nothing is left of them', async () => {
          const seen = await steady.query();
          return seen.held.length === 0 && seen.waiting.length === 0;
        });
      },
    };
  }

  const seconds = (ms: number): string => `${Math.round(ms)} ms`;

  describe(`${title}: ending a wait while the store`, () => {
    for (const condition of ['answers', 'slow', 'silent', 'gone'] as const) {
      const is = condition === 'answers' ? condition : `is ${condition}`;

      together(`${is}: an aborted one rejects with the reason of its signal within a second`, async () => {
        const { settled, abort, expectNothingLeft } = await waiting(condition, Infinity);
        const reason = new Error('the reason of the signal');
        const from = performance.now();
        abort(reason);
        for (const [kind, end] of settled) expect([kind, (await end).error]).toEqual([kind, reason]);
        expect(performance.now() - from, seconds(performance.now() - from)).toBeLessThan(SOON_MS);
        await expectNothingLeft();
      });

      together(`${is}: one that is not served in time rejects with LockTimeout, never early`, async () => {
        const { settled, expectNothingLeft } = await waiting(condition, WAIT_MS);
        for (const [kind, end] of settled) {
          const { error, ms } = await end;
          expect([kind, error]).toEqual([kind, expect.any(LockTimeout)]);
          if (condition === 'gone') expect(String(error)).not.toContain('was still held');
          expect(ms, `${kind}: ${seconds(ms)}`).toBeGreaterThanOrEqual(WAIT_MS - 1);
          expect(ms, `${kind}: ${seconds(ms)}`).toBeLessThan(WAIT_MS + SOON_MS);
        }
        await expectNothingLeft();
      });

      together(`${is}: locks that are stopped reject it with Stopped within a second`, async () => {
        const { settled, locks, expectNothingLeft } = await waiting(condition, Infinity);
        const from = performance.now();
        await locks.stop();
        for (const [kind, end] of settled) expect([kind, (await end).error]).toEqual([kind, expect.any(Stopped)]);
        expect(performance.now() - from, seconds(performance.now() - from)).toBeLessThan(SOON_MS);
        await expectNothingLeft();
      });
    }

    together(
      'is gone for most of the wait: it rejects with ConnectionFailed, as nobody may hold the lock',
      async () => {
        const { settled, expectNothingLeft } = await waiting('gone', LONG_WAIT_MS);
        for (const [kind, end] of settled) {
          expect([kind, (await end).error]).toEqual([kind, expect.any(ConnectionFailed)]);
        }
        await expectNothingLeft();
      },
    );
  });
}
