import {
  id,
  type PostgresEngine,
  type Statement,
  statement,
  type Transaction,
  VERBATIM,
} from '../../engine/postgres/index.ts';
import type { Source } from '../declare/source.ts';
import type { Destination } from '../work/destination.ts';
import { operator } from './operators.ts';

/** The progress of a sweep through all entities. */
export interface Progress {
  readonly phase: 'root' | 'target' | 'done';
  readonly done: number;
  /** An estimate of all entities. */
  readonly total: number;
}

/** The position of a sweep. */
export interface SweepPosition {
  readonly phase: 'root' | 'target';
  readonly after: string | null;
  readonly done: string;
  readonly total: string;
}

/** The time for one page of a back-fill whose caller gave none. */
const PAGE_MS = 300_000;

/** The next keys, and the last one that was read; null at the end. */
export interface Page {
  readonly keys: readonly string[];
  readonly last: string | null;
}

const IS_OPEN = statement(
  'capture.sweep_is_open',
  "select exists (select from pawl.capture_sweep s where s.line = $1::smallint and s.phase <> 'done') as yes",
);

const TAKE = statement(
  'capture.sweep_take',
  `
select s.phase, s.after, s.done, s.total from pawl.capture_limit($2::int) limited cross join pawl.capture_sweep s
where s.line = $1::smallint and s.phase <> 'done' for update of s skip locked`,
);

const MOVE = statement(
  'capture.sweep_move',
  `
update pawl.capture_sweep s
set phase = $2::text, after = $3::text, done = s.done + $4::int, ended_at = case when $2::text = 'done' then clock_timestamp() end
where s.line = $1::smallint
returning s.phase, s.done::int as done, s.total::int as total`,
);

const START = statement(
  'capture.sweep_start',
  'select pawl.capture_sweep_start($1::smallint, $2::bigint, $3::boolean)',
);

const LOOK = statement(
  'capture.sweep_look',
  'select s.phase, s.done::int as done, s.total::int as total from pawl.capture_sweep s where s.line = $1::smallint',
);

const ESTIMATE = statement(
  'capture.estimate',
  `
select greatest(coalesce(sum(c.reltuples) filter (where c.relkind = 'r'), 0), 0)::bigint::text as rows
from pg_class c where c.oid = to_regclass($1::text)::oid or c.oid in (select p.relid::oid from pg_partition_tree(to_regclass($1::text)) p)`,
);

/** Reads and writes the position of a sweep, and reads its pages. */
export class SweepStore {
  readonly #engine: PostgresEngine;
  readonly #line: number;
  readonly #root: string;
  readonly #rootPage: Statement;
  readonly #destination: Destination;

  constructor(engine: PostgresEngine, line: number, root: Source, destination: Destination) {
    this.#engine = engine;
    this.#line = line;
    this.#root = id(root.schema, root.name);
    this.#destination = destination;
    const key = `r.${id(root.column)}`;
    this.#rootPage = statement(
      `capture.root_page ${line}`,
      `
select ${root.rowLevel ? 'distinct ' : ''}${key} as own, ${key}::text as key from ${this.#root} r
where $1::text is null or ${key} ${operator('>', root.operators)} $1::text::${root.type} order by 1 limit $2::int`,
      VERBATIM,
    );
  }

  async isOpen(deadlineMs?: number): Promise<boolean> {
    const [row] = await this.#engine.query<{ yes: boolean }>(IS_OPEN, [this.#line], { deadlineMs });
    return row?.yes ?? false;
  }

  /** @param again  start from the beginning even if a sweep is under way */
  start(tx: Pick<Transaction, 'query'>, again: boolean): Promise<void> {
    return startSweep(tx, this.#line, this.#root, again);
  }

  async progress(): Promise<Progress | undefined> {
    const [row] = await this.#engine.query<Progress>(LOOK, [this.#line]);
    return row;
  }

  /** @param deadlineMs  after this time the server lets another worker continue the sweep, even if this process hangs */
  async take(tx: Transaction, deadlineMs: number = PAGE_MS): Promise<SweepPosition | undefined> {
    const [place] = await tx.query<SweepPosition>(TAKE, [this.#line, deadlineMs]);
    return place;
  }

  async page(tx: Transaction, { phase, after }: Pick<SweepPosition, 'phase' | 'after'>, size: number): Promise<Page> {
    if (phase === 'root') {
      const rows = await tx.query<{ key: string }>(this.#rootPage, [after, size]);
      return { keys: rows.map(({ key }) => key), last: rows.at(-1)?.key ?? null };
    }
    const rows = await this.#destination.page(tx, after, size * 4);
    return { keys: rows.filter(({ stray }) => stray).map(({ key }) => key), last: rows.at(-1)?.key ?? null };
  }

  async move(tx: Transaction, { phase }: SweepPosition, { keys, last }: Page): Promise<Progress | undefined> {
    const next = last === null ? (phase === 'root' ? 'target' : 'done') : phase;
    const counted = phase === 'root' ? keys.length : 0;
    const [row] = await tx.query<Progress>(MOVE, [this.#line, next, last, counted]);
    return row;
  }
}

/** Starts a sweep; any worker continues it. @param root  the table, quoted; @param again  start even if one is under way */
export async function startSweep(
  tx: Pick<Transaction, 'query'>,
  line: number,
  root: string,
  again: boolean,
): Promise<void> {
  const [row] = await tx.query<{ rows: string }>(ESTIMATE, [root]);
  await tx.query(START, [line, row?.rows ?? '0', again]);
}
