import { only, type PostgresEngine, statement, type Transaction } from '../../engine/postgres/index.ts';
import type { Draw } from './copy.ts';

const LOOK = statement(
  'capture.copy_look',
  `
select l.is_done as "isDone", l.copy::text as copy, l.epoch::text as epoch, l.reached::text as reached, l.database, l.timeline
from pawl.capture_copy_inspect($1::smallint, $2::bigint) l`,
);

const BEGIN = statement(
  'capture.copy_begin',
  `
select b.epoch::text as epoch, b.is_known as "isKnown", b.keys
from pawl.capture_copy_begin($1::uuid, $2::bigint, $3::pg_lsn, $4::text, $5::int, $6::int, $7::int) b`,
);

const LOOKED = statement(
  'capture.copy_looked',
  'select pawl.capture_copy_inspected($1::smallint, $2::bigint, $3::text[])',
);

const REACH = statement('capture.copy_reach', 'select pawl.capture_copy_note_position($1::smallint)');

const FORGET = statement('capture.copy_forget', 'select pawl.capture_copy_forget($1::smallint)');

const GIVE = statement('capture.copy_give', 'select pawl.capture_copy_transfer($1::uuid, $2::text, $3::int)');

/** A line whose row this transaction has locked until its end. */
interface EpochRow {
  readonly isDone: boolean;
  readonly copy: string;
  readonly epoch: string;
  readonly reached: string;
  readonly database: string;
  readonly timeline: number;
}

/** If more keys than this are affected, a sweep over all entities takes the place of marking single keys. */
const MOST_MARKED = 10_000;

/**
 * Begins an epoch of a copy, because one of the two databases may have gone back in time. Rows that were read after the last
 * certain log position are made again. If the other database may have lost writes that it had acknowledged, all rows are made
 * again. The marks for that are committed with `tx`, together with the note that the line was checked.
 * @throws Conflict  the copy belongs to another database, or to the server that was promoted in place of this one
 */
export async function beginEpoch(
  tx: Transaction,
  to: PostgresEngine,
  { line, epoch, timeoutMs }: { line: number; epoch: Draw['epoch']; timeoutMs: number },
): Promise<void> {
  const here = only(await tx.query<EpochRow>(LOOK, [line, epoch]));
  if (here.isDone) return;
  const { copy, reached, database, timeline } = here;
  const values = [copy, here.epoch, reached, database, timeline, MOST_MARKED + 1, timeoutMs];
  const there = await to.transaction(
    async (other) => only(await other.query<{ epoch: string; isKnown: boolean; keys: string[] }>(BEGIN, values)),
    { isolation: 'read committed' },
  );
  const keys = there.isKnown && there.keys.length <= MOST_MARKED ? there.keys : null;
  await tx.query(LOOKED, [line, there.epoch, keys]);
}

/** Stores the current log position as certain. It is certain once `tx` has committed. */
export async function reach(tx: Transaction, line: number): Promise<void> {
  await tx.query(REACH, [line]);
}

/** Makes this database the owner of a copy, whatever database owned it before. */
export async function takeOver(engine: PostgresEngine, to: PostgresEngine, line: number): Promise<void> {
  await engine.transaction(async (tx) => {
    const { copy, database, timeline } = only(await tx.query<EpochRow>(LOOK, [line, '-1']));
    await to.query(GIVE, [copy, database, timeline]);
    await tx.query(FORGET, [line]);
  });
}
