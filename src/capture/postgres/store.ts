import { DatabaseError, StatementTimeout } from '../../base/errors.ts';
import { toStorable } from '../../base/storable.ts';
import {
  instant,
  only,
  type PostgresEngine,
  type Statement,
  statement,
  type Transaction,
  VERBATIM,
} from '../../engine/postgres/index.ts';
import { followText } from './catalog.ts';
import type { InstalledLine } from './install/state.ts';
import { StaleDeclaration } from './stale-declaration.ts';

/** The keys and links that one claim took. */
export interface ClaimedKeys {
  /** The claim has read the log to its end. */
  readonly isEnd: boolean;
  /** Where the next claim of the pass continues. */
  readonly last: string;
  readonly ids: readonly string[];
  readonly keys: readonly string[];
  /** When the oldest claimed change was written; null when there is none. */
  readonly oldest: Date | null;
}

export interface ClaimOptions {
  readonly after: string;
  readonly limit: number;
  /** Rows are read as for so many keys, also when `limit` is lower: a part of a batch sees the same rows as the whole. */
  readonly batch: number;
  readonly timeoutMs: number;
  readonly only?: readonly string[] | undefined;
}

const CLAIM = statement(
  'capture.claim',
  `
select c.seen < $3::int and not c.cut as "isEnd", c.last::text as last, c.ids::text[] as ids, c.keys, ${instant('c.oldest')} as oldest
from pawl.capture_claim($1::smallint, $2::bigint, $3::int, $4::int, $5::int, $6::text[]) c`,
);

const CLAIM_RETRY = statement(
  'capture.claim_retry',
  'select r.key, r.attempt from pawl.capture_claim_retry($1::smallint, $2::int) r',
);

const SETTLE = statement('capture.settle', 'select pawl.capture_settle($1::smallint, $2::bigint[], $3::text[])');

const FAIL = statement(
  'capture.fail',
  'select pawl.capture_fail($1::smallint, $2::bigint[], $3::text, $4::double precision, $5::text) as attempt',
);

const MARK = statement('capture.mark', 'select pawl.capture_mark($1::smallint, $2::text[])');

const TAKE_LINKS = statement(
  'capture.take_links',
  'select l.source, l.key from pawl.capture_limit($3::int) limited cross join pawl.capture_take_links($1::smallint, $2::int) l',
);

// In the index, links are before and after the keys of entities. A condition "not 0" would read all keys between them.
const HAS_LINKS = `
  (exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source < 0)
    or exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source > 0))`;

/** Of the declaration that a line has now; null if the line is gone. */
const VERSION = `
  (select extract(epoch from d.applied_at)::text from pawl.capture_line l join pawl.capture_definition d on d.id = l.capture
    where l.id = $1::smallint)`;

const LOOK = statement(
  'capture.look',
  `
select ${HAS_LINKS} as links,
  exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source = 0) as keys,
  exists (select from pawl.capture_retry r where r.line = $1::smallint and r.run_at <= clock_timestamp()) as retries,
  exists (select from pawl.capture_sweep s where s.line = $1::smallint and s.phase <> 'done') as sweep, ${VERSION} as version`,
);

const GET_VERSION = statement('capture.version', `select ${VERSION} as version`);

const NEWEST = statement(
  'capture.newest',
  `
select coalesce(greatest(
  (select max(d.id) from pawl.capture_dirty d where d.line = $1::smallint and d.source < 0),
  (select max(d.id) from pawl.capture_dirty d where d.line = $1::smallint and d.source = 0),
  (select max(d.id) from pawl.capture_dirty d where d.line = $1::smallint and d.source > 0)), 0)::text as id`,
);

const IS_PAST = statement(
  'capture.is_past',
  `
select not exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source = 0 and d.id <= $2::bigint)
  and not exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source < 0 and d.id <= $2::bigint)
  and not exists (select from pawl.capture_dirty d where d.line = $1::smallint and d.source > 0 and d.id <= $2::bigint) as yes`,
);

// A generic plan compares each row of the log with each key of an array, one by one: 1.3 s for a page of 2,000 keys while
// 38,000 changes wait. "is true" keeps the subquery from becoming a join, for which the planner may choose a loop. The keys of
// the subquery are hashed.
const among = (key: string): string => `(${key} in (select u.key from pg_catalog.unnest($2::text[]) u (key))) is true`;

const DIRTY_AMONG = statement(
  'capture.dirty_among',
  `
select ${HAS_LINKS} or exists (select from pawl.capture_sweep s where s.line = $1::smallint and s.phase <> 'done') as unknown,
  array(
    select d.key from pawl.capture_dirty d where d.line = $1::smallint and d.source = 0 and ${among('d.key')}
    union select r.key from pawl.capture_retry r where r.line = $1::smallint and ${among('r.key')}) as keys`,
);

/** The kinds of work that are waiting. */
export interface WaitingWork {
  readonly links: boolean;
  readonly keys: boolean;
  readonly retries: boolean;
  readonly sweep: boolean;
  /** False: the capture was applied with another declaration, or detached, since this store was made. */
  readonly isCurrent: boolean;
}

const LOCK_KEYS = statement(
  'capture.lock_keys',
  `
select pg_catalog.array_agg(u.key) filter (where pawl.capture_lock_key($1::smallint, u.key)) as keys
from pg_catalog.unnest($2::text[]) u (key)`,
);

/** Rows that one claim reads per key that it may take: a hot key has many rows, and other workers hold some. */
const ROWS_PER_KEY = 4;

/** Errors that a value causes, or that fewer values would not cause: wrong data, a raised exception, too much, too slow. */
const OF_VALUES = /^(21|22|23|54|P0)/;

/** Beyond this many links a claim leaves the rest to the next one. */
const LINKS_AT_ONCE = 500;

/** Brings changes from the log to a consumer that wants the current state. */
export class CaptureStore {
  readonly #engine: PostgresEngine;
  readonly #line: number;
  readonly #version: string;
  /** Fewer after a failure, so that the links that cannot be followed are found. */
  #linksAtOnce = LINKS_AT_ONCE;
  /** For each link, the query that turns its values into keys. */
  readonly #follow: ReadonlyMap<number, Statement>;

  constructor(engine: PostgresEngine, { line, version, definition: { sources } }: InstalledLine) {
    this.#engine = engine;
    this.#line = line;
    this.#version = version;
    this.#follow = new Map(
      sources.flatMap(({ number, column, type, query }) =>
        query === undefined
          ? []
          : [
              [
                number,
                statement('capture.follow', markText(engine.schema.name, followText(column, type, query)), VERBATIM),
              ],
            ],
      ),
    );
  }

  /**
   * A transaction at read committed: statements after a claim must see everything that was committed before them. It fails if
   * row-level security hides rows, because a hidden entity looks like a deleted one.
   * @param deadlineMs  how long to wait for the answer of each statement; default: no limit
   */
  transaction<T>(fn: (tx: Transaction) => Promise<T>, deadlineMs?: number): Promise<T> {
    return this.#engine.transaction(fn, { isolation: 'read committed', retries: 0, deadlineMs, seesAll: true });
  }

  /** The kinds of work that are waiting. One round trip; an idle worker mostly makes no other. */
  async look(deadlineMs: number): Promise<WaitingWork> {
    type Look = Omit<WaitingWork, 'isCurrent'> & { readonly version: string | null };
    const { version, ...there } = only(await this.#engine.query<Look>(LOOK, [this.#line], { deadlineMs }));
    return { ...there, isCurrent: version === this.#version };
  }

  /** False: the capture was applied with another declaration, or detached, since this store was made. */
  async isCurrent(db: Pick<Transaction, 'query'> = this.#engine): Promise<boolean> {
    const [row] = await db.query<{ version: string | null }>(GET_VERSION, [this.#line]);
    return row?.version === this.#version;
  }

  /** A mark behind everything that is committed now. */
  async newest(): Promise<string> {
    const [row] = await this.#engine.query<{ id: string }>(NEWEST, [this.#line]);
    return row?.id ?? '0';
  }

  async isPast(mark: string): Promise<boolean> {
    const [row] = await this.#engine.query<{ yes: boolean }>(IS_PAST, [this.#line, mark]);
    return row?.yes ?? true;
  }

  /** Which of the keys are dirty. While a link has not been followed, or a sweep is under way, any key may be. */
  async dirtyAmong(tx: Transaction, keys: readonly string[]): Promise<ReadonlySet<string>> {
    const [row] = await tx.query<{ unknown: boolean; keys: string[] }>(DIRTY_AMONG, [this.#line, keys]);
    return new Set(row?.unknown === false ? row.keys : keys);
  }

  async claim(tx: Transaction, { after, limit, batch, timeoutMs, only }: ClaimOptions): Promise<ClaimedKeys> {
    const rows = batch * ROWS_PER_KEY;
    const [claim] = await tx.query<ClaimedKeys>(CLAIM, [this.#line, after, rows, limit, timeoutMs, only ?? null]);
    return claim ?? { isEnd: true, last: after, ids: [], keys: [], oldest: null };
  }

  async claimRetry(tx: Transaction, timeoutMs: number): Promise<{ key: string; attempt: number } | undefined> {
    const [row] = await tx.query<{ key: string; attempt: number }>(CLAIM_RETRY, [this.#line, timeoutMs]);
    return row;
  }

  async settle(tx: Transaction, ids: readonly string[], keys: readonly string[]): Promise<void> {
    await tx.query(SETTLE, [this.#line, ids, keys]);
  }

  /** @returns how often the entity has failed so far */
  async fail(tx: Transaction, key: string, ids: readonly string[], waitMs: number, error: string): Promise<number> {
    const [row] = await tx.query<{ attempt: number }>(FAIL, [this.#line, ids, key, waitMs, toStorable(error)]);
    return row?.attempt ?? 1;
  }

  async mark(tx: Pick<Transaction, 'query'>, keys: readonly string[]): Promise<void> {
    if (keys.length > 0) await tx.query(MARK, [this.#line, keys]);
  }

  /** Locks those of the keys that no other worker holds, until the end of the transaction. @returns the locked keys */
  async lock(tx: Transaction, keys: readonly string[]): Promise<readonly string[]> {
    const [row] = await tx.query<{ keys: string[] | null }>(LOCK_KEYS, [this.#line, keys]);
    return row?.keys ?? [];
  }

  /**
   * Replaces links by the keys to which they lead now, in a transaction of its own. Rows that a link will lead to later are
   * dirty by themselves.
   * @param onWhole  called if everything in a table has changed
   * If the query fails for a value, that value counts as a change of everything: no link stops another one.
   * @returns whether there was a link
   * @throws StaleDeclaration  the links may lead elsewhere now
   */
  async follow(onWhole: (tx: Transaction) => Promise<void>, deadlineMs: number): Promise<boolean> {
    const limit = this.#linksAtOnce;
    let failing: number | undefined;
    try {
      const found = await this.#followSome(limit, onWhole, deadlineMs, async (tx, source, query, keys) => {
        failing = source;
        await tx.query(query, [keys, this.#line]);
        failing = undefined;
      });
      this.#linksAtOnce = Math.min(limit * 2, LINKS_AT_ONCE);
      return found;
    } catch (error) {
      if (failing === undefined || !isOfValues(error)) throw error;
      this.#linksAtOnce = Math.ceil(limit / 2);
      if (limit > 1) return true;
      this.#engine.options.logger.warn(
        { err: error, source: failing },
        'the link of a changed row cannot be followed: every entity is projected once more',
      );
    }
    return this.#followSome(1, onWhole, deadlineMs, async (tx, source, query, keys) => {
      await (source === failing ? onWhole(tx) : tx.query(query, [keys, this.#line]));
    });
  }

  #followSome(
    limit: number,
    onWhole: (tx: Transaction) => Promise<void>,
    deadlineMs: number,
    followOne: (tx: Transaction, source: number, query: Statement, keys: readonly string[]) => Promise<void>,
  ): Promise<boolean> {
    return this.transaction(async (tx) => {
      const links = await tx.query<{ source: number; key: string }>(TAKE_LINKS, [this.#line, limit, deadlineMs]);
      if (links.length > 0 && !(await this.isCurrent(tx))) throw new StaleDeclaration();
      if (links.some(({ source }) => !this.#follow.has(source))) await onWhole(tx);
      for (const [source, query] of this.#follow) {
        const keys = links.filter((link) => link.source === source).map(({ key }) => key);
        if (keys.length > 0) await followOne(tx, source, query, keys);
      }
      return links.length > 0;
    }, deadlineMs);
  }
}

function isOfValues(error: unknown): boolean {
  return error instanceof StatementTimeout || (error instanceof DatabaseError && OF_VALUES.test(error.sqlState ?? ''));
}

function markText(schema: string, query: string): string {
  return `insert into ${schema}.capture_dirty (line, source, key)
select $2::smallint, 0, found.key from (
${query}
) found order by found.key`;
}
