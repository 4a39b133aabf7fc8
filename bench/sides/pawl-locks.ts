// Pawl's locks. Profiles: `single` has one connection, which all statements share; `crowd` has three.
import { setTimeout as sleep } from 'node:timers/promises';
import { loadLocks, type PawlLock, type PawlLockEngine, type PawlLocks } from './pawl-api.ts';
import { type HeldOnce, serve } from './protocol.ts';

const CONNECTIONS: Record<string, number> = { single: 1, crowd: 3 };

/** Writes one row by its primary key, in place: the cheapest durable write. */
const WRITE = {
  name: 'bench.write',
  text: 'update bench_row set written = written + 1, written_at = clock_timestamp() where id = $1::int',
  prepare: true,
};

interface Session {
  readonly engine: PawlLockEngine;
  readonly locks: PawlLocks;
  /** The row that only this process writes, so that no process waits for another one. */
  readonly row: number;
  readonly counts: { looks: number; beats: number };
  waiting?: { readonly end: AbortController; readonly all: Promise<unknown> };
}

let opened: Session | undefined;

function current(): Session {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

/** Milliseconds of the clock that all processes of this machine share. */
function now(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = now();
  await work();
  return now() - start;
}

function write({ engine, row }: Session): Promise<unknown> {
  return engine.query(WRITE, [row]);
}

async function holdOnce(self: Session, lock: PawlLock, holdMs: number): Promise<HeldOnce> {
  const grantedAt = now();
  const writeMs = await timed(() => write(self));
  await sleep(holdMs);
  const releasedAt = now();
  await lock.release();
  return { token: String(lock.token), grantedAt, releasedAt, writeMs };
}

serve({
  async open({ url, profile }) {
    const max = CONNECTIONS[profile];
    if (max === undefined) throw new Error(`pawl-locks has no profile "${profile}"`);
    const { postgres, createLocks, storeOf } = await loadLocks();
    const engine = postgres(url, { max });
    await engine.migrate();
    const row = process.pid;
    const make =
      'create table if not exists bench_row (id int primary key, written int, written_at timestamptz) with (fillfactor = 50)';
    await engine.transaction(async (tx) => {
      await tx.query({ name: 'bench.lock', text: 'select pg_advisory_xact_lock(1)', prepare: false });
      await tx.query({ name: 'bench.make', text: make, prepare: false });
      await tx.query(
        {
          name: 'bench.row',
          text: 'insert into bench_row values ($1::int, 0, now()) on conflict do nothing',
          prepare: false,
        },
        [row],
      );
    });
    const counts = { looks: 0, beats: 0 };
    const store = storeOf(engine);
    const acquire = store.acquire.bind(store);
    const renew = store.renew.bind(store);
    store.acquire = (...args) => {
      counts.looks += 1;
      return acquire(...args);
    };
    store.renew = (...args) => {
      counts.beats += 1;
      return renew(...args);
    };
    opened = { engine, locks: createLocks(engine), row, counts };
  },

  async pairs({ count }) {
    const self = current();
    const pairs: number[] = [];
    const writes: number[] = [];
    for (let i = 0; i < count; i++) {
      pairs.push(await timed(async () => (await self.locks.acquire('pair')).release()));
      writes.push(
        await timed(async () => {
          await write(self);
          await write(self);
        }),
      );
    }
    return { pairs, writes };
  },

  async turns({ name, count, gapMs: [least, most] }) {
    const self = current();
    const holds: HeldOnce[] = [];
    for (let i = 0; i < count; i++) {
      const lock = await self.locks.acquire(name);
      holds.push(await holdOnce(self, lock, least + Math.random() * (most - least)));
    }
    return { holds };
  },

  async rush({ name, waiters, fromMs, ms }) {
    const { locks } = current();
    const start = now();
    let grants = 0;
    const take = async (): Promise<void> => {
      while (now() - start < ms) {
        const lock = await locks.acquire(name);
        const at = now() - start;
        if (at >= fromMs && at < ms) grants += 1;
        await lock.release();
      }
    };
    await Promise.all(Array.from({ length: waiters }, take));
    return { grants };
  },

  async hold({ name }) {
    await current().locks.acquire(name);
  },

  async queue({ name, waiters }) {
    const self = current();
    const end = new AbortController();
    const wait = (): Promise<unknown> =>
      self.locks.acquire(name, { signal: end.signal }).then(
        async (lock) => lock.release(),
        () => {},
      );
    self.waiting = { end, all: Promise.all(Array.from({ length: waiters }, wait)) };
  },

  async leave() {
    const self = current();
    self.waiting?.end.abort(new Error('the measurement is over'));
    await self.waiting?.all;
    delete self.waiting;
  },

  async looks() {
    return { count: current().counts.looks };
  },

  async heartbeats({ locks: many, leaseMs, intervals }) {
    const { locks, counts } = current();
    const names = Array.from({ length: many }, (_, index) => `beat-${index}`);
    const held = await Promise.all(names.map((name) => locks.acquire(name, { lease: leaseMs })));
    const interval = leaseMs / 3;
    const nextBeat = async (): Promise<number> => {
      const before = counts.beats;
      while (counts.beats === before) await sleep(2);
      return now();
    };
    // The locks were taken at different times. After two intervals they are renewed together.
    await sleep(2 * interval);
    const start = await nextBeat();
    const first = counts.beats;
    await sleep((intervals - 0.5) * interval);
    const end = await nextBeat();
    const perInterval = ((counts.beats - first) * interval) / (end - start);
    if (held.some((lock) => !lock.isHeld)) throw new Error('a lock was lost while it was renewed');
    await Promise.all(held.map((lock) => lock.release()));
    return { perInterval };
  },

  async close() {
    const self = current();
    opened = undefined;
    await self.locks.stop();
    await self.engine.stop();
  },
});
