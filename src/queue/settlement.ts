import type { Outcome } from './attempt.ts';
import type { Failed, Settlement } from './store.ts';
import type { Claim, Job, Unit } from './unit.ts';

/** What became of a unit: what is written as a whole, or not at all. A unit of very many failures is several of them. */
export interface Settled {
  readonly unit: Unit;
  readonly complete: readonly Job[];
  readonly failed: readonly Failed[];
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

/**
 * In the order in which it may be written, a cut at any place: the key is given up with the last of it, and the job that is
 * the key's next head is in there too. Whatever fails before is parked behind that.
 */
export function toSettled(unit: Unit, outcome: Outcome, givesUp: boolean): Settled[] {
  const { complete, failed, result } = outcome;
  const key = givesUp && unit.key !== null && unit.epoch !== null ? ([unit.key, unit.epoch] as const) : undefined;
  const last = { unit, complete, failed, result, key, isBare: false, wasSent: false, unanswered: 0 };
  if (failed.length === 0 || isSmall(rowsOf(last), textOf(last))) return [last];
  const [head = [], ...parts] = inParts(
    [...failed].sort((a, b) => Number(b.to === 'retry') - Number(a.to === 'retry')),
  );
  const before = parts.map((part): Settled => {
    const behind = part.map((item) => (item.to === 'retry' ? { ...item, behind: true } : item));
    return { ...last, complete: [], result: undefined, key: undefined, failed: behind };
  });
  return [...before, { ...last, failed: head }];
}

function inParts(failed: readonly Failed[]): Failed[][] {
  let part: Failed[] = [];
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
export function fitting(pending: readonly Settled[], most: number): number {
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

function rowsOf({ failed, complete, result }: Settled): number {
  return failed.length * 2 + (result === undefined ? 0 : complete.length);
}

function textOf({ failed, result }: Settled): number {
  let text = result?.length ?? 0;
  for (const { error } of failed) text += error?.length ?? 0;
  return text;
}

/** One statement's worth, for one shard. */
export function toSettlement(
  where: Pick<Settlement, 'queue' | 'shard' | 'worker'>,
  settled: readonly Settled[],
): Settlement {
  const done = new Map<Claim, number[]>();
  const failed: Failed[] = [];
  const results: Settlement['results'][number][] = [];
  const shared: Settlement['shared'][number][] = [];
  const keys: Settlement['keys'][number][] = [];
  const guarded: number[] = [];
  for (const { unit, complete, failed: more, result, key } of settled) {
    for (const { claim, number } of complete) add(done, claim, number);
    for (const item of more) failed.push(item);
    if (result !== undefined && complete.length > 1) shared.push({ result, jobs: jobsByClaim(complete) });
    else if (result !== undefined) {
      for (const { claim, number } of complete) results.push({ id: number, claim: claim.id, result });
    }
    if (key !== undefined) keys.push(key);
    if (unit.isGuarded) {
      for (const { number } of complete) guarded.push(number);
      for (const { id } of more) guarded.push(id);
    }
  }
  const failures = new Map<number, number>();
  for (const { claim } of failed) failures.set(claim, (failures.get(claim) ?? 0) + 1);
  const whole: number[] = [];
  const part: Settlement['part'][number][] = [];
  for (const [claim, ids] of done) {
    // What failed of it is taken out before.
    if (ids.length + (failures.get(claim.id) ?? 0) === claim.left) whole.push(claim.id);
    else part.push({ claim: claim.id, ids });
  }
  return { ...where, whole, part, failed, results, shared, keys, guarded };
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
export function noteSettled({ unit, complete, failed }: Settled): void {
  for (const job of complete) job.claim.left -= 1;
  if (failed.length === 0) return;
  const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
  for (const { id } of failed) {
    const job = jobs.get(id);
    if (job !== undefined) job.claim.left -= 1;
  }
}

/** Whether there is something in it that a database might refuse, and that it can do without. */
export function hasText({ result, failed }: Settled): boolean {
  return result !== undefined || failed.some(({ error }) => error !== undefined);
}

/**
 * The same without what handlers made of it: a job with a result ends in error, one that failed does what it was to do. `why`
 * takes the place of every text.
 */
export function bare(settled: Settled, why: string): Settled {
  const { complete, failed, result } = settled;
  const error = `the database refused what this attempt came to: ${why}`;
  const told = failed.map((item) => (item.error === undefined ? item : { ...item, error }));
  const base = { ...settled, result: undefined, isBare: true, unanswered: 0 };
  if (result === undefined) return { ...base, failed: told };
  const refused = complete.map(
    ({ claim, number }): Failed => ({ claim: claim.id, id: number, to: 'error', reason: 'result refused', error }),
  );
  return { ...base, complete: [], failed: [...told, ...refused] };
}
