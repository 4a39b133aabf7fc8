import type { JobFailure, Settlement } from '../../store.ts';
import type { AttemptResult } from '../run/attempt.ts';
import type { Claim, Job } from '../run/claimed-job.ts';
import type { Unit } from '../run/unit.ts';

/**
 * The outcome of a unit, which is written as a whole or not at all. A unit with very many failures becomes several of them.
 *
 * It is a class, although it is only data. V8 learns that objects of a literal live long. It then makes them, and all objects
 * that they refer to, in the old generation, where only a full collection finds dead ones. Outcomes and units of a prefetch look
 * long-lived to V8: 300,000 jobs took 12 full collections and 750 ms with literals, and 4 and 617 ms without
 * (docs/decisions/027).
 */
export class PendingSettlement {
  readonly unit: Unit;
  readonly complete: readonly Job[];
  readonly failed: readonly JobFailure[];
  /** The result of each complete job, as JSON. */
  readonly result: string | undefined;
  /** The key that is given up with the outcome, because no other unit of the key follows. */
  readonly key: readonly [key: string, epoch: number] | undefined;
  /** True: its text was refused before, and has been removed. */
  readonly isBare: boolean;
  /**
   * Numbers of complete jobs of the same claim that need no further entry: see {@link join}. Most jobs are such. Their units are
   * forgotten as soon as they end, and no statement can fail because of them.
   */
  others: number[] | undefined = undefined;
  /** True: it was sent before and got no answer. If its rows are gone, that statement may have been carried out. */
  wasSent = false;
  /** How often it was sent alone and got no answer, while the database answered another statement. */
  unanswered = 0;

  constructor(
    unit: Unit,
    { complete, failed, result }: Pick<AttemptResult, 'complete' | 'failed' | 'result'>,
    key: PendingSettlement['key'],
    isBare = false,
  ) {
    this.unit = unit;
    this.complete = complete;
    this.failed = failed;
    this.result = result;
    this.key = key;
    this.isBare = isBare;
  }
}

/**
 * The limits of one statement. 4 MB of errors, which are indexed, take half a second (2 cores, November 2026), and the
 * shortest deadline is two seconds. A failure moves its job and writes its error twice, so it counts as two rows.
 */
const MOST_ROWS = 5000;
const MOST_TEXT = 4_000_000;

/** The pending settlement of a unit, with the key that it gives up. */
export function toPending(unit: Unit, outcome: AttemptResult, givesUp: boolean): PendingSettlement {
  const key = givesUp && unit.key !== null && unit.epoch !== null ? ([unit.key, unit.epoch] as const) : undefined;
  return new PendingSettlement(unit, outcome, key);
}

/** Adds the outcome of a unit to the one before it, if neither needs a further entry. @returns whether it did */
export function join(before: PendingSettlement | undefined, unit: Unit, outcome: AttemptResult): boolean {
  const { jobs } = unit;
  const job = jobs[0];
  if (before === undefined || job === undefined || jobs.length > 1 || unit.key !== null || unit.isGuarded) return false;
  if (outcome.failed.length > 0 || outcome.result !== undefined || outcome.complete !== jobs) return false;
  if (before.complete[0]?.claim !== job.claim || before.unit.jobs.length > 1 || !isPlain(before)) return false;
  before.others ??= [];
  before.others.push(job.number);
  return true;
}

/** Whether the settlement is too large for one statement. */
export function isLarge(settled: PendingSettlement): boolean {
  return settled.failed.length > 0 && !isSmall(rowsOf(settled), textOf(settled));
}

/**
 * Splits a large settlement into parts that may be written one after another, with a stop after any of them. The last part
 * gives up the key and has the job that is the key's next head. Failures in earlier parts are parked behind that job.
 */
export function split(last: PendingSettlement): PendingSettlement[] {
  const { unit, complete, failed, result, key } = last;
  const [head = [], ...parts] = inParts(
    [...failed].sort((a, b) => Number(b.to === 'retry') - Number(a.to === 'retry')),
  );
  const before = parts.map((part): PendingSettlement => {
    const behind = part.map((item) => (item.to === 'retry' ? { ...item, behind: true } : item));
    return new PendingSettlement(unit, { complete: [], failed: behind, result: undefined }, undefined);
  });
  return [...before, new PendingSettlement(unit, { complete, failed: head, result }, key)];
}

function inParts(failed: readonly JobFailure[]): JobFailure[][] {
  let part: JobFailure[] = [];
  let text = 0;
  const parts = [part];
  for (const item of failed) {
    text += item.error?.length ?? 0;
    if (part.length > 0 && !isSmall(part.length * 2 + 2, text)) {
      part = [];
      parts.push(part);
      text = item.error?.length ?? 0;
    }
    part.push(item);
  }
  return parts;
}

/** How many of them fit into one statement: usually all, at least one. */
export function countFitting(pending: readonly PendingSettlement[], most: number): number {
  let rows = 0;
  let text = 0;
  let count = 0;
  for (const next of pending) {
    rows += rowsOf(next);
    text += textOf(next);
    if (count >= most || (count > 0 && !isSmall(rows, text))) break;
    count += 1;
  }
  return count;
}

function isSmall(rows: number, text: number): boolean {
  return rows <= MOST_ROWS && text <= MOST_TEXT;
}

function rowsOf({ failed, complete, result }: PendingSettlement): number {
  return failed.length * 2 + (result === undefined ? 0 : complete.length);
}

function textOf({ failed, result }: PendingSettlement): number {
  let text = result?.length ?? 0;
  if (failed.length === 0) return text;
  for (const { error } of failed) text += error?.length ?? 0;
  return text;
}

/** The settlement of one statement, for one shard. */
export function toSettlement(
  where: Pick<Settlement, 'queue' | 'shard' | 'worker'>,
  settled: readonly PendingSettlement[],
): Settlement {
  const details: Details = { failed: [], results: [], shared: [], keys: [], guarded: [] };
  for (const one of settled) if (!isPlain(one)) addDetails(details, one);
  return { ...where, ...completed(settled, details.failed), ...details };
}

/** The parts of a settlement in addition to complete jobs. */
interface Details {
  readonly failed: JobFailure[];
  readonly results: Settlement['results'][number][];
  readonly shared: Settlement['shared'][number][];
  readonly keys: Settlement['keys'][number][];
  readonly guarded: number[];
}

/** Whether all its jobs are complete, without a result or a key. */
function isPlain({ unit, failed, result, key }: PendingSettlement): boolean {
  return failed.length === 0 && result === undefined && key === undefined && !unit.isGuarded;
}

// A separate function: else V8 discards the compiled loop over thousands of units each time it meets one that is not plain.
function addDetails(details: Details, { unit, complete, failed, result, key }: PendingSettlement): void {
  for (const item of failed) details.failed.push(item);
  if (result !== undefined && complete.length > 1) details.shared.push({ result, jobs: jobsByClaim(complete) });
  else if (result !== undefined) {
    for (const { claim, number } of complete) details.results.push({ id: number, claim: claim.id, result });
  }
  if (key !== undefined) details.keys.push(key);
  if (!unit.isGuarded) return;
  for (const { number } of complete) details.guarded.push(number);
  for (const { id } of failed) details.guarded.push(id);
}

/** Claims that are settled completely, which need no ids; and the complete jobs of all other claims. */
function completed(
  settled: readonly PendingSettlement[],
  failed: readonly JobFailure[],
): Pick<Settlement, 'whole' | 'part'> {
  const failures = new Map<number, number>();
  for (const { claim } of failed) failures.set(claim, (failures.get(claim) ?? 0) + 1);
  const whole: number[] = [];
  const rest = new Map<Claim, number[]>();
  for (const [claim, complete] of countByClaim(settled)) {
    // Its failed jobs are removed first.
    if (complete + (failures.get(claim.id) ?? 0) === claim.left) whole.push(claim.id);
    else rest.set(claim, []);
  }
  if (rest.size > 0) {
    for (const { complete, others = [] } of settled) {
      for (const { claim, number } of complete) rest.get(claim)?.push(number);
      for (const number of others) rest.get(complete[0]?.claim as Claim)?.push(number);
    }
  }
  return { whole, part: [...rest].map(([claim, ids]) => ({ claim: claim.id, ids })) };
}

/**
 * Neighbours usually belong to one claim: a map lookup for each of 2,000 jobs would cost as much as the rest of this
 * function.
 */
function countByClaim(settled: readonly PendingSettlement[]): Map<Claim, number> {
  const counts = new Map<Claim, number>();
  let last: Claim | undefined;
  let count = 0;
  for (const { complete, others } of settled) {
    // An index loop: it avoids an iterator for each unit of one job.
    for (let at = 0; at < complete.length; at += 1) {
      const claim = complete[at]?.claim;
      if (claim !== last) {
        if (last !== undefined) counts.set(last, (counts.get(last) ?? 0) + count);
        last = claim;
        count = 0;
      }
      count += 1;
    }
    if (others !== undefined) count += others.length;
  }
  if (last !== undefined) counts.set(last, (counts.get(last) ?? 0) + count);
  return counts;
}

/** Groups jobs by claim. */
export function jobsByClaim(jobs: readonly Job[]): [claim: number, ...ids: number[]][] {
  const ids = new Map<Claim, number[]>();
  for (const { claim, number } of jobs) add(ids, claim, number);
  return [...ids].map(([claim, all]) => [claim.id, ...all]);
}

function add(ids: Map<Claim, number[]>, claim: Claim, id: number): void {
  const known = ids.get(claim);
  if (known === undefined) ids.set(claim, [id]);
  else known.push(id);
}

/** Called when it is written: counts down the jobs that are left in its claims. */
export function recordSettled({ unit, complete, failed, others }: PendingSettlement): void {
  for (let at = 0; at < complete.length; at += 1) {
    const claim = complete[at]?.claim;
    if (claim !== undefined) claim.left -= 1 + (others?.length ?? 0);
  }
  if (failed.length === 0) return;
  const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
  for (const { id } of failed) {
    const job = jobs.get(id);
    if (job !== undefined) job.claim.left -= 1;
  }
}

/** Whether it has text that a database might refuse, and that may be left out. */
export function hasText({ result, failed }: PendingSettlement): boolean {
  return result !== undefined || failed.some(({ error }) => error !== undefined);
}

/**
 * The same without texts of handlers: a job with a result ends in error, a failed job keeps its outcome. `why` replaces every
 * text.
 */
export function withoutText(settled: PendingSettlement, why: string): PendingSettlement {
  const { unit, complete, failed, result, key, wasSent } = settled;
  const error = `the database refused the outcome of this attempt: ${why}`;
  const told = failed.map((item) => (item.error === undefined ? item : { ...item, error }));
  const refused = result === undefined ? [] : complete.map((job) => refusedResult(job, error));
  const kept = result === undefined ? complete : [];
  const without = new PendingSettlement(
    unit,
    { complete: kept, failed: [...told, ...refused], result: undefined },
    key,
    true,
  );
  without.wasSent = wasSent;
  return without;
}

function refusedResult({ claim, number }: Job, error: string): JobFailure {
  return { claim: claim.id, id: number, to: 'error', reason: 'result refused', error };
}
