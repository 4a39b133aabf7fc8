/**
 * Jobs that come after others. Such a job is delayed without a time, and the row of its delay names its parents. The head of its shard counts these
 * rows, so workers read them only if there are any, and other shards pay nothing. The end of a job writes nothing for the jobs that come after it.
 * Instead, workers read the waiting jobs, and the status of their parents.
 */
import { NotFound, NotSupported } from '../../../base/errors.ts';
import { type Fields, fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import type { JobStatus } from '../../job.ts';
import type { AfterFailure } from '../../job-options.ts';
import type { JobRef } from '../heads/place.ts';
import { WAITING } from '../heads/waiting.ts';
import { batchRef, type Homes, isBatchRef, refOf } from './homes.ts';

/** The time of a job that is due when others have ended. It sorts behind all real times. */
export const AFTER_OTHERS = 999_999_999_999_999;
/** The most parents of a job. The row of a waiting job names them all, and each check reads it. */
const MOST_PARENTS = 1000;

/** The parents of a job, and its fate if they fail. */
export interface WaitTerms {
  readonly parents: readonly JobRef[];
  readonly afterError: AfterFailure;
  readonly afterCancel: AfterFailure;
  /** The job does not run before this time either, in milliseconds since 1970; 0: it has no time. */
  readonly runAt: number;
}

/** @param queue  the queue of the job @returns undefined if it has no parents @throws NotSupported  too many parents */
export function readTerms(
  queue: string,
  given: {
    readonly after?: readonly unknown[] | undefined;
    readonly afterError?: AfterFailure | undefined;
    readonly afterCancel?: AfterFailure | undefined;
  },
  runAt: number,
): WaitTerms | undefined {
  const { after = [], afterError = 'error', afterCancel = 'cancel' } = given;
  if (after.length === 0) return undefined;
  const parents = new Set<JobRef>();
  for (const one of after) {
    parents.add(typeof one === 'string' ? refOf(queue, one) : batchRef(queue, one));
  }
  if (parents.size > MOST_PARENTS) {
    throw new NotSupported(
      `on DynamoDB a job comes after at most ${MOST_PARENTS} others, not ${parents.size}: enqueue a job after some of them, and this job after that one`,
    );
  }
  return { parents: [...parents], afterError, afterCancel, runAt };
}

/** The fields of the row of a waiting job. */
export function waitFields(terms: WaitTerms): Record<string, string | number | undefined> {
  const { parents, afterError, afterCancel, runAt } = terms;
  return { n: 1, p: JSON.stringify(parents), e: afterError, c: afterCancel, r: runAt === 0 ? undefined : runAt };
}

/** @returns undefined if the row is the row of a delay with a time */
export function termsIn(item: Item | undefined): WaitTerms | undefined {
  const { p, e, c, r = 0 } = fieldsOf(item);
  if (p === undefined) return undefined;
  return { parents: JSON.parse(String(p)), afterError: policyIn(e), afterCancel: policyIn(c), runAt: Number(r) };
}

function policyIn(value: unknown): AfterFailure {
  return value === 'run' || value === 'error' ? value : 'cancel';
}

export function isAnyWaiting(fields: Fields): boolean {
  return Number(fields[WAITING] ?? 0) > 0;
}

/** How a parent has ended. A parent whose history is over counts as complete. */
export type ParentEnd = 'complete' | 'error' | 'cancelled';

export interface Verdict {
  readonly to: 'run' | 'error' | 'cancelled';
  /** Why the job ends; empty if it runs. */
  readonly error: string;
}

/** The fate of a job whose parents have all ended. */
export function verdictOf({ afterError, afterCancel }: WaitTerms, ends: readonly ParentEnd[]): Verdict {
  const count = (end: ParentEnd): number => ends.filter((one) => one === end).length;
  const [errors, cancels] = [count('error'), count('cancelled')];
  if (errors > 0 && afterError !== 'run') {
    return { to: fateOf(afterError), error: `${errors} of the jobs that it comes after ended in error` };
  }
  if (cancels > 0 && afterCancel !== 'run') {
    return { to: fateOf(afterCancel), error: `${cancels} of the jobs that it comes after were cancelled` };
  }
  return { to: 'run', error: '' };
}

function fateOf(policy: 'error' | 'cancel'): 'error' | 'cancelled' {
  return policy === 'error' ? 'error' : 'cancelled';
}

/** The ends of the parents that have ended. @throws NotFound  there is no such job or batch */
export async function endsOf(homes: Homes, parents: readonly JobRef[]): Promise<Map<JobRef, ParentEnd>> {
  const ends = new Map<JobRef, ParentEnd>();
  for (const parent of parents) {
    const status = await homes.statusOf(parent).catch((error: unknown) => {
      const what = isBatchRef(parent) ? `batch ${parent.slice(2)}` : `job ${parent}`;
      throw error instanceof NotFound ? new NotFound(`there is no ${what} to come after`) : error;
    });
    const end = endOf(status);
    if (end !== undefined) ends.set(parent, end);
  }
  return ends;
}

export function endOf(status: JobStatus | undefined): ParentEnd | undefined {
  if (status === undefined) return 'complete';
  return status === 'complete' || status === 'error' || status === 'cancelled' ? status : undefined;
}
