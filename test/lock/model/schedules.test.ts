import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { type Hold, violations, type Write } from '../../support/history/history.ts';
import { LONG, rarely } from '../../support/long.ts';
import { hasRead, type Party, PROTECTED, startParty } from '../party.ts';
import { type Faults, runSchedule, toWrites } from './schedules.ts';

const SCHEDULES = Number(process.env['PAWL_SCHEDULES'] ?? (LONG ? 1000 : 5));
const SEED = Number(process.env['PAWL_SEED'] ?? 7000);

interface Arena {
  readonly client: pg.Client;
  readonly parties: readonly Party[];
  readonly faults: Faults;
  readonly writes: () => Promise<Write[]>;
}

/** Three processes on a database of their own. */
async function openArena(): Promise<Arena> {
  const { url } = await freshDatabase();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(PROTECTED);
  const parties = await Promise.all(
    [{}, {}, { listen: false }].map((each) => startParty(url, { ...each, waiterMs: 500 })),
  );
  const faults: Faults = {
    hasSets: true,
    breakLock: async (name) => {
      const { rows } = await client.query(`select token from pawl.lock_break('', $1, 'by the schedule')`, [name]);
      return rows.map((row) => String(row.token));
    },
    terminate: async () =>
      void (await client.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and random() < 0.3`,
      )),
  };
  const writes = async (): Promise<Write[]> =>
    toWrites((await client.query('select seq, name, value, token from written')).rows);
  return { client, parties, faults, writes };
}

/** Plants a bug in a function. */
async function plant(client: pg.Client, signature: string, change: (source: string) => string): Promise<void> {
  const { rows } = await client.query('select pg_get_functiondef($1::regproc) as source', [signature]);
  const planted = change(rows[0].source);
  expect(planted).not.toBe(rows[0].source);
  await client.query(planted);
}

async function runUntilFound(arena: Arena, seeds: number): Promise<string[]> {
  const holds: Hold[] = [];
  for (let seed = SEED; seed < SEED + seeds; seed++) {
    holds.push(...(await runSchedule(seed, arena.parties, arena.faults)));
    const found = violations(holds, await arena.writes());
    if (found.length > 0) return found;
  }
  return [];
}

// Invariant L1.
test(`${SCHEDULES} random schedules with pauses, breaks and broken connections have correct histories`, async () => {
  const arena = await openArena();
  const holds: Hold[] = [];
  for (let seed = SEED; seed < SEED + SCHEDULES; seed++) {
    const run = await runSchedule(seed, arena.parties, arena.faults);
    expect(violations(run), `seed ${seed}`).toEqual([]);
    holds.push(...run);
  }
  const writes = await arena.writes();
  expect(violations(holds, writes)).toEqual([]);
  // The schedules really had holds.
  expect(holds.length).toBeGreaterThan(SCHEDULES * 2);
  expect(writes.length).toBeGreaterThan(SCHEDULES / 2);
  expect(setsIn(holds)).toBeGreaterThan(SCHEDULES / 4);
  await until('nothing is held or waited for', async () => {
    const { rows } = await arena.client.query('select count(*)::int as n from pawl.lock');
    return rows[0].n === 0;
  });
});

/** The number of sets: holds of one owner that share a token. */
function setsIn(holds: readonly Hold[]): number {
  return holds.length - new Set(holds.map(({ owner, token }) => `${owner} ${token}`)).size;
}

test('a planted bug is found: holders are not checked', async () => {
  const arena = await openArena();
  await plant(arena.client, 'pawl.lock_acquire_one', (source) =>
    source.replace('and g.token is null and g.xmax = 0', ''),
  );
  expect((await runUntilFound(arena, 30)).join()).toMatch(/hold "s\d+-[ab]", which admits 1/);
});

rarely('a planted bug is found: only the first name of a set is checked', async () => {
  const arena = await openArena();
  await plant(arena.client, 'pawl.lock_acquire', (source) =>
    source.replace(
      'foreach v_name in array p_names loop\n    loop',
      'foreach v_name in array p_names[1:1] loop\n    loop',
    ),
  );
  expect((await runUntilFound(arena, 30)).join()).toMatch(/hold "s\d+-[ab]", which admits 1/);
});

rarely('a planted bug is found: a takeover does not check whether the lease ran out', async () => {
  const arena = await openArena();
  await plant(arena.client, 'pawl.lock_acquire', (source) =>
    source.replace('exit when v_count = 0 or v_first > v_now or', 'exit when v_count = 0 or'),
  );
  await plant(arena.client, 'pawl.lock_evict', (source) => source.replace('and g.expires_at <= clock_timestamp()', ''));
  expect((await runUntilFound(arena, 30)).join()).toMatch(/hold "s\d+-[ab]", which admits|was written with token/);
});

rarely('a planted bug is found: a release hands the lock to all waiters', async () => {
  const arena = await openArena();
  await plant(arena.client, 'pawl.lock_release_one', (source) => source.replace('and w.capacity = 1', 'and false'));
  await plant(arena.client, 'pawl.lock_grant_next', (source) => source.replace('exit when v_count > v_least;', ''));
  // Each gets a slot of its own, else a constraint of the table would refuse the grants.
  await plant(arena.client, 'pawl.lock_grant_next', (source) =>
    source.replace('case when v_waiter.capacity = 1 then 0 else v_token end', 'v_token'),
  );
  expect((await runUntilFound(arena, 60)).join()).toMatch(/hold "s\d+-[ab]", which admits|was written with token/);
});

/** The first party reads and pauses until the second one has held the lock and written; then it writes, too. */
async function writeLate({ client, parties, writes }: Arena): Promise<{ late: unknown; found: string[] }> {
  const [first, second] = parties;
  const name = 'late';
  await first?.ask({ do: 'acquire', name, options: { lease: 4000 } });
  const writing = first?.ask({ do: 'write', name, ms: 5000, unaware: true }).catch((error: unknown) => error);
  await until('the first party has read', () => hasRead(client));
  first?.child.pause();
  await second?.ask({ do: 'acquire', name, options: { lease: 5000, wait: 30_000 } });
  await second?.ask({ do: 'write', name });
  first?.child.resume();
  return { late: await writing, found: violations([], await writes()) };
}

// Invariant L4.
test('the database refuses a late write, even if its writer does not check the clock', async () => {
  const { late, found } = await writeLate(await openArena());
  expect(late).toMatchObject({ name: 'LeaseLost' });
  expect(found).toEqual([]);
});

// Invariant L5.
test('a planted bug is found: the guard lets every token write', async () => {
  const arena = await openArena();
  await plant(arena.client, 'pawl.lock_guard', (source) => source.replace(/raise exception[^;]*;/, 'return true;'));
  expect((await writeLate(arena)).found.join()).toMatch(/update of "late" was lost|with token/);
});
