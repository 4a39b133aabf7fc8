/**
 * The row of a value of a unique kind: it says which job is the one. Enqueues alone write it, in the transaction of their job, and judge it by how
 * that job stands; so a settlement never touches it, and every end of a job frees its place. Read the row before the job: one that was
 * over, and is new again, has another version.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import type { UniqueRule } from '../../declare/unique.ts';
import type { JobStatus } from '../../job.ts';

const F = { job: 'j', version: 'v', at: 't' } as const;

/** The job that a row names, if it may still count. */
export function jobIn(fields: Fields, { per }: UniqueRule, now: number): number | undefined {
  const job = fields[F.job];
  if (job === undefined) return undefined;
  const perMs = per === undefined ? Infinity : Number.parseFloat(per);
  return Number(fields[F.at]) + perMs <= now ? undefined : Number(job);
}

/** Whether a job of that status is the one of its value. @param status  undefined: its history is over */
export function isTheOne(rule: UniqueRule, status: JobStatus | undefined): boolean {
  if (rule.while === 'ever' || status === 'new') return true;
  return rule.while === 'outstanding' && status === 'in-progress';
}

/** Puts a job in the place, unless the row has changed since it was read. */
export function placeTaken(fields: Fields, job: number, now: number): Change {
  const [before, version] = [fields[F.job] ?? null, fields[F.version] ?? null];
  const set = { [F.job]: job, [F.version]: Number(version ?? 0) + 1, [F.at]: now };
  return { expect: { [F.job]: before, [F.version]: version }, set };
}
