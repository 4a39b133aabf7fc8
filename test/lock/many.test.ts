import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createLocks, type Lock, type Locks } from '../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { startProxy } from '../support/proxy.ts';

/** The load on the database of one process with many locks or many waiters. */
let database: FreshDatabase;
let names = 0;
const fresh = (): string => `many-${(names += 1)}`;

beforeAll(async () => {
  database = await freshDatabase();
});

function open(url = database.url, options: PostgresOptions = {}): { engine: PostgresEngine; locks: Locks } {
  const engine = postgres(url, { max: 8, ...options });
  const locks = createLocks(engine, { namespace: `space ${names}`, waiterLease: '3s' });
  onTestFinished(async () => {
    await locks.stop();
    await engine.stop();
  });
  return { engine, locks };
}

/** How many locks each statement of the last moments renewed. */
async function watchBeats(engine: PostgresEngine): Promise<() => Promise<number[]>> {
  const run = (text: string): Promise<{ n: number }[]> =>
    engine.query(statement('test.beats', text, { prepare: false }));
  await run('create table public.beats (seq bigint generated always as identity, n int not null)');
  await run(`create function note_beat() returns trigger language plpgsql as $$
    begin insert into public.beats (n) select count(*) from now_there; return null; end $$`);
  await run(`create trigger note_beat after update on pawl.lock_grant referencing new table as now_there
    for each statement execute function note_beat()`);
  await run('truncate beats');
  return async () => (await run('select n from beats order by seq')).map(({ n }) => n);
}

describe('renewing', () => {
  test('tens of thousands of names are renewed by statements of at most ten thousand', async () => {
    const own = await freshDatabase();
    const { engine, locks } = open(own.url);
    const sets = Array.from({ length: 13 }, (_, set) => Array.from({ length: 1000 }, (_name, n) => `${set}/${n}`));
    const held: Lock[] = [];
    for (const set of sets) held.push(await locks.acquire(set, { lease: '10m', heartbeat: '2s' }));
    const beats = await watchBeats(engine);
    const all = await until('all were renewed', async () => {
      const seen = await beats();
      return seen.reduce((sum, n) => sum + n, 0) >= 13_000 ? seen : undefined;
    });
    expect(all.filter((n) => n > 10_000)).toEqual([]);
    expect(held.every((lock) => lock.isHeld)).toBe(true);
    await locks.stop();
    expect((await locks.query()).held).toEqual([]);
  });

  test.runIf(LONG)('130,000 locks of a process outlast their first lease', { timeout: 900_000 }, async () => {
    const own = await freshDatabase();
    const { engine, locks } = open(own.url);
    const lost: unknown[] = [];
    locks.on('lost', ({ error }) => lost.push(error));
    let nth = 0;
    const fill = async (): Promise<void> => {
      while (nth < 130_000) await locks.acquire(String((nth += 1)), { lease: '10m', heartbeat: '2m' });
    };
    await Promise.all(Array.from({ length: 16 }, fill));
    const beats = await watchBeats(engine);
    await until('all were renewed', async () => (await beats()).reduce((sum, n) => sum + n, 0) >= 130_000, 600_000);
    expect((await beats()).filter((n) => n > 10_000)).toEqual([]);
    expect(lost).toEqual([]);
  });
});

describe('waiting', () => {
  test('the cost of the waiters of a process does not grow with their number, and all are served in order', async () => {
    const name = fresh();
    const holder = open().locks;
    const proxy = await startProxy(database.url);
    onTestFinished(() => proxy.stop());
    const { locks } = open(proxy.url);
    const lock = await holder.acquire(name);
    const order: number[] = [];
    const served: Promise<void>[] = [];
    const places = async (): Promise<number> =>
      (await holder.query()).waiting.filter((each) => each.name === name).length;
    for (let place = 0; place < 60; place++) {
      served.push(locks.request(name, () => void order.push(place)));
      await until('it waits', async () => (await places()) > place);
    }
    const [from, start] = [proxy.sent, performance.now()];
    // Places are kept for three seconds without a renewal.
    await until('the lease of each place has passed', () => performance.now() - start > 7000);
    const perSecond = ((proxy.sent - from) * 1000) / (performance.now() - start);
    // Two waiters that poll, at most once a second each, and one statement that renews the other places; each statement is up
    // to three messages.
    expect(perSecond).toBeLessThan(15);
    expect(await places()).toBe(60);
    await lock.release();
    await Promise.all(served);
    expect(order).toEqual(Array.from({ length: 60 }, (_, place) => place));
  });

  test('a waiter far behind gets a direct hand-off, though its notification is lost', async () => {
    const name = fresh();
    const { locks: holder, engine } = open();
    const { locks } = open();
    const lock = await holder.acquire(name);
    const waits = Array.from({ length: 4 }, () => new AbortController());
    const served: Promise<unknown>[] = [];
    for (const [place, { signal }] of waits.entries()) {
      served.push(locks.acquire(name, { signal }).catch(() => {}));
      await until(
        'it waits',
        async () => (await holder.query()).waiting.filter((each) => each.name === name).length > place,
      );
    }
    // As if the waiters before it had left, and the notifications of that were lost.
    const gone =
      'delete from pawl.lock_waiter where name = $1 and ticket < (select max(ticket) from pawl.lock_waiter where name = $1)';
    await engine.query(statement('test.gone', gone), [name]);
    await engine.query(statement('test.process', "update pawl.lock_waiter set process = 'nobody' where name = $1"), [
      name,
    ]);
    await lock.release();
    expect(await Promise.race(served)).toMatchObject({ name, isHeld: true });
    for (const wait of waits) wait.abort();
  });

  // Invariant L14.
  test('waiters far behind take over when all before them have died', async () => {
    const name = fresh();
    const { locks: holder, engine } = open();
    const { locks } = open();
    await holder.acquire(name, { lease: '20s' });
    const served: Promise<unknown>[] = [];
    for (let place = 0; place < 5; place++) {
      served.push(locks.acquire(name, { wait: '40s' }).catch(() => {}));
      await until(
        'it waits',
        async () => (await holder.query()).waiting.filter((each) => each.name === name).length > place,
      );
    }
    const [fifth] = served.slice(-1);
    // Four waiters of a dead process, and a holder that renews no more.
    const died = `update pawl.lock_waiter set nonce = gen_random_uuid(), expires_at = clock_timestamp() + interval '1 s'
      where name = $1 and ticket < (select max(ticket) from pawl.lock_waiter where name = $1)`;
    await engine.query(statement('test.died', died), [name]);
    const ran = `update pawl.lock_grant set nonce = gen_random_uuid(), token = token - 1, expires_at = clock_timestamp() + interval '2 s'
      where name = $1`;
    await engine.query(statement('test.ran', ran), [name]);
    expect(await fifth).toMatchObject({ name, isHeld: true });
    await locks.stop();
  });
});

describe('breaking', () => {
  test('a holder that listens learns at once that its lock was broken', async () => {
    const name = fresh();
    const { locks, engine } = open();
    const listening = await engine.listen('anything', () => {});
    expect(await listening.tested).toBe(true);
    const lock = await locks.acquire(name, { lease: '1h' });
    await until('it listens', async () => {
      const text =
        "select 1 from pg_stat_activity where query ilike 'listen%pawl_lock_%' and datname = current_database()";
      return (await engine.query(statement('test.listens', text, { prepare: false }))).length > 0;
    });
    // The next heartbeat would come in twenty minutes.
    await open().locks.break(name, { reason: 'stuck' });
    await until('it knows', () => lock.signal.aborted);
    expect(lock.signal.reason).toMatchObject({ reason: 'broken' });
  });

  test('no connection is opened only to learn of broken locks', async () => {
    const own = await freshDatabase();
    const { locks, engine } = open(own.url);
    await locks.acquire(fresh());
    const text = "select query from pg_stat_activity where query ilike 'listen%' and datname = current_database()";
    expect(await engine.query(statement('test.listens', text, { prepare: false }))).toEqual([]);
    expect(engine.isListening).toBe(false);
  });
});
