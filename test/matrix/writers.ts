import { expect } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import type { Move } from './move.ts';
import { Pair } from './pair.ts';

/**
 * The volatile functions of the schema whose names begin so, and that no other function of it calls: those that a client does.
 * A function that other functions call as well may stand in the list of moves, too.
 */
const ENTRIES = `
with f as (
  select p.proname as name, p.prosrc as source from pg_proc p
  join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'pawl' and p.provolatile = 'v' and p.prokind = 'f'
)
select f.name from f where f.name ~ $1 and not exists (
  select 1 from f o where o.name <> f.name and o.source ~ ('pawl\\.' || f.name || '\\('))
group by f.name order by f.name`;

/**
 * Fails for a function that is called from outside and is in no move, and for a move that calls what does not exist.
 * @param others  those that only read, or that no program of ours calls
 */
export async function expectEachWriterToMove(
  pattern: string,
  moves: readonly Pick<Move<never>, 'functions'>[],
  others: readonly string[],
): Promise<void> {
  const database = await freshDatabase();
  const pair = await Pair.open(database.url);
  try {
    const { rows } = await pair.witness.query<{ name: string }>(ENTRIES, [pattern]);
    const { rows: all } = await pair.witness.query<{ name: string }>(
      `select distinct p.proname as name from pg_proc p where p.pronamespace = 'pawl'::regnamespace`,
    );
    const known = new Set([...moves.flatMap(({ functions }) => functions), ...others]);
    expect(rows.map(({ name }) => name).filter((name) => !known.has(name))).toEqual([]);
    const there = new Set(all.map(({ name }) => name));
    expect([...known].filter((name) => !there.has(name))).toEqual([]);
  } finally {
    await pair.close();
    await database.drop();
  }
}
