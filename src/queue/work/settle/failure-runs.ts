import type { JobFailure } from '../../store.ts';

/** Failures that differ only in their jobs. */
export interface FailureRun extends Omit<JobFailure, 'id'> {
  /** The jobs, as an int8multirange. */
  readonly ids: string;
}

/**
 * Groups equal failures. Often another service is down, and a thousand jobs fail with the same text. Each run is one row in every
 * table, and its error is sent and stored once.
 */
export function toRuns(failed: readonly JobFailure[]): FailureRun[] {
  const runs = new Map<string, Run>();
  let run: Run | undefined;
  for (const item of failed) {
    if (run === undefined || !isAlike(run.first, item)) {
      const key = JSON.stringify(withoutId(item));
      run = runs.get(key) ?? { first: item, ids: [] };
      runs.set(key, run);
    }
    run.ids.push(item.id);
  }
  return [...runs.values()].map(({ first, ids }) => ({ ...withoutId(first), ids: multirange(ids) }));
}

interface Run {
  readonly first: JobFailure;
  readonly ids: number[];
}

function withoutId({ claim, to, wait, behind, reason, error }: JobFailure): Omit<JobFailure, 'id'> {
  return { claim, to, wait, behind, reason, error };
}

function isAlike(one: JobFailure, other: JobFailure): boolean {
  return (
    one.claim === other.claim &&
    one.to === other.to &&
    one.wait === other.wait &&
    one.behind === other.behind &&
    one.reason === other.reason &&
    one.error === other.error
  );
}

/** Ids as a multirange: `{[1,4),[7,8)}` for 2, 7, 1, 3. */
function multirange(ids: number[]): string {
  const spans: string[] = [];
  let from: number | undefined;
  let to = 0;
  for (const id of ids.sort((a, b) => a - b)) {
    if (id === to) to += 1;
    else {
      if (from !== undefined) spans.push(`[${from},${to})`);
      from = id;
      to = id + 1;
    }
  }
  if (from !== undefined) spans.push(`[${from},${to})`);
  return `{${spans.join()}}`;
}
