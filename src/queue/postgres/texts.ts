import type { Blocker, ClaimOneRequest, Cursor, Settlement } from '../store.ts';
import { toRuns } from '../work/settle/failure-runs.ts';
import { resultsText, sharedText, withErrorsOnce } from './values.ts';

// Calls as text for the simple protocol, in which one message has several statements.

/** The claim of one unit. It contains only numbers. */
export function claimOneText({ queue, shard, worker, rows, cursor, blocker }: ClaimOneRequest): string {
  const [q, sh, w] = [queue, shard, worker].map(Number);
  const unblocked = blocker === undefined ? '' : ', true';
  return `select pawl.queue_claim_one(${q}::smallint, ${sh}::smallint, ${w}, ${from(rows, cursor)}${unblocked})`;
}

/** The statement that removes a blocker of a claim. */
export function unblockText({ queue, shard }: ClaimOneRequest, { what, rows, cursor }: Blocker): string {
  return `select pawl.queue_unblock_claim(${Number(queue)}::smallint, ${Number(shard)}::smallint, ${quoted(what)}, ${from(rows, cursor)})`;
}

function from(rows: number, { priority, id }: Cursor): string {
  // In parentheses: -32768::smallint would negate a number that does not fit.
  return `${Number(rows)}, (${Number(priority)})::smallint, ${Number(id)}`;
}

/** A job without a key that the open transaction has claimed. */
export interface OpenClaim {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly claim: number;
  readonly claimedAt: string;
  readonly processId: string;
  readonly attempt: number;
  readonly id: number;
}

/** Inserts the row that a claim under a lease has, for outcomes that only `settleText` can write. */
export function runningText(open: OpenClaim): string {
  const job = Number(open.id);
  return (
    'insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids) values (' +
    `${Number(open.claim)}, ${Number(open.worker)}, ${quoted(open.claimedAt)}, ${quoted(open.processId)}, ` +
    `${Number(open.shard)}, ${Number(open.queue)}, ${Number(open.attempt)}, false, '{[${job},${job + 1})}')`
  );
}

/** A settlement; every value in it is quoted. */
export function settleText(settlement: Settlement): string {
  const { queue, shard, worker, whole, part, failed, results, shared, keys } = settlement;
  const { items, errors } = withErrorsOnce(toRuns(failed));
  const json = (list: readonly unknown[], write: () => string): string =>
    list.length > 0 ? `${quoted(write())}::json` : 'null';
  const texts = (list: readonly string[]): string =>
    list.length > 0 ? `array[${list.map(quoted).join()}]::text[]` : 'null';
  const epochs = keys.length > 0 ? `array[${keys.map(([, epoch]) => Number(epoch)).join()}]::bigint[]` : 'null';
  return (
    `select pawl.queue_settle(${Number(queue)}::smallint, ${Number(shard)}::smallint, ${Number(worker)}, ` +
    `array[${whole.map(Number).join()}]::bigint[], ${json(part, () => JSON.stringify(part))}, ` +
    `${json(items, () => JSON.stringify(items))}, ${json(results, () => resultsText(results))}, ` +
    `${texts(keys.map(([key]) => key))}, ${epochs}, ${texts(errors)}, ${json(shared, () => sharedText(shared))})`
  );
}

/** A literal that means the same under every setting of standard_conforming_strings and backslash_quote. */
export function quoted(text: string): string {
  return `e'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}
