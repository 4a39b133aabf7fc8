import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { Deadlock, InvalidInput, LeaseLost, LockTimeout } from '../../src/base/errors.ts';
import {
  createLocks,
  type Duration,
  type Lock,
  type LockEngine,
  type Locks,
  type LocksOptions,
} from '../../src/lock/index.ts';
import { until } from '../support/eventually.ts';
import { awakeMs } from '../support/time/awake.ts';
import { wallClock, whileStepping } from '../support/time/wall-clock.ts';

/** The stage of the promises: engines on one database, each like a process of its own. */
export interface LockWorld {
  engine(options?: { readonly listen?: boolean; readonly max?: number }): LockEngine;
  /** False on a stand-in without transactions: sets are not tested there. */
  readonly hasSets?: boolean;
}

let names = 0;
const fresh = (stem = 'lock'): string => `${stem}-${(names += 1)}`;
/** For requests that are still under way when their locks are stopped. */
const ignore = (): void => {};
const within = async (work: Promise<unknown>): Promise<number> => {
  const start = awakeMs();
  await work;
  return awakeMs() - start;
};

/** Fails if one of the names is held or waited for. */
async function expectNothingLeft(locks: Locks, ...which: string[]): Promise<void> {
  const { held, waiting } = await locks.query();
  expect([...held, ...waiting].filter((each) => which.includes(each.name))).toEqual([]);
}

/** The promises of locks, on any engine. */
export function describeLocks(title: string, world: () => LockWorld): void {
  const ours = (options: LocksOptions = {}, engine = world().engine()): Locks => {
    const locks = createLocks(engine, options);
    onTestFinished(() => locks.stop());
    return locks;
  };

  describe(`${title}: holding`, () => {
    // Invariant L1.
    test('an exclusive lock has at most one holder, and the value under it loses no update', async () => {
      const name = fresh();
      const parties = [ours(), ours(), ours({}, world().engine({ listen: false }))];
      let count = 0;
      let inside = 0;
      const add = async (locks: Locks): Promise<void> => {
        await locks.request(name, async () => {
          expect((inside += 1)).toBe(1);
          const read = count;
          await sleep(1);
          count = read + 1;
          inside -= 1;
        });
      };
      await Promise.all(parties.flatMap((locks) => Array.from({ length: 8 }, () => add(locks))));
      expect(count).toBe(24);
      await expectNothingLeft(parties[0] ?? ours(), name);
    });

    // Invariant L3.
    test('tokens of one name rise across release, expiry, clean-up and processes', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const tokens: bigint[] = [];
      const note = async (lock: Lock): Promise<void> => void tokens.push(lock.token);
      await a.request(name, note);
      await b.request(name, note);
      await a
        .request(name, { lease: '5s' }, async (lock) => {
          await note(lock);
          await a.break(name, { reason: 'test' });
          await b.request(name, note);
        })
        .catch((error: unknown) => expect(error).toBeInstanceOf(LeaseLost));
      if (world().hasSets !== false) await b.request([name, fresh()], note);
      await a.semaphore(name, { permits: 2 }).request(note);
      await b.request(name, { mode: 'shared' }, note);
      expect(tokens).toHaveLength(world().hasSets === false ? 6 : 7);
      expect([...new Set(tokens)].sort((x, y) => (x < y ? -1 : 1))).toEqual(tokens);
    });

    test('a lock outlasts its lease as long as its process lives, and no other client gets it', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      // Long enough for a machine under load to renew it.
      const lock = await a.acquire(name, { lease: '4s' });
      const end = performance.now() + 5000;
      while (performance.now() < end) {
        expect(await b.tryAcquire(name)).toBeUndefined();
        await sleep(100);
      }
      expect(lock.isHeld).toBe(true);
      await lock.release();
      const next = await b.tryAcquire(name);
      expect(next?.token).toBeGreaterThan(lock.token);
    });

    test('releasing twice is silent, and a lock is free at once', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name);
      await Promise.all([lock.release(), lock.release()]);
      await lock.release();
      expect(lock.isHeld).toBe(false);
      expect(lock.remainingMs()).toBe(0);
      expect(() => lock.assertHeld()).toThrow(LeaseLost);
      expect(await b.tryAcquire(name)).toBeDefined();
    });

    test('a lock is released at the end of its block', async () => {
      const name = fresh();
      const locks = ours();
      {
        await using lock = await locks.acquire(name);
        expect(lock.isHeld).toBe(true);
      }
      await expectNothingLeft(locks, name);
    });

    test('equal names of different namespaces are different locks, and names are compared exactly', async () => {
      const name = `${fresh()} '"\\ ü 🔒 {,}`;
      const [a, b] = [ours({ namespace: 'a' }), ours({ namespace: 'b' })];
      const [one, two] = [await a.acquire(name), await b.tryAcquire(name)];
      expect(two).toBeDefined();
      expect((await a.query()).held.map((each) => each.name)).toEqual([name]);
      await one.release();
      expect(await a.tryAcquire(`${name} `)).toBeDefined();
    });

    test('locks of any names, up to 255 bytes, exclude each other by the whole name', async () => {
      const locks = ours();
      const long = `${fresh()}${'x'.repeat(240)}`.slice(0, 254);
      expect(await locks.tryAcquire(`${long}a`)).toBeDefined();
      expect(await locks.tryAcquire(`${long}b`)).toBeDefined();
      expect(await locks.tryAcquire(`${long}a`)).toBeUndefined();
    });
  });

  describe(`${title}: losing`, () => {
    test('the holder of a broken lock learns the reason, at the latest at its next heartbeat', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name, { lease: '3s' });
      const lost = new Promise((resolve) => a.on('lost', resolve));
      const gone = await b.break(name, { reason: 'stuck since noon' });
      expect(gone.map((each) => each.token)).toEqual([lock.token]);
      await until('the holder knows', () => lock.signal.aborted);
      expect(lock.signal.reason).toMatchObject({ code: 'lease_lost', reason: 'broken' });
      expect(String(lock.signal.reason)).toContain('stuck since noon');
      expect(await lost).toMatchObject({ error: lock.signal.reason });
      await expect(lock.release()).rejects.toMatchObject({ code: 'lease_lost', reason: 'broken' });
      await lock[Symbol.asyncDispose]();
    });

    // Invariant L8.
    test('a late release changes nothing for the next holder, and reports the loss', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name);
      await b.break(name, { reason: 'test' });
      const next = await b.acquire(name);
      await expect(lock.release()).rejects.toBeInstanceOf(LeaseLost);
      expect((await a.query()).held.map((each) => each.token)).toContain(next.token);
      next.assertHeld();
    });

    // Invariant L22.
    test('an error of the release never hides an error of the body', async () => {
      const name = fresh();
      const locks = ours();
      const failure = new Error('the body failed');
      const lost = locks.request(name, async () => {
        await locks.break(name, { reason: 'test' });
        throw failure;
      });
      await expect(lost).rejects.toBe(failure);
    });

    test('a lock that was lost under a successful body is reported', async () => {
      const name = fresh();
      const locks = ours();
      const lost = locks.request(name, async () => void (await locks.break(name, { reason: 'test' })));
      await expect(lost).rejects.toMatchObject({ code: 'lease_lost', reason: 'broken' });
    });

    test('a lock without a lease stays until it is released or broken', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name, { lease: Infinity });
      expect(lock.remainingMs()).toBe(Infinity);
      expect(await b.tryAcquire(name)).toBeUndefined();
      await expect(b.acquire(name, { wait: '50ms' })).rejects.toThrow(LockTimeout);
      expect((await b.explain(name)).holders).toMatchObject([{ token: lock.token, leaseLeftMs: null }]);
      await b.break(name, { reason: 'the last run did not finish' });
      expect(await b.tryAcquire(name)).toBeDefined();
    });
  });

  describe(`${title}: waiting`, () => {
    test('a waiter gets a released lock well before its next poll', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      await b.acquire(fresh()).then((lock) => lock.release());
      const rounds: number[] = [];
      while (rounds.length < 5) {
        const lock = await a.acquire(name);
        const waiting = b.acquire(name, { wait: '30s' });
        await until('it waits', async () => (await a.query()).waiting.length > 0);
        await lock.release();
        rounds.push(await within(waiting.then((next) => next.release())));
      }
      // The first release may come before the waiter listens. A poll alone would take half a second on average.
      expect(Math.min(...rounds)).toBeLessThan(250);
    });

    test('after a direct hand-off a lock has its whole lease from the first heartbeat on', async () => {
      const name = fresh();
      const [a, b] = [ours({ waiterLease: '3s' }), ours({ waiterLease: '3s' })];
      const lock = await a.acquire(name);
      const waiting = b.acquire(name, { lease: '20s' });
      await until('it waits', async () => (await a.query()).waiting.length > 0);
      await lock.release();
      const next = await waiting;
      expect(next.token).toBeGreaterThan(lock.token);
      // At first it has the lease of its place.
      await until('it was renewed', () => next.remainingMs() > 15_000);
      expect((await a.explain(name)).holders).toMatchObject([{ token: next.token }]);
      expect((await a.explain(name)).holders[0]?.leaseLeftMs).toBeGreaterThan(15_000);
      await next.release();
    });

    test('a lock can have a shorter lease than a place in the queue', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name, { lease: '2s' });
      const waiting = b.acquire(name, { lease: '2s' });
      await until('it waits', async () => (await a.query()).waiting.length > 0);
      await lock.release();
      const next = await waiting;
      expect(next.remainingMs()).toBeLessThan(2000);
      expect(next.isHeld).toBe(true);
    });

    // Invariant L25.
    test('a lost notification only delays', async () => {
      const name = fresh();
      const deaf = ours({}, world().engine({ listen: false }));
      const lock = await ours().acquire(name);
      const waiting = deaf.acquire(name, { wait: '30s' });
      await until('it waits', async () => (await deaf.query()).waiting.length > 0);
      await lock.release();
      expect(await within(waiting)).toBeLessThan(3000);
    });

    // Invariant L15.
    test('waiters are served in the order in which they came, and no later request overtakes them', async () => {
      const name = fresh();
      const parties = [ours(), ours(), ours({}, world().engine({ listen: false }))];
      const lock = await ours().acquire(name);
      const order: number[] = [];
      const served: Promise<void>[] = [];
      for (let place = 0; place < 9; place++) {
        const locks = parties[place % 3] ?? ours();
        served.push(locks.request(name, { wait: '30s' }, async () => void order.push(place)));
        await until(
          'it waits',
          async () => (await locks.query()).waiting.filter((each) => each.name === name).length > place,
        );
      }
      await lock.release();
      const barging = setInterval(
        () => void parties[0]?.tryAcquire(name).then((got) => got && order.push(-1), ignore),
        5,
      );
      await Promise.all(served);
      clearInterval(barging);
      expect(order.slice(0, 9)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    });

    // Invariant L15.
    test('requests that one process makes at the same time are served in the order of the calls', async () => {
      const locks = ours();
      for (let round = 0; round < 3; round++) {
        const name = fresh();
        const order: number[] = [];
        await Promise.all([0, 1, 2, 3, 4, 5].map((call) => locks.request(name, async () => void order.push(call))));
        expect(order).toEqual([0, 1, 2, 3, 4, 5]);
      }
    });

    // Invariant L20.
    test('wait: 0 never waits, and a wait ends in time; neither leaves a place behind', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      await b.acquire(fresh());
      const lock = await a.acquire(name);
      expect(await within(expect(b.acquire(name, { wait: 0 })).rejects.toThrow(/is held by .*pid/))).toBeLessThan(2000);
      const begun = performance.now();
      const refused = expect(b.acquire(name, { wait: '200ms' })).rejects.toThrow(/still held (by .* )?after 200ms/);
      expect(await within(refused)).toBeLessThan(3000);
      expect(performance.now() - begun).toBeGreaterThanOrEqual(199);
      expect((await b.query()).waiting.filter((each) => each.name === name)).toEqual([]);
      await lock.release();
      await expectNothingLeft(a, name);
    });

    // Invariant L12.
    test('a wall clock that is set by an hour, forwards or back, ends no wait early and costs no lock', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name, { lease: '20s', heartbeat: '300ms' });
      await whileStepping(wallClock(), async () => {
        const heartbeat = async (): Promise<number | undefined> =>
          (await b.explain(name)).holders[0]?.lastHeartbeatAt?.getTime();
        const first = await heartbeat();
        for (const fair of [true, false]) {
          const begun = performance.now();
          await expect(b.acquire(name, { wait: '1s', fair })).rejects.toThrow(LockTimeout);
          expect(performance.now() - begun).toBeGreaterThanOrEqual(999);
        }
        const waiting = b.acquire(name, { wait: '30s' });
        await until('it was renewed', async () => (await heartbeat()) !== first);
        expect(lock.isHeld).toBe(true);
        await lock.release();
        const next = await waiting;
        next.assertHeld();
        await next.release();
      });
    });

    test('after a suspension for longer than the lease, a machine counts none of its locks as held', async () => {
      const locks = ours();
      const clock = wallClock();
      const lock = await locks.acquire(fresh(), { lease: '20s' });
      clock.suspend(20_000);
      expect(lock.isHeld).toBe(false);
      expect(() => lock.assertHeld()).toThrow(LeaseLost);
    });

    // Invariant L21.
    test('a waiter that is aborted, at any moment, leaves neither lock nor place', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      for (let ms = 0; ms < 24; ms++) {
        const lock = ms % 2 === 0 ? await a.acquire(name) : undefined;
        const reason = new Error(`enough after ${ms} ms`);
        const controller = new AbortController();
        const waiting = b.acquire(name, { signal: controller.signal });
        const settled = waiting.then(
          (got) => got,
          (error: unknown) => error,
        );
        await sleep(ms / 2);
        controller.abort(reason);
        await lock?.release();
        const outcome = await settled;
        if (outcome !== reason) await (await waiting).release();
        await expectNothingLeft(a, name);
      }
      await expect(b.acquire(name, { signal: AbortSignal.abort(new Error('before')) })).rejects.toThrow('before');
    });

    test('the signal that could end the wait has no effect once the lock is held', async () => {
      const controller = new AbortController();
      const lock = await ours().acquire(fresh(), { signal: controller.signal });
      controller.abort();
      await sleep(20);
      expect(lock.isHeld).toBe(true);
      expect(lock.signal.aborted).toBe(false);
    });

    test('a request without a place in the queue is served after those with one', async () => {
      const name = fresh();
      const [a, b, c] = [ours(), ours(), ours()];
      const lock = await a.acquire(name);
      const order: string[] = [];
      const unfair = [1, 2, 3].map(() =>
        b.request(name, { fair: false, wait: '30s' }, () => void order.push('unfair')),
      );
      await sleep(50);
      const fair = c.request(name, { wait: '30s' }, () => void order.push('fair'));
      await until('it waits', async () => (await c.query()).waiting.length === 1);
      await lock.release();
      await Promise.all([...unfair, fair]);
      expect(order).toEqual(['fair', 'unfair', 'unfair', 'unfair']);
    });

    test('stopping ends the waits and releases the locks', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      await a.acquire(name);
      const waiting = b.acquire(name);
      const refused = expect(waiting).rejects.toMatchObject({ code: 'stopped' });
      await until('it waits', async () => (await a.query()).waiting.length > 0);
      await b.stop();
      await refused;
      await a.stop();
      await a.stop();
      await expect(a.acquire(name)).rejects.toMatchObject({ code: 'stopped' });
      await expectNothingLeft(ours(), name);
    });
  });

  describe(`${title}: sharing`, () => {
    // Invariant L16.
    test('readers hold a lock together, a writer alone', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const readers = [await a.acquire(name, { mode: 'shared' }), await b.acquire(name, { mode: 'shared' })];
      expect(await b.tryAcquire(name)).toBeUndefined();
      for (const reader of readers) await reader.release();
      const writer = await b.tryAcquire(name);
      expect(writer).toBeDefined();
      expect(await a.tryAcquire(name, { mode: 'shared' })).toBeUndefined();
    });

    test('readers that wait for a writer get the lock together', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const writer = await a.acquire(name);
      let together = 0;
      let most = 0;
      const read = async (locks: Locks): Promise<void> =>
        locks.request(name, { mode: 'shared', wait: '30s' }, async () => {
          most = Math.max(most, (together += 1));
          await until('all of them read', () => most === 6);
          together -= 1;
        });
      const reading = [a, b, a, b, a, b].map(read);
      await until('they wait', async () => (await a.query()).waiting.length === 6);
      await writer.release();
      await Promise.all(reading);
      expect(most).toBe(6);
    });

    // Invariant L16.
    test('a stream of readers does not starve a writer', async () => {
      const name = fresh();
      const [a, b, c] = [ours(), ours(), ours()];
      let isOver = false;
      const stream = async (locks: Locks): Promise<void> => {
        while (!isOver) await locks.request(name, { mode: 'shared' }, () => sleep(20));
      };
      const streams = [stream(a), stream(a), stream(b), stream(b)];
      await sleep(60);
      const ms = await within(c.request(name, { wait: '30s' }, () => sleep(5)));
      isOver = true;
      await Promise.all(streams);
      expect(ms).toBeLessThan(10_000);
    });

    // Invariant L17.
    test('a semaphore never exceeds its permits, and never gets stuck below them', async () => {
      const name = fresh();
      const parties = [ours(), ours(), ours()].map((locks) => locks.semaphore(name, { permits: 3 }));
      let inside = 0;
      let most = 0;
      const use = async (index: number): Promise<void> =>
        parties[index % 3]?.request({ wait: '30s' }, async () => {
          most = Math.max(most, (inside += 1));
          // Until as many as the permits hold it at once; a semaphore that is stuck below would never get there.
          while (most < 3) await sleep(10);
          inside -= 1;
        });
      await Promise.all(Array.from({ length: 24 }, (_, index) => use(index)));
      expect([most, inside]).toEqual([3, 0]);
      const all = [await parties[0]?.tryAcquire(), await parties[1]?.tryAcquire(), await parties[2]?.tryAcquire()];
      expect(all.every((permit) => permit !== undefined)).toBe(true);
      expect(await parties[0]?.tryAcquire()).toBeUndefined();
    });
  });

  describe(`${title}: several at once`, () => {
    // Invariant L18.
    test('a set is taken as a whole or not at all', async ({ skip }) => {
      skip(world().hasSets === false, 'no transactions here');
      const [x, y, z] = [fresh(), fresh(), fresh()];
      const [a, b] = [ours(), ours()];
      const middle = await a.acquire(y);
      expect(await b.tryAcquire([x, y, z])).toBeUndefined();
      await expectNothingLeft(b, x, z);
      await middle.release();
      const set = await b.acquire([z, x, y, x]);
      expect(set.names).toEqual([x, y, z].sort());
      expect((await a.query()).held.map((each) => each.token)).toEqual([set.token, set.token, set.token]);
      await set.release();
      await expectNothingLeft(a, x, y, z);
    });

    test.for(['at once', 'after the loss was reported'])(
      'the release of a set that has lost one name reports the loss (%s), and releases the other names',
      async (when, { skip }) => {
        skip(world().hasSets === false, 'no transactions here');
        const [x, y] = [fresh(), fresh()];
        const [a, b] = [ours(), ours()];
        const set = await a.acquire([x, y], { lease: '3s' });
        await b.break(x, { reason: 'test' });
        if (when !== 'at once') await until('the holder knows', () => set.signal.aborted);
        const next = b.acquire([x, y], { wait: '30s' });
        await expect(set.release()).rejects.toMatchObject({ code: 'lease_lost', reason: 'broken' });
        expect((await b.query()).held.filter(({ token }) => token === set.token)).toEqual([]);
        await (await next).release();
      },
    );

    test('a set of readers that has lost one name does not affect other readers of the remaining names', async ({
      skip,
    }) => {
      skip(world().hasSets === false, 'no transactions here');
      const [x, y] = [fresh(), fresh()];
      const [a, b] = [ours(), ours()];
      const set = await a.acquire([x, y], { mode: 'shared', lease: '1s' });
      const reader = await b.acquire(y, { mode: 'shared' });
      await b.break(x, { reason: 'test' });
      await until('the holder knows', () => set.signal.aborted);
      await expect(set.release()).rejects.toBeInstanceOf(LeaseLost);
      expect((await b.query()).held.filter(({ name }) => name === y).map(({ token }) => token)).toEqual([reader.token]);
      expect(await b.tryAcquire(y)).toBeUndefined();
    });

    // Invariant L18.
    test('sets with names in any order neither deadlock nor lose an update', async ({ skip }) => {
      skip(world().hasSets === false, 'no transactions here');
      const all = [fresh(), fresh(), fresh(), fresh()];
      const parties = [ours(), ours(), ours()];
      const counts = new Map(all.map((name) => [name, 0]));
      const add = async (locks: Locks, which: string[]): Promise<void> =>
        locks.request(which, { wait: '30s' }, async () => {
          const read = which.map((name) => counts.get(name) ?? 0);
          await sleep(1);
          which.forEach((name, index) => counts.set(name, (read[index] ?? 0) + 1));
        });
      const pairs = all.flatMap((x, at) => all.slice(at + 1).map((y): string[] => [x, y]));
      // Every second party names them in the reverse order.
      await Promise.all(
        parties.flatMap((locks, index) => pairs.map((pair) => add(locks, index === 1 ? pair.toReversed() : pair))),
      );
      expect([...counts.values()]).toEqual([9, 9, 9, 9]);
    });

    // Invariant L19.
    test('a nested request that would wait in a circle is refused, and the error has the circle', async () => {
      const [x, y] = [fresh('x'), fresh('y')];
      const [a, b] = [ours(), ours()];
      let isInside = false;
      const other = a.request(x, async () => {
        await until('the other request holds its lock', () => isInside);
        return a.request(y, { wait: '30s' }, () => 'the other request gave way');
      });
      const refused = b.request(y, async () => {
        isInside = true;
        await until('the other request waits', async () => (await b.query()).waiting.length > 0);
        return b.request(x, { wait: '30s' }, () => 'never');
      });
      const error: unknown = await refused.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(Deadlock);
      expect(error).toMatchObject({ code: 'deadlock', cycle: [{ name: x }, { name: y }] });
      expect(String(error)).toMatch(new RegExp(`"${x}".*waits for "${y}"`));
      expect(await other).toBe('the other request gave way');
      await expectNothingLeft(a, x, y);
    });

    // Invariant L19.
    test('of two nested requests that close a circle at the same moment one gives way', async () => {
      const [x, y] = [fresh('x'), fresh('y')];
      const [a, b] = [ours(), ours()];
      for (let round = 0; round < 5; round++) {
        let inside = 0;
        const cross = (locks: Locks, first: string, second: string): Promise<string> =>
          locks
            .request(first, async () => {
              inside += 1;
              await until('both hold their locks', () => inside === 2);
              return locks.request(second, { wait: '30s' }, () => 'served');
            })
            .catch((error: unknown) => (error instanceof Deadlock ? 'refused' : String(error)));
        const outcomes = await Promise.all([cross(a, x, y), cross(b, y, x)]);
        expect(outcomes.sort()).toEqual(['refused', 'served']);
      }
    });

    test('waiting for a lock that the same callback holds is refused, unless the work is detached', async () => {
      const name = fresh();
      const locks = ours();
      let detached: Promise<unknown> = Promise.resolve();
      await locks.request(name, async () => {
        await expect(locks.request(name, { wait: '30s' }, () => 'never')).rejects.toBeInstanceOf(Deadlock);
        expect(await locks.tryAcquire(name)).toBeUndefined();
        detached = locks.request(name, { wait: '5s', nested: false }, () => 'later');
      });
      expect(await detached).toBe('later');
      const kept = await locks.acquire(name);
      await expect(locks.acquire(name, { holding: [kept] })).rejects.toBeInstanceOf(Deadlock);
    });
  });

  describe(`${title}: once per period`, () => {
    // Invariant L23.
    test('of many callers one succeeds in each period', async () => {
      const name = fresh();
      const parties = [ours(), ours(), ours()];
      let runs = 0;
      const call = (locks: Locks, period: Duration): Promise<{ ran: boolean }> =>
        locks.oncePer(name, period, async () => void (runs += 1));
      const all = await Promise.all([...parties, ...parties].map((locks) => call(locks, '1h')));
      expect(all.filter((each) => each.ran)).toHaveLength(1);
      expect(await call(ours(), '1h')).toMatchObject({ ran: false, why: 'ran' });
      await sleep(120);
      expect(await call(ours(), '100ms')).toMatchObject({ ran: true });
      expect(runs).toBe(2);
    });

    test('a failed run is repeated at once, or counts for the period', async () => {
      const [again, kept] = [fresh(), fresh()];
      const locks = ours();
      const fail = (): never => {
        throw new Error('the run failed');
      };
      await expect(locks.oncePer(again, '1h', fail)).rejects.toThrow('the run failed');
      expect(await locks.oncePer(again, '1h', () => 'done')).toEqual({ ran: true, value: 'done' });
      await expect(locks.oncePer(kept, '1h', fail, { onError: 'keep' })).rejects.toThrow('the run failed');
      expect(await locks.oncePer(kept, '1h', () => 'done')).toMatchObject({ ran: false, why: 'ran' });
    });

    test('no second run begins while one runs, and a run whose lock was broken does not count', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lost = a.oncePer(name, '1h', async () => {
        expect(await b.oncePer(name, '1h', () => 1)).toMatchObject({ ran: false, why: 'running' });
        await b.break(name, { reason: 'test' });
      });
      await expect(lost).rejects.toBeInstanceOf(LeaseLost);
      expect(await b.oncePer(name, '1h', () => 2)).toEqual({ ran: true, value: 2 });
    });
  });

  describe(`${title}: seeing`, () => {
    test('query and explain list holders, and waiters in order', async () => {
      const name = fresh();
      const [a, b] = [ours(), ours()];
      const lock = await a.acquire(name, { lease: '10s' });
      const ends = new AbortController();
      const waiting: Promise<unknown>[] = [];
      for (const mode of ['shared', 'exclusive'] as const) {
        waiting.push(b.acquire(name, { mode, signal: ends.signal }).catch(() => {}));
        await until('it waits', async () => (await a.query()).waiting.length === waiting.length);
      }
      const seen = await a.explain(name);
      expect(seen.holders).toMatchObject([{ token: lock.token, pid: process.pid, mode: 'exclusive' }]);
      // Two thirds are left when the next heartbeat is due.
      expect(seen.holders[0]?.leaseLeftMs).toBeGreaterThan(5000);
      expect(seen.waiters.map((each) => each.mode)).toEqual(['shared', 'exclusive']);
      expect(seen.waiters[0]?.waitedMs).toBeGreaterThanOrEqual(seen.waiters[1]?.waitedMs ?? 0);
      ends.abort();
      await Promise.all(waiting);
    });

    test('explain shows what a holder waits for', async () => {
      const [x, y] = [fresh('x'), fresh('y')];
      const [a, b] = [ours(), ours()];
      const lock = await b.acquire(y);
      const nested = a.request(x, () => a.request(y, { wait: '30s' }, () => {}));
      await until('it waits', async () => (await a.query()).waiting.length > 0);
      // On DynamoDB its place exists a moment before the head of the lock that it keeps names it.
      const [why] = await until('explain shows it', async () => {
        const { blocking } = await b.explain(x);
        return blocking.length > 0 ? blocking : undefined;
      });
      expect(why).toMatch(new RegExp(`"${x}" is held by .* waits for "${y}"`));
      await lock.release();
      await nested;
    });

    test('what a holder waits for is not shown for the next holder', async () => {
      const [x, y] = [fresh('x'), fresh('y')];
      const [a, b, c] = [ours(), ours(), ours()];
      const kept = await c.acquire(y);
      const lock = await a.acquire(x);
      const ends = new AbortController();
      const waiting = b.acquire(y, { holding: [lock], signal: ends.signal }).catch(() => {});
      await until('explain shows it', async () => (await c.explain(x)).blocking.length > 0);
      await lock.release();
      const next = await c.acquire(x);
      expect((await b.explain(x)).blocking).toEqual([]);
      ends.abort();
      await Promise.all([waiting, next.release(), kept.release()]);
    });

    test('history lists who held a name, and how each hold ended', async () => {
      const name = fresh();
      const locks = ours();
      await locks.request(name, () => {});
      const lock = await locks.acquire(name);
      await locks.break(name, { reason: 'by hand' });
      const past = await locks.history({ name });
      expect(past).toMatchObject([
        { outcome: 'broken', reason: 'by hand', token: lock.token },
        { outcome: 'released', reason: null },
      ]);
      expect(await locks.history({ name, limit: 1 })).toHaveLength(1);
      // Passes the next power of ten.
      for (let i = 0; i < 10; i++) await locks.request(name, () => {});
      const tokens = (await locks.history({ name })).map((each) => each.token);
      expect(tokens).toEqual(tokens.toSorted((x, y) => (x > y ? -1 : 1)));
    });
  });

  describe(`${title}: bad input`, () => {
    const locks = (): Locks => ours();
    const cases: [string, () => Promise<unknown>, RegExp][] = [
      ['an empty name', () => locks().acquire(''), /name.*1 to 255 bytes/],
      ['a name that is too long', () => locks().acquire('é'.repeat(128)), /1 to 255 bytes/],
      ['a name with NUL', () => locks().acquire('a\0b'), /without U\+0000/],
      ['an empty set', () => locks().acquire([]), /empty set/],
      ['a bad name in a set', () => locks().acquire(['a', '']), /1 to 255 bytes/],
      ['a too short lease', () => locks().acquire('a', { lease: '99ms' }), /lease.*from 100ms to 1d/],
      ['a too long lease', () => locks().acquire('a', { lease: '25h' }), /lease.*from 100ms to 1d/],
      ['a lease of one heartbeat', () => locks().acquire('a', { lease: '1s', heartbeat: '600ms' }), /two heartbeats/],
      ['an unknown option', () => locks().acquire('a', JSON.parse('{"leas":1}')), /did you mean "lease"/],
      ['a negative wait', () => locks().acquire('a', { wait: -1 }), /wait/],
      ['a wait for a call that never waits', () => locks().tryAcquire('a', JSON.parse('{"wait":"5s"}')), /never waits/],
      ['ifAvailable', () => locks().acquire('a', JSON.parse('{"wait":"5s","ifAvailable":true}')), /tryAcquire|wait: 0/],
      [
        'a mode of a semaphore',
        () => locks().semaphore('a', { permits: 2 }).acquire(JSON.parse('{"mode":"shared"}')),
        /mode/,
      ],
      ['no permits', async () => locks().semaphore('a', { permits: 0 }), /permits/],
      ['no function', () => locks().request('a', JSON.parse('{}')), /function/],
      ['no reason', () => locks().break('a', { reason: '' }), /reason/],
      ['a period that is no duration', () => locks().oncePer('a', 'daily' as never, () => {}), /period.*duration/],
      [
        'no engine',
        async () => createLocks(JSON.parse('{}')),
        /takes the result of postgres\(\) or dynamodb\(\), but was given an object/,
      ],
    ];
    test.each(cases)('%s is refused, and the error says what to do', async (_, call, words) => {
      const error: unknown = await call().catch((reason: unknown) => reason);
      expect(String(error)).toMatch(words);
      expect(error).toMatchObject({ code: expect.stringMatching('invalid_input|not_supported') });
    });

    test('a refusal names its field', async () => {
      const refused = locks().acquire('a', { lease: 5 });
      await expect(refused).rejects.toBeInstanceOf(InvalidInput);
      await expect(locks().acquire('a', { lease: 5 })).rejects.toMatchObject({ field: 'lease' });
    });
  });

  afterEach(async () => {
    // Tests look at all held locks, so that each one has to leave none behind.
    const { held } = await createLocks(world().engine()).query();
    for (const { name } of held) await createLocks(world().engine()).break(name, { reason: 'the test is over' });
  });
}
