import type { JobFailure, Settlement } from '../store.ts';
import type { Outcome } from './attempt.ts';
import type { Claim, Job, Unit } from './unit.ts';

/** What became of a unit: what is written as a whole, or not at all. A unit of very many failures is several of them. */
export interface PendingSettlement {
  readonly unit: Unit;
  readonly complete: readonly Job[];
  readonly failed: readonly JobFailure[];
  /** Of each job that is complete, as JSON. */
  readonly result: string | undefined;
  /** To be given up with it: nothing more of the key is to come. */
  readonly key: readonly [key: string, epoch: number] | undefined;
  /** Its text was refused before, and is not in it any more. */
  readonly isBare: boolean;
  /** It was sent before and not answered: that its rows are gone may be our own doing. */
  wasSent: boolean;
  /** How often it alone was not answered, while the database answered something else. */
  unanswered: number;
}

/**
 * What one statement may have to write. 4 MB of errors, which are indexed, take half a second (2 cores, November 2026), and the
 * shortest deadline is two. A failure moves its job and writes its error twice, so it counts for two rows.
 */
const MOST_ROWS = 5000;
const MOST_TEXT = 4_000_000;

/** What became of a unit, with the key that it gives up. */
export function toPending(unit: Unit, { complete, failed, result }: Outcome, givesUp: boolean): PendingSettlement {
  const key = givesUp && unit.key !== null && unit.epoch !== null ? ([unit.key, unit.epoch] as const) : undefined;
  return { unit, complete, failed, result, key, isBare: false, wasSent: false, unanswered: 0 };
}

/** Whether it is too much for one statement. */
export function isLarge(settled: PendingSettlement): boolean {
  return settled.failed.length > 0 && !isSmall(rowsOf(settled), textOf(settled));
}

/**
 * In the order in which it may be written, a cut at any place: the key is given up with the last of it, and the job that is
 * the key's next head is in there too. Whatever fails before is parked behind that.
 */
export function split(last: PendingSettlement): PendingSettlement[] {
  const { failed } = last;
  const [head = [], ...parts] = inParts(
    [...failed].sort((a, b) => Number(b.to === 'retry') - Number(a.to === 'retry')),
  );
  const before = parts.map((part): PendingSettlement => {
    const behind = part.map((item) => (item.to === 'retry' ? { ...item, behind: true } : item));
    return { ...last, complete: [], result: undefined, key: undefined, failed: behind };
  });
  return [...before, { ...last, failed: head }];
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

/** How many of them one statement takes: as a rule all, one in any case. */
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

/** One statement's worth, for one shard. */
export function toSettlement(
  where: Pick<Settlement, 'queue' | 'shard' | 'worker'>,
  settled: readonly PendingSettlement[],
): Settlement {
  const details: Details = { failed: [], results: [], shared: [], keys: [], guarded: [] };
  for (const one of settled) if (!isPlain(one)) addDetails(details, one);
  return { ...where, ...completed(settled, details.failed), ...details };
}

/** What a settlement says in addition to what is complete. */
interface Details {
  readonly failed: JobFailure[];
  readonly results: Settlement['results'][number][];
  readonly shared: Settlement['shared'][number][];
  readonly keys: Settlement['keys'][number][];
  readonly guarded: number[];
}

/** Complete, and nothing else to say of it. */
function isPlain({ unit, failed, result, key }: PendingSettlement): boolean {
  return failed.length === 0 && result === undefined && key === undefined && !unit.isGuarded;
}

// A function of its own: V8 throws the compiled loop over thousands away each time it comes upon one that is not plain.
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

/** Claims that are settled to the last job, which need no ids; and of the others the jobs that are complete. */
function completed(
  settled: readonly PendingSettlement[],
  failed: readonly JobFailure[],
): Pick<Settlement, 'whole' | 'part'> {
  const failures = new Map<number, number>();
  for (const { claim } of failed) failures.set(claim, (failures.get(claim) ?? 0) + 1);
  const whole: number[] = [];
  const rest = new Map<Claim, number[]>();
  for (const [claim, complete] of countByClaim(settled)) {
    // What failed of it is taken out before.
    if (complete + (failures.get(claim.id) ?? 0) === claim.left) whole.push(claim.id);
    else rest.set(claim, []);
  }
  if (rest.size > 0) {
    for (const { complete } of settled) for (const { claim, number } of complete) rest.get(claim)?.push(number);
  }
  return { whole, part: [...rest].map(([claim, ids]) => ({ claim: claim.id, ids })) };
}

/** Neighbours are of one claim, as a rule: a lookup for each of 2,000 jobs costs what all else here does. */
function countByClaim(settled: readonly PendingSettlement[]): Map<Claim, number> {
  const counts = new Map<Claim, number>();
  let last: Claim | undefined;
  let count = 0;
  for (const { complete } of settled) {
    // Without an iterator for each unit of one job.
    for (let at = 0; at < complete.length; at += 1) {
      const claim = complete[at]?.claim;
      if (claim !== last) {
        if (last !== undefined) counts.set(last, (counts.get(last) ?? 0) + count);
        last = claim;
        count = 0;
      }
      count += 1;
    }
  }
  if (last !== undefined) counts.set(last, (counts.get(last) ?? 0) + count);
  return counts;
}

/** Each claim with its jobs. */
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

/** It is written: what is left of its claims. */
export function recordSettled({ unit, complete, failed }: PendingSettlement): void {
  for (let at = 0; at < complete.length; at += 1) {
    const claim = complete[at]?.claim;
    if (claim !== undefined) claim.left -= 1;
  }
  if (failed.length === 0) return;
  const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
  for (const { id } of failed) {
    const job = jobs.get(id);
    if (job !== undefined) job.claim.left -= 1;
  }
}

/** Whether there is something in it that a database might refuse, and that it can do without. */
export function hasText({ result, failed }: PendingSettlement): boolean {
  return result !== undefined || failed.some(({ error }) => error !== undefined);
}

/**
 * The same without what handlers made of it: a job with a result ends in error, one that failed does what it was to do. `why`
 * takes the place of every text.
 */
export function withoutText(settled: PendingSettlement, why: string): PendingSettlement {
  const { complete, failed, result } = settled;
  const error = `the database refused what this attempt came to: ${why}`;
  const told = failed.map((item) => (item.error === undefined ? item : { ...item, error }));
  const base = { ...settled, result: undefined, isBare: true, unanswered: 0 };
  if (result === undefined) return { ...base, failed: told };
  const refused = complete.map(
    ({ claim, number }): JobFailure => ({ claim: claim.id, id: number, to: 'error', reason: 'result refused', error }),
  );
  return { ...base, complete: [], failed: [...told, ...refused] };
}
