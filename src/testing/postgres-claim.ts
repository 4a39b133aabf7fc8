import { Conflict } from '../base/errors.ts';
import { only, type PostgresEngine, type Session, statement } from '../engine/postgres/index.ts';
import { PostgresWorld } from './postgres.ts';

const MARK = 'pawl/testing: a world is at work here, and removes every actor';

const LOOK = statement(
  'world.look',
  `
select current_database() as database, to_regclass('pawl.actor_instance') is not null as migrated,
  coalesce(obj_description(to_regnamespace('pawl')::oid, 'pg_namespace'::name) = $1, false) as marked`,
);
const USED = statement(
  'world.used',
  `
select exists (select from pawl.actor_instance) or exists (select from pawl.actor_transition) or exists (select from pawl.actor_worker)
  or exists (select from pawl.actor_message) or exists (select from pawl.actor_page) as used`,
);
const TRY = statement(
  'world.try',
  `select pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('${MARK}'::text, 0::bigint)) as taken, current_database() as database`,
);
const LET_GO = statement(
  'world.let_go',
  `select pg_catalog.pg_advisory_unlock(pg_catalog.hashtextextended('${MARK}'::text, 0::bigint))`,
);
const SET_MARK = statement('world.mark', `comment on schema pawl is '${MARK}'`, { prepare: false });
const DROP_MARK = statement('world.unmark', 'comment on schema pawl is null', { prepare: false });

/**
 * A world's right to use a database that it was given. The world has the right if no other program has actors in the database.
 * Then a mark in the schema says so. The mark distinguishes the remains of a killed world from the data of a service. A lock, which
 * ends with the process, distinguishes them from the data of a world that is at work.
 */
export class DatabaseClaim {
  readonly #engine: PostgresEngine;
  /** The connection that has the lock. */
  #session: Session | undefined;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** Only reads. @throws Conflict  another program has actors in the database, or runs some */
  async check(): Promise<void> {
    const { database, migrated, marked } = await this.#look();
    if (marked || !migrated) return;
    if (!only(await this.#engine.query<{ used: boolean }>(USED)).used) return;
    throw new Conflict(
      `the database "${database}" has actors, or runs some, that no world made: a world removes all there are. Give it a database for ` +
        'tests, such as world({ url: process.env.TEST_DATABASE_URL }), or no url, for one of its own',
    );
  }

  /** From now on, the content of the schema belongs to the world. @throws Conflict  as `check()`, or another world is at work */
  async take(): Promise<void> {
    await this.#lock();
    try {
      await this.check();
      await this.#engine.query(SET_MARK);
    } catch (error) {
      await this.#unlock();
      throw error;
    }
  }

  /** Restores the former state of the database, unless another world has done so meanwhile, or is at work there by now. */
  async giveBack(): Promise<void> {
    try {
      await this.#lock();
      if (!(await this.#look()).marked) return;
      await new PostgresWorld(this.#engine).clear();
      await this.#engine.query(DROP_MARK);
    } catch (error) {
      if (!(error instanceof Conflict)) throw error;
    } finally {
      await this.#unlock();
    }
  }

  async #lock(): Promise<void> {
    if (this.#session?.isBroken === false) return;
    this.#session?.release(true);
    const session = await this.#engine.connect();
    this.#session = session;
    const { taken, database } = only(await session.query<{ taken: boolean; database: string }>(TRY));
    if (taken) return;
    this.#session = undefined;
    session.release();
    throw new Conflict(
      `another world is at work in the database "${database}", and each would remove the actors of the other: close that one first, run ` +
        'the test files one after another, or give each a database of its own',
    );
  }

  async #unlock(): Promise<void> {
    const session = this.#session;
    this.#session = undefined;
    // Without an answer, the end of the connection ends the lock.
    const isFree = await session?.query(LET_GO).then(
      () => true,
      () => false,
    );
    session?.release(isFree !== true);
  }

  async #look(): Promise<{ readonly database: string; readonly migrated: boolean; readonly marked: boolean }> {
    return only(await this.#engine.query<{ database: string; migrated: boolean; marked: boolean }>(LOOK, [MARK]));
  }
}
