import type { HandJob } from '../../../queue/index.ts';
import { EXIT, Failure } from '../../output/failure.ts';
import { readTime } from '../../output/moment.ts';
import { readPayload } from '../job-add.ts';

/** A job in JSON: its times are texts. */
type JsonJob = Omit<HandJob, 'runAt' | 'expiresAt'> & { readonly runAt?: unknown; readonly expiresAt?: unknown };

/** Reads a list of jobs from a file, or from stdin if the file is "-" or missing. @throws Failure */
export async function readJobs<J extends HandJob>(file: string | undefined, what: string): Promise<J[]> {
  const value = await (file === undefined || file === '-' ? readPayload('-', undefined) : readPayload(undefined, file));
  if (!Array.isArray(value)) {
    throw new Failure(`${what} must be an array of jobs as JSON`, {
      exit: EXIT.usage,
      next: `such as [{"kind":"send","payload":{"to":"ada"}}]`,
    });
  }
  return value.map((job: unknown) => withTimes<J>(job));
}

/** The same job, with times in place of their texts. A value that is no time stays, and the library refuses it by its name. */
export function withTimes<J extends HandJob>(job: unknown): J {
  if (typeof job !== 'object' || job === null || Array.isArray(job)) return job as J;
  const { runAt, expiresAt, ...rest } = job as JsonJob;
  return {
    ...rest,
    ...(runAt !== undefined && { runAt: timeOf(runAt) }),
    ...(expiresAt !== undefined && { expiresAt: timeOf(expiresAt) }),
  } as unknown as J;
}

function timeOf(value: unknown): unknown {
  // Not by Date alone, which takes "tomorrow 5" for a day of 2001.
  return typeof value === 'string' ? (readTime(value) ?? new Date(Number.NaN)) : value;
}
