import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { LockClient } from '../../src/lock/client.ts';
import { createLocks, type Lock, type Locks, type LocksOptions } from '../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { type Proxy, startProxy } from '../support/proxy.ts';
import { awakeMs } from '../support/time/awake.ts';
import { atTestEnd, together } from '../support/together.ts';
import type { PartySettings } from './ground.ts';
import { hasRead, PROTECTED, startParty } from './party.ts';

let database: FreshDatabase;
let client: pg.Client;
let names = 0;
const fresh = (): string => `fault-${(names += 1)}`;
const quiet = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

beforeAll(async () => {
  database = await freshDatabase();
  client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query(PROTECTED);
});

afterAll(() => client.end());

function engineOn(url: string, options: PostgresOptions = {}): PostgresEngine {
  const engine = postgres(url, { stopTimeoutMs: 300, logger: quiet, ...options });
  atTestEnd(() => engine.stop());
  return engine;
}

function locksOn(engine: PostgresEngine, options: LocksOptions = {}): Locks {
  return createLocks(engine, { waiterLease: '2s', ...options });
}

const ours = (options: PostgresOptions = {}): Locks => locksOn(engineOn(database.url, options));

async function proxied(): Promise<Proxy> {
  const proxy = await startProxy(database.url);
  atTestEnd(() => proxy.stop());
  return proxy;
}

async function rowsOf(table: string, name: string): Promise<number> {
  // The row of a free lock stays.
  const isHeld = table === 'lock_grant' ? 'token is not null' : 'true';
  const count = `select count(*)::int as n from pawl.${table} where name = $1 and ${isHeld}`;
  return (await client.query(count, [name])).rows[0].n;
}

describe('processes that die or pause', () => {
  // Invariant L13.
  together(
    'the lock of a killed holder is granted within its lease, to a waiter and to a client that never waits',
    async () => {
      const [name, other] = [fresh(), fresh()];
      const locks = ours();
      const party = await startParty(database.url);
      await party.ask({ do: 'acquire', name, options: { lease: 1000 } });
      await party.ask({ do: 'acquire', name: other, options: { lease: 1000 } });
      const start = awakeMs();
      await party.child.kill();
      const trying = until('the lock is free', () => locks.tryAcquire(other));
      await locks.acquire(name, { wait: '30s' });
      // The lease, and a poll, with time for a busy machine; a lock with the default lease takes 30 s.
      expect(awakeMs() - start).toBeLessThan(10_000);
      await trying;
      expect(awakeMs() - start).toBeLessThan(10_000);
      expect(await locks.history({ name })).toMatchObject([{ outcome: 'expired', pid: party.child.pid }]);
    },
  );

  // Invariant L14.
  together('a killed waiter at the front delays the queue no longer than its own lease', async () => {
    const name = fresh();
    const locks = ours();
    const lock = await locks.acquire(name);
    const party = await startParty(database.url);
    void party.ask({ do: 'acquire', name });
    await until('it waits', () => rowsOf('lock_waiter', name));
    const next = locks.acquire(name, { wait: '30s' });
    await until('both wait', async () => (await rowsOf('lock_waiter', name)) === 2);
    await party.child.kill();
    const start = awakeMs();
    await lock.release();
    await next;
    // The place's lease of a second, and a poll, with time for a busy machine.
    expect(awakeMs() - start).toBeLessThan(10_000);
  });

  // As when its process dies with a call under way, and the server carries it out later.
  // Invariant L14.
  together(
    'a call of a waiter that is carried out after its death holds the lock no longer than its place',
    async () => {
      const [one, two, other] = [fresh(), fresh(), fresh()];
      /** A call of a process that never hears the answer. */
      const call = async (
        nonce: string,
        names: string[],
        ticket?: string,
        again = false,
      ): Promise<Record<string, string>> => {
        const sent = `select * from pawl.lock_acquire('', $1, $2, 1, 30000, 'nobody', 'host', 1, 2000, $3, $4)`;
        return (await client.query(sent, [names, nonce, ticket, again])).rows[0];
      };
      const leftMs = async (name: string): Promise<number> => {
        const left = `select (extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as ms
        from pawl.lock_grant where name = $1 and token is not null`;
        return (await client.query(left, [name])).rows[0].ms;
      };
      const free = async (name: string): Promise<void> => {
        await client.query(`update pawl.lock_grant set token = null, expires_at = 'infinity' where name = $1`, [name]);
      };
      for (const names of [[one], [two, other]]) {
        const [name = ''] = names;
        const [holder, waiter] = [randomUUID(), randomUUID()];
        const tokens = new Set<string | undefined>();
        expect((await call(holder, names)).token).not.toBeNull();
        expect(await leftMs(name)).toBeGreaterThan(20_000);
        const { ticket } = await call(waiter, names);
        for (const each of names) await free(each);
        // Its turn; and once more, as after a lost answer.
        for (const again of [false, true]) {
          const granted = await call(waiter, names, ticket, again);
          expect(granted).toMatchObject({ ticket: null, place_ms: '2000' });
          expect(await leftMs(name)).toBeLessThanOrEqual(2_000);
          tokens.add(granted['token']);
        }
        // After a heartbeat it has its lease, which a call that comes late does not shorten.
        expect(tokens.size).toBe(1);
        const beat = 'select pawl.lock_beat($1, $2, $3)';
        await client.query(beat, [names.map(() => ''), names, names.map(() => [...tokens][0])]);
        const late = await call(waiter, names, ticket, true);
        expect(Number(late['place_ms'])).toBeGreaterThan(20_000);
        expect(await leftMs(name)).toBeGreaterThan(20_000);
      }
    },
  );

  together('a paused waiter does not count a direct hand-off as held for longer than its place', async () => {
    const name = fresh();
    const locks = ours();
    const lock = await locks.acquire(name);
    // A place that is kept for as long as a busy machine may stand still before the pause.
    const party = await startParty(database.url, { waiterMs: 4000 });
    const late = party.ask({ do: 'acquire', name });
    await until('it waits', () => rowsOf('lock_waiter', name));
    party.child.pause();
    await lock.release();
    // In the database it has the lock; while paused it cannot learn this, and cannot renew it.
    expect((await locks.explain(name)).holders).toMatchObject([{ pid: party.child.pid }]);
    const next = await locks.acquire(name, { wait: '30s' });
    party.child.resume();
    const waits = async (): Promise<boolean> => (await rowsOf('lock_waiter', name)) === 1;
    await until('it has taken a new place', waits);
    expect((await locks.explain(name)).holders.map((holder) => holder.token)).toEqual([next.token]);
    await next.release();
    expect(BigInt(String((await late)['token']))).toBeGreaterThan(next.token);
    expect((await locks.history({ name })).map(({ outcome }) => outcome)).toEqual(['released', 'expired', 'released']);
  });

  together(
    'a waiter does not take the notice of a grant that it was answered too late for one of its next place',
    async () => {
      const name = fresh();
      const locks = ours();
      const lock = await locks.acquire(name);
      const engine = engineOn(database.url);
      const { store } = LockClient.of(engine);
      const ask = store.acquire.bind(store);
      let calls = 0;
      let next: Lock | undefined;
      store.acquire = async (request, options) => {
        calls += 1;
        if (calls !== 2) return ask(request, options);
        // Its turn comes, and is over before it has the answer.
        await lock.release();
        const answer = await ask(request, options);
        next = await locks.acquire(name, { wait: '30s' });
        return answer;
      };
      let isServed = false;
      const late = locksOn(engine)
        .acquire(name, { wait: '60s' })
        .finally(() => {
          isServed = true;
        });
      // The third call asks for the lock, the fourth for a new place, and the fifth for its turn.
      await until('it waits again', () => isServed || calls > 4);
      expect(isServed).toBe(false);
      await next?.release();
      expect((await late).token).toBeGreaterThan(next?.token ?? 0n);
    },
  );

  together('a lock without a lease outlives its killed holder', async () => {
    const name = fresh();
    const locks = ours();
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name, options: { lease: 'Infinity' } });
    await party.child.kill();
    await sleep(300);
    expect(await locks.tryAcquire(name)).toBeUndefined();
    expect((await locks.explain(name)).holders).toMatchObject([{ pid: party.child.pid }]);
    await locks.break(name, { reason: 'cleaned up after the test' });
    expect(await locks.tryAcquire(name)).toBeDefined();
  });

  together('a grant without a lease whose answer never arrives ends by itself', async () => {
    const [name, set] = [fresh(), [fresh(), fresh()]];
    const locks = ours();
    const proxy = await proxied();
    // The proxy drops the statement that confirms the grant, and the one that cleans up.
    proxy.loseRequest('lock.keep');
    const party = await startParty(proxy.url);
    void party.ask({ do: 'acquire', name, options: { lease: 'Infinity' } }).catch(() => {});
    void party.ask({ do: 'acquire', name: set, options: { lease: 'Infinity' } }).catch(() => {});
    await until(
      'both were granted',
      async () => (await rowsOf('lock_grant', name)) + (await rowsOf('lock_grant', set[1] ?? '')) === 2,
    );
    await party.child.kill();
    expect(await locks.tryAcquire(name)).toBeUndefined();
    const late = `update pawl.lock_grant set expires_at = expires_at - interval '31 seconds' where name = any ($1) and expires_at < 'infinity'`;
    expect((await client.query(late, [[name, ...set]])).rowCount).toBe(3);
    for (const free of [name, set])
      expect((await locks.tryAcquire(free, { lease: Infinity }))?.remainingMs()).toBe(Infinity);
  });

  together('a lock without a lease is handed to a waiter, and stays', async () => {
    const name = fresh();
    const locks = ours();
    const lock = await locks.acquire(name);
    const waiting = locks.acquire(name, { lease: Infinity });
    await until('it waits', () => rowsOf('lock_waiter', name));
    await lock.release();
    const got = await waiting;
    const lasts = await client.query(
      `select expires_at = 'infinity' as ok, lease_ms from pawl.lock_grant where name = $1`,
      [name],
    );
    expect(lasts.rows).toEqual([{ ok: true, lease_ms: null }]);
    await got.release();
  });

  // Invariants L4, L6.
  together('a paused holder learns of its loss, revives nothing, and its late write is refused', async () => {
    const name = fresh();
    const locks = ours();
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name, options: { lease: 4000 } });
    expect(await party.ask({ do: 'write', name })).toMatchObject({ value: 1 });
    // Longer than the machine may take to see that it has read, and hardly longer than the next holder waits for the lease.
    const late = party.ask({ do: 'write', name, ms: 5000 });
    const refused = expect(late).rejects.toMatchObject({
      name: expect.stringMatching('LeaseLost|SerializationFailed'),
    });
    await until('it has read, and not written yet', () => hasRead(client));
    party.child.pause();
    const next = await locks.acquire(name, { wait: '30s' });
    party.child.resume();
    await refused;
    await party.event((event) => event['event'] === 'lost' && event['name'] === name);
    expect(await party.ask({ do: 'state', name })).toMatchObject({ isHeld: false });
    await expect(party.ask({ do: 'release', name })).rejects.toMatchObject({ name: 'LeaseLost' });
    const { rows } = await client.query('select value from written where name = $1', [name]);
    expect(rows).toEqual([{ value: 1 }]);
    expect((await locks.explain(name)).holders.map((holder) => holder.token)).toEqual([next.token]);
    await next.release();
    expect(await rowsOf('lock_grant', name)).toBe(0);
  });

  // Invariant L11.
  together('the reason of a loss names a blocked event loop', async () => {
    const name = fresh();
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name, options: { lease: 1000 } });
    await party.ask({ do: 'block', name, ms: 2500 });
    expect(await party.event((event) => event['event'] === 'lost')).toMatchObject({ reason: 'blocked' });
  });

  together('of a killed holder of several locks none stays, and of a killed request for a set no part', async () => {
    const [x, y] = [fresh(), fresh()];
    const locks = ours();
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name: [x, y], options: { lease: 1000 } });
    await party.child.kill();
    const set = await locks.acquire([y, x], { wait: '30s' });
    const taker = await startParty(database.url);
    void taker.ask({ do: 'acquire', name: [x, y], options: { lease: 1000 } });
    await until('it waits', () => rowsOf('lock_waiter', x));
    await taker.child.kill();
    await set.release();
    await until('its place has run out', async () => (await locks.tryAcquire([x, y])) !== undefined);
  });

  // Invariant L17.
  together('the permits of killed holders come back', async () => {
    const name = fresh();
    const semaphore = ours().semaphore(name, { permits: 2 });
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name, permits: 2, options: { lease: 1000 } });
    const kept = await semaphore.acquire();
    await party.child.kill();
    const second = await semaphore.acquire({ wait: '30s' });
    expect(await semaphore.tryAcquire()).toBeUndefined();
    await Promise.all([kept.release(), second.release()]);
  });
});

describe('clocks', () => {
  const wrong: Record<string, PartySettings> = {
    'ten minutes ahead': { skewMs: 600_000 },
    'ten minutes behind': { skewMs: -600_000 },
    'a tenth too fast': { rate: 1.1 },
  };
  // Invariant L12.
  for (const [how, settings] of Object.entries(wrong))
    together(`a client clock that is ${how} changes nothing`, async () => {
      const name = fresh();
      const locks = ours();
      const party = await startParty(database.url, settings);
      await party.ask({ do: 'acquire', name, options: { lease: 3000 } });
      const end = performance.now() + 4500;
      while (performance.now() < end) {
        expect(await locks.tryAcquire(name)).toBeUndefined();
        await sleep(20);
      }
      expect(await party.ask({ do: 'state', name })).toMatchObject({ isHeld: true });
      const mine = fresh();
      const lock = await locks.acquire(mine, { lease: '3s' });
      for (let i = 0; i < 15; i++) {
        expect((await party.ask({ do: 'tryAcquire', name: mine }))['token']).toBeUndefined();
        await sleep(100);
      }
      await lock.release();
      const counts = await Promise.all([
        party.ask({ do: 'oncePer', name: `${name}-period`, ms: 60_000 }),
        locks.oncePer(`${name}-period`, '1m', () => sleep(20)),
      ]);
      expect(counts.filter((each) => each['ran' as keyof typeof each])).toHaveLength(1);
    });

  // Invariant L12.
  together('a wall clock that is set by an hour mid-hold, forwards or back, costs no lock', async () => {
    const name = fresh();
    const locks = ours();
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name, options: { lease: 3000 } });
    for (const ms of [-3_600_000, 7_200_000]) {
      await party.ask({ do: 'stepClock', ms });
      const end = performance.now() + 4000;
      while (performance.now() < end) {
        expect(await locks.tryAcquire(name)).toBeUndefined();
        await sleep(50);
      }
      expect(await party.ask({ do: 'state', name })).toMatchObject({ isHeld: true });
    }
  });

  together(
    'a transaction that is open for longer than the lease does not shorten a lease that is taken inside it',
    async () => {
      const name = fresh();
      const engine = engineOn(database.url);
      const locks = locksOn(engine);
      await engine.transaction(async (tx) => {
        await tx.query(statement('test.now', 'select now()'));
        await sleep(2200);
        const lock = await locks.acquire(name, { lease: '2s' });
        expect((await locks.explain(name)).holders[0]?.leaseLeftMs).toBeGreaterThan(500);
        await lock.guard(tx);
        await lock.release();
      });
    },
  );
});

describe('connections', () => {
  // Invariant L9.
  together('an acquire whose answer is lost is recognised by its client', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    await (await locks.acquire(fresh())).release();
    proxy.loseAnswerTo('lock.take');
    const taking = locks.acquire(name, { wait: '30s' });
    await until('it was granted', () => rowsOf('lock_grant', name));
    proxy.loseAnswerTo('never');
    const lock = await taking;
    expect(await rowsOf('lock_grant', name)).toBe(1);
    expect(lock.remainingMs()).toBeGreaterThan(25_000);
    await lock.release();
    expect(await rowsOf('lock_grant', name)).toBe(0);
  });

  together('an acquire of several names whose answer is lost is recognised, too', async () => {
    const names = [fresh(), fresh()];
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    await (await locks.acquire(fresh())).release();
    proxy.loseAnswerTo('lock.acquire');
    const taking = locks.acquire(names, { wait: '30s' });
    for (const name of names) await until('it was granted', () => rowsOf('lock_grant', name));
    proxy.loseAnswerTo('never');
    const lock = await taking;
    expect(lock.isHeld).toBe(true);
    await lock.release();
    for (const name of names) expect(await rowsOf('lock_grant', name)).toBe(0);
  });

  together('a call that is carried out after its repetition takes nothing twice', async () => {
    const [held, free] = [fresh(), fresh()];
    const kept = await ours().acquire(held);
    const calls = {
      first: `select pawl.lock_acquire_one('', $1, $2, 30000, 'nobody', 'host', 1, 2000)`,
      'first, shared': `select pawl.lock_acquire('', array[$1], $2, 2147483647, 30000, 'nobody', 'host', 1, 2000)`,
      repetition: `select pawl.lock_acquire('', array[$1], $2, 1, 30000, 'nobody', 'host', 1, 2000, null, true)`,
      'repetition, shared': `select pawl.lock_acquire('', array[$1], $2, 2147483647, 30000, 'nobody', 'host', 1, 2000, null, true)`,
    };
    const make = (call: keyof typeof calls, name: string, nonce: string): Promise<unknown> =>
      client.query(calls[call], [name, nonce]);
    const [waiter, reader, next] = [randomUUID(), randomUUID(), randomUUID()];
    for (const call of ['repetition', 'first'] as const) await make(call, held, waiter);
    expect(await rowsOf('lock_waiter', held)).toBe(1);
    for (const call of ['repetition, shared', 'first, shared'] as const) await make(call, free, reader);
    expect(await rowsOf('lock_grant', free)).toBe(1);
    // It waits no more, and holds: there is no place for it behind itself.
    await kept.release();
    for (const call of ['repetition', 'first'] as const) await make(call, held, waiter);
    expect([await rowsOf('lock_grant', held), await rowsOf('lock_waiter', held)]).toEqual([1, 0]);
    await make('first', held, next);
    expect(await rowsOf('lock_waiter', held)).toBe(1);
  });

  together('a place whose answer is lost, and a direct hand-off to it, are found', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url, { listen: false }));
    const kept = await ours().acquire(name);
    proxy.loseAnswerTo('lock.');
    const taking = locks.acquire(name, { wait: '30s' });
    await until('it waits', () => rowsOf('lock_waiter', name));
    await kept.release();
    expect((await ours().explain(name)).holders).toMatchObject([{ pid: process.pid }]);
    proxy.loseAnswerTo('never');
    const lock = await taking;
    expect(await rowsOf('lock_grant', name)).toBe(1);
    // The repeated request renews it for the time of a place, and a heartbeat for its whole lease.
    await until('it has its whole lease', () => lock.remainingMs() > 25_000);
    await lock.release();
  });

  together('a request that does not wait is repeated after a lost answer', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    proxy.loseAnswerTo('lock.take', 1);
    const lock = await locks.tryAcquire(name);
    expect(proxy.lost).toBe(1);
    await lock?.release();
    expect(await rowsOf('lock_grant', name)).toBe(0);
    // The first attempt and its repetitions are different statements.
    proxy.loseAnswerTo('lock.');
    await expect(locks.tryAcquire(name)).rejects.toMatchObject({ code: 'connection_failed' });
    proxy.loseAnswerTo('never');
    // The grant without an answer is cleaned up.
    await until('nothing is left', async () => (await rowsOf('lock_grant', name)) === 0);
  });

  // Invariant L10.
  together('a heartbeat whose answer is lost does not lose the lock', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    const lock = await locks.acquire(name, { lease: '5s' });
    proxy.loseAnswerTo('lock.beat', 1);
    await until('a beat was lost', () => proxy.lost === 1);
    await sleep(5500);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });

  together('a release whose answer is lost counts as done', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    const lock = await locks.acquire(name);
    // Once: a release has two seconds, in which a busy machine need not see what became of it.
    proxy.loseAnswerTo('lock.free', 1);
    await lock.release();
    expect(proxy.lost).toBe(1);
    expect(await rowsOf('lock_grant', name)).toBe(0);
  });

  together('a run whose lock was broken before it could be counted is not reported as counted', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url));
    let accepted = Infinity;
    const run = locks.oncePer(name, '1h', async () => {
      await ours().break(name, { reason: 'test' });
      proxy.loseRequest('lock.release');
      ({ accepted } = proxy);
    });
    const refused = expect(run).rejects.toMatchObject({ code: 'lease_lost', reason: 'broken' });
    await until('it was lost once, and connects again', () => proxy.accepted > accepted);
    proxy.loseRequest('never');
    await refused;
    expect(await ours().oncePer(name, '1h', () => 'counted')).toMatchObject({ ran: true });
  });

  together('a failed release rejects for its caller, and at the end of a block is an event', async () => {
    const [name, other] = [fresh(), fresh()];
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url, { connectTimeoutMs: 1000 }));
    const failed: string[] = [];
    locks.on('releaseFailed', ({ lock }) => void failed.push(lock.name));
    const [released, disposed] = [
      await locks.acquire(name, { lease: '1s' }),
      await locks.acquire(other, { lease: '1s' }),
    ];
    proxy.refuse();
    const refused = expect(released.release()).rejects.toMatchObject({ code: 'connection_failed' });
    await Promise.all([refused, disposed[Symbol.asyncDispose]()]);
    await until('both are reported', () => failed.length === 2);
    proxy.accept();
    expect(failed.sort()).toEqual([name, other].sort());
  });

  test('taking and releasing a free lock are one round trip each', async () => {
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url, { max: 1 }));
    const name = fresh();
    await locks.request(name, () => {});
    const { sent } = proxy;
    const lock = await locks.acquire(name);
    expect(proxy.sent - sent).toBe(1);
    await lock.release();
    expect(proxy.sent - sent).toBe(2);
  });

  // Invariant L11.
  test('a holder without a network learns of its loss in time, with the reason', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url, { connectTimeoutMs: 1000 }));
    const lock = await locks.acquire(name, { lease: '1500ms' });
    const start = awakeMs();
    proxy.refuse();
    await until('it knows', () => lock.signal.aborted);
    // The lease; the rest is for the check every 20 ms on a busy machine.
    expect(awakeMs() - start).toBeLessThan(2000);
    // Blocked: the processor was busy elsewhere at the very end.
    expect(['unreachable', 'blocked']).toContain(lock.signal.reason.reason);
    proxy.accept();
  });

  together('connections that answer nothing are abandoned: neither renewals nor waits hang', async () => {
    const [name, other] = [fresh(), fresh()];
    const proxy = await proxied();
    const locks = locksOn(engineOn(proxy.url, { max: 2, connectTimeoutMs: 1000 }));
    const lock = await locks.acquire(name, { lease: '6s' });
    const kept = await ours().acquire(other);
    const outcome = locks.acquire(other, { wait: '4s' }).catch((error: unknown) => error);
    await until('it waits', () => rowsOf('lock_waiter', other));
    const start = awakeMs();
    proxy.stall();
    expect(await outcome).toMatchObject({ code: 'lock_timeout' });
    expect(awakeMs() - start).toBeLessThan(7000);
    await until('the lease of before the silence is over', () => awakeMs() - start > 6000);
    expect(lock.isHeld).toBe(true);
    await kept.release();
    await lock.release();
    await until('nothing is left', async () => (await rowsOf('lock_waiter', other)) === 0);
  });

  // Invariant L24.
  together('killed database connections neither lose a lock nor leave one behind', async () => {
    const [name, other] = [fresh(), fresh()];
    const engine = engineOn(database.url, { applicationName: name });
    const locks = locksOn(engine);
    const lock = await locks.acquire(name, { lease: '6s' });
    const kept = await ours().acquire(other);
    const waiting = locks.acquire(other, { wait: '30s' });
    // Over a heartbeat, and not until the lease is over: a busy machine may not come to connect between two of them.
    for (const end = performance.now() + 3000; performance.now() < end; ) {
      await client.query('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', [name]);
      await sleep(100);
    }
    lock.assertHeld();
    await kept.release();
    const got = await waiting;
    await got.release();
    await lock.release();
    expect((await rowsOf('lock_grant', name)) + (await rowsOf('lock_grant', other))).toBe(0);
    expect(await rowsOf('lock_waiter', other)).toBe(0);
  });

  together('busy handlers starve neither a renewal nor the lock that they wait for', async () => {
    const name = fresh();
    const engine = engineOn(database.url, { max: 1 });
    const locks = locksOn(engine);
    const lock = await locks.acquire(name, { lease: '3s' });
    await engine.transaction(async () => {
      await sleep(4000);
      expect(lock.isHeld).toBe(true);
      await locks.request(fresh(), { wait: '20s' }, () => {});
      await lock.release();
    });
  });

  // Invariant L25.
  together('a listening connection that is killed again and again only delays', async () => {
    const name = fresh();
    const [a, b] = [ours(), ours({ applicationName: name })];
    for (let i = 0; i < 3; i++) {
      const lock = await a.acquire(name);
      const waiting = b.acquire(name, { wait: '30s' });
      await until('it waits', () => rowsOf('lock_waiter', name));
      const listening = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and query ilike 'listen%'`;
      await client.query(listening, [name]);
      const start = awakeMs();
      await lock.release();
      await (await waiting).release();
      // A poll, and a statement that is under way, with time for a busy machine.
      expect(awakeMs() - start).toBeLessThan(10_000);
    }
  });

  together(
    'a heartbeat is not delayed by the open transaction of a guard, and a release does not wait for it',
    async () => {
      const name = fresh();
      const engine = engineOn(database.url);
      const locks = locksOn(engine);
      const others = ours();
      const lock = await locks.acquire(name, { lease: '3s' });
      let isCommitted = false;
      const waiting = others.acquire(name, { wait: '30s' }).then(async (next) => {
        // The guarded write is committed before the next holder begins.
        expect(isCommitted).toBe(true);
        await next.release();
      });
      await engine.transaction(async (tx) => {
        await lock.guard(tx);
        await sleep(4000);
        lock.assertHeld();
        expect((await others.explain(name)).guardedBy).toHaveLength(1);
        await lock.release();
        await expect(lock.guard(tx)).rejects.toMatchObject({ code: 'lease_lost' });
        expect(await others.tryAcquire(name)).toBeUndefined();
        await sleep(100);
        isCommitted = true;
      });
      await waiting;
      expect(await rowsOf('lock_grant', name)).toBe(0);
    },
  );

  for (const isolation of ['repeatable read', 'serializable'] as const)
    together(`a guard holds in a transaction of ${isolation}, and refuses a snapshot older than the lock`, async () => {
      const name = fresh();
      const engine = engineOn(database.url);
      const locks = locksOn(engine);
      const look = statement('test.look', 'select 1');
      const lock = await locks.acquire(name, { lease: '3s' });
      await engine.transaction(
        async (tx) => {
          await tx.query(look);
          // A heartbeat comes in between.
          await sleep(1500);
          await lock.guard(tx);
        },
        { isolation },
      );
      await lock.release();
      const stale = engine.transaction(
        async (tx) => {
          await tx.query(look);
          await using later = await locks.acquire(name);
          await later.guard(tx);
        },
        { isolation },
      );
      await expect(stale).rejects.toMatchObject({ code: 'lease_lost' });
    });

  together(
    'a release during a guard takes effect after it: the lock is not granted again until the transaction ends',
    async () => {
      const engine = engineOn(database.url);
      const locks = locksOn(engine);
      const others = ours();
      for (let round = 0; round < 20; round++) {
        const name = fresh();
        const lock = await locks.acquire(name);
        await engine.transaction(async (tx) => {
          const guarded = lock.guard(tx);
          await Promise.all([guarded, lock.release()]);
          expect(await others.tryAcquire(name)).toBeUndefined();
        });
        await (await others.acquire(name, { wait: '30s' })).release();
      }
    },
  );

  test('a guard needs an open transaction', async () => {
    const engine = engineOn(database.url);
    await using lock = await locksOn(engine).acquire(fresh());
    await expect(lock.guard(client)).rejects.toMatchObject({ code: 'invalid_input', field: 'tx' });
    await expect(lock.guard(undefined as never)).rejects.toMatchObject({ code: 'invalid_input' });
    await client.query('begin');
    await lock.guard(client);
    await client.query('rollback');
  });

  test('hundreds of locks of a process are renewed by one statement per interval', async () => {
    const engine = engineOn(database.url);
    const locks = locksOn(engine);
    const names = Array.from({ length: LONG ? 1000 : 300 }, () => fresh());
    const held = await Promise.all(names.map((name) => locks.acquire(name, { lease: '6s' })));
    const set = await locks.acquire([fresh(), fresh()], { lease: '6s' });
    let beats = 0;
    const { store } = LockClient.of(engine);
    const beat = store.renew.bind(store);
    store.renew = (which, options) => {
      beats += 1;
      return beat(which, options);
    };
    const start = performance.now();
    await until('all are renewed again', () => beats > 1);
    // A busy machine makes up for late ones; one for each lock would be hundreds.
    expect(beats).toBeLessThanOrEqual(5 + (performance.now() - start) / 2000);
    for (const lock of [...held, set]) lock.assertHeld();
    await locks.stop();
  });

  test('old history and dead waiters are swept away', async () => {
    const name = fresh();
    const locks = ours();
    await locks.request(name, () => {});
    const party = await startParty(database.url);
    await party.ask({ do: 'acquire', name: `${name}-dead`, options: { lease: 1000 } });
    await party.child.kill();
    await client.query(`update pawl.lock_grant set expires_at = expires_at - interval '2 minutes' where name = $1`, [
      `${name}-dead`,
    ]);
    await client.query(`select pawl.lock_sweep('1 hour')`);
    expect(await rowsOf('lock_grant', `${name}-dead`)).toBe(0);
    expect(await rowsOf('lock_past', `${name}-dead`)).toBe(1);
    await client.query(`select pawl.lock_sweep('0')`);
    expect(await rowsOf('lock_past', name)).toBe(0);
    const before = await locks.acquire(name);
    await before.release();
    await client.query(`update pawl.lock_grant set granted_at = granted_at - interval '2 hours' where name = $1`, [
      name,
    ]);
    await client.query(`select pawl.lock_sweep('1 hour')`);
    expect((await client.query('select from pawl.lock_grant where name = $1', [name])).rowCount).toBe(0);
    const after = await locks.acquire(name);
    expect(after.token).toBeGreaterThan(before.token);
    await after.release();
  });

  test('what a sweep decides is decided under read committed, and on disk before a waiter learns of it', async () => {
    const name = fresh();
    const lock = await ours().acquire(name, { lease: '10m' });
    await client.query('begin isolation level repeatable read');
    await expect(client.query(`select pawl.lock_sweep('1 hour')`)).rejects.toMatchObject({ code: 'PW005' });
    await client.query('rollback');
    await client.query('begin; set local synchronous_commit = off');
    // In the same transaction: the sweeps of other clients do not see that the lease is over.
    await client.query(`update pawl.lock_grant set expires_at = expires_at - interval '12 minutes' where name = $1`, [
      name,
    ]);
    await client.query(`select pawl.lock_sweep('1 hour')`);
    expect((await client.query('show synchronous_commit')).rows).toEqual([{ synchronous_commit: 'on' }]);
    await client.query('commit');
    expect(await rowsOf('lock_grant', name)).toBe(0);
    await lock.release().catch(() => {});
  });

  test('the row of oncePer is removed when its longest period and the history after it are over', async () => {
    const name = fresh();
    const locks = ours();
    await locks.oncePer(name, '2h', () => {});
    const moveBack = `update pawl.lock_period set started_at = started_at - $2::interval where name = $1`;
    await client.query(moveBack, [name, '119 minutes']);
    await locks.oncePer(name, '1h', () => {});
    const isKept = async (): Promise<boolean> => {
      await client.query(`select pawl.lock_sweep('1 hour')`);
      return (await client.query('select from pawl.lock_period where name = $1', [name])).rowCount === 1;
    };
    // In one transaction: the sweeps of other clients, some of which keep no history, do not see that its period is over.
    await client.query('begin');
    await client.query(moveBack, [name, '170 minutes']);
    expect(await isKept()).toBe(true);
    await client.query(moveBack, [name, '20 minutes']);
    expect(await isKept()).toBe(false);
    await client.query('commit');
    expect(await locks.oncePer(name, '2h', () => 'again')).toMatchObject({ ran: true });
  });

  together('a tiny lock_timeout of the database only delays, and leaks nothing', async () => {
    const name = fresh();
    const url = new URL(database.url);
    url.searchParams.set('options', '-c lock_timeout=1ms');
    const engines = [1, 2].map(() => engineOn(url.href, { max: 2 }));
    const parties = engines.map((engine) => locksOn(engine));
    let count = 0;
    const add = async (locks: Locks): Promise<void> => {
      for (let i = 0; i < 20; i++) {
        await locks.request(name, { wait: '60s' }, async () => {
          const read = count;
          await sleep(0);
          count = read + 1;
        });
      }
    };
    await Promise.all([...parties, ...parties].map(add));
    expect(count).toBe(80);
    expect((await rowsOf('lock_grant', name)) + (await rowsOf('lock_waiter', name))).toBe(0);
  });

  for (const isolation of ['repeatable read', 'serializable'])
    together(`${isolation} as the default changes nothing`, async () => {
      const name = fresh();
      const url = new URL(database.url);
      url.searchParams.set('options', `-c default_transaction_isolation=${isolation.replace(' ', '\\ ')}`);
      const parties = [1, 2, 3].map(() => locksOn(engineOn(url.href, { max: 3 })));
      let count = 0;
      const add = async (locks: Locks): Promise<void> => {
        for (let i = 0; i < 10; i++) {
          await locks.request([`${name} '"\\`, name], { wait: '30s', lease: '3s' }, async (lock) => {
            const read = count;
            await sleep(1);
            lock.assertHeld();
            count = read + 1;
          });
        }
      };
      await Promise.all(parties.map(add));
      expect(count).toBe(30);
      const lock = await parties[0]?.acquire(name, { lease: '3s' });
      await sleep(4000);
      expect(lock?.isHeld).toBe(true);
      await lock?.release();
      expect((await rowsOf('lock_grant', name)) + (await rowsOf('lock_waiter', name))).toBe(0);
    });
});
