/**
 * The row of a value of a unique kind: it names the one job of this value. Enqueues, and updates and retries by hand, write it in the transaction of
 * their job, and judge it by the status of the named job. So a settlement never writes the row, and every end of a job frees its place. Read the
 * row before the job: if the job was over and is new again, the row has another version.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import type { UniqueRule } from '../../declare/unique.ts';
import type { JobStatus } from '../../job.ts';

const F = { job: 'j', version: 'v', at: 't' } as const;

/** The job that a row names, unless the period of the rule is over. */
export function jobIn(fields: Fields, { per }: UniqueRule, now: number): number | undefined {
  const job = fields[F.job];
  if (job === undefined) return undefined;
  const perMs = per === undefined ? Infinity : Number.parseFloat(per);
  return Number(fields[F.at]) + perMs <= now ? undefined : Number(job);
}

/** Whether a job of this status is the one job of its value. @param status  undefined: its history is over */
export function isTheOne(rule: UniqueRule, status: JobStatus | undefined): boolean {
  if (rule.while === 'ever' || status === 'new') return true;
  return rule.while === 'outstanding' && status === 'in-progress';
}

/** Names a job in the row, unless the row has changed since it was read. */
export function placeTaken(fields: Fields, job: number, now: number): Change {
  const [before, version] = [fields[F.job] ?? null, fields[F.version] ?? null];
  const set = { [F.job]: job, [F.version]: Number(version ?? 0) + 1, [F.at]: now };
  return { expect: { [F.job]: before, [F.version]: version }, set };
}
