import pg from 'pg';
import { type FreshDatabase, freshDatabase } from './database.ts';

/** A migrated database without a row, and connections to it that have run Pawl's functions before. */
export interface WarmDatabase {
  readonly url: string;
  /** For `postgres()`. Its connections stay when an engine on it stops. */
  readonly pool: pg.Pool;
  /** Empties it, for the next caller of this process that takes one. Before that, every engine on it has to be stopped. */
  giveBack(): Promise<void>;
}

/** So many rows may have been removed from one: nothing vacuums it, and what was removed is still read. */
const MOST_REMOVED = 30_000;
/** Of a pool. */
const CONNECTIONS = 12;

const free: Warm[] = [];

/**
 * For tests that change rows of Pawl's tables, make tables in `public`, and change nothing else of a database: a new database, and the
 * connections to it, each of which reads the catalog and plans Pawl's functions anew, are a fifth of what such a test costs.
 */
export async function warmDatabase(): Promise<WarmDatabase> {
  return free.pop() ?? Warm.make();
}

class Warm implements WarmDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly #database: FreshDatabase;
  /** Empties it, in one call. */
  readonly #broom: pg.Pool;
  /** The server's processes behind the pool. */
  readonly #pids = new Set<number>();
  readonly #shape: string;
  #removed = 0;

  static async make(): Promise<Warm> {
    const database = await freshDatabase();
    const broom = poolOn(database.url, 1);
    await makeBroom(broom);
    return new Warm(database, broom, await shapeOf(broom));
  }

  private constructor(database: FreshDatabase, broom: pg.Pool, shape: string) {
    this.#database = database;
    this.#broom = broom;
    this.#shape = shape;
    this.url = database.url;
    this.pool = poolOn(database.url, CONNECTIONS);
    this.pool.on('connect', (client) => this.#pids.add(pidOf(client)));
    this.pool.on('remove', (client) => this.#pids.delete(pidOf(client)));
  }

  async giveBack(): Promise<void> {
    if (await this.#isClean().catch(() => false)) free.push(this);
    else await this.#drop();
  }

  /** Whether it is as it was, apart from its connections. What is still used, was changed in its shape, or is worn, does not become so. */
  async #isClean(): Promise<boolean> {
    if (this.pool.idleCount < this.pool.totalCount) return false;
    await this.#broom.query(
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and pid <> all ($1::int[])`,
      [[...this.#pids]],
    );
    const { rows } = await this.#broom.query<{ removed: number }>('select broom.sweep() as removed');
    this.#removed += rows[0]?.removed ?? MOST_REMOVED;
    return this.#removed < MOST_REMOVED && (await shapeOf(this.#broom)) === this.#shape;
  }

  async #drop(): Promise<void> {
    await this.#database.drop();
    await Promise.all([this.#broom.end(), this.pool.end()]).catch(() => {});
  }
}

/** Whose connections stay open, and do not keep the process alive. */
function poolOn(connectionString: string, max: number): pg.Pool {
  const settings = { connectionString, max, application_name: 'pawl', idleTimeoutMillis: 0, allowExitOnIdle: true };
  return new pg.Pool(settings).on('error', () => {});
}

function pidOf(client: pg.PoolClient): number {
  return Number(Reflect.get(client, 'processID'));
}

/** What tests change of a database in addition to its rows: settings, tables, triggers, functions. */
async function shapeOf(client: pg.Pool): Promise<string> {
  const { rows } = await client.query<{ shape: string }>({ name: 'shape', text: SHAPE });
  return rows[0]?.shape ?? '';
}

const SHAPE = `
select concat_ws(' ',
  (select count(*) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase where d.datname = current_database()),
  (select sum(hashtext(concat(c.relname, c.reloptions, c.reltriggers_))) from (
     select c.*, (select count(*) from pg_trigger t where t.tgrelid = c.oid) as reltriggers_ from pg_class c where c.relnamespace = 'pawl'::regnamespace) c),
  (select sum(hashtext(concat(p.proname, p.prosrc, p.proconfig))) from pg_proc p where p.pronamespace = 'pawl'::regnamespace),
  (select count(*) from pg_namespace)) as shape`;

/**
 * A function that removes every row that the migrations have not made, and has ids begin anew. Its statements are planned once: what it costs is little more
 * than to look at a hundred tables. `truncate` would make each connection plan its functions anew.
 */
async function makeBroom(client: pg.Pool): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select format('%I', c.relname) as name from pg_class c
      where c.relnamespace = 'pawl'::regnamespace and c.relkind = 'r' order by c.relname`,
  );
  const tables = rows.map(({ name }) => name);
  await client.query('create schema broom');
  for (const table of tables) await client.query(`create table broom.${table} as table pawl.${table}`);
  const { rows: kept } = await client.query<{ name: string; has: boolean }>(
    tables.map((table) => `select '${table}' as name, exists (select from broom.${table}) as has`).join(' union all '),
  );
  const has = new Set(kept.filter((table) => table.has).map(({ name }) => name));
  const { rows: sequences } = await client.query<{ name: string; start: string }>(
    `select format('%I.%I', schemaname, sequencename) as name, start_value::text as start from pg_sequences where schemaname = 'pawl'`,
  );
  const rewinds = sequences.map(({ name, start }) => `\n      perform setval('${name}', ${start}, false);`);
  const sweeps = tables.map(
    (table) => `
      delete from pawl.${table};
      get diagnostics v_here = row_count;
      v_rows := v_rows + v_here;${has.has(table) ? `\n      insert into pawl.${table} select * from broom.${table};` : ''}`,
  );
  await client.query(`
    create function broom.sweep() returns int language plpgsql set session_replication_role = replica as $$
    declare v_rows int := 0; v_here int;
    begin${sweeps.join('')}${rewinds.join('')}
      if exists (select from pg_class where relnamespace = 'public'::regnamespace)
        or exists (select from pg_proc where pronamespace = 'public'::regnamespace) then
        drop schema public cascade;
        create schema public;
        grant usage on schema public to public;
      end if;
      return v_rows;
    end $$`);
}
