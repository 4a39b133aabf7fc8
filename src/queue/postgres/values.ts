import type { NewJobs, Settlement } from '../store.ts';
import { type FailureRun, toRuns } from '../work/settle/failure-runs.ts';

/** The parameters of `SETTLE`. */
export function settleValues(settlement: Settlement): unknown[] {
  const { queue, shard, worker, whole, part, failed, results, shared, keys, guarded = [] } = settlement;
  const { items, errors } = withErrorsOnce(toRuns(failed));
  return [
    queue,
    shard,
    worker,
    whole,
    part.length > 0 ? JSON.stringify(part) : null,
    items.length > 0 ? JSON.stringify(items) : null,
    results.length > 0 ? resultsText(results) : null,
    keys.length > 0 ? keys.map(([key]) => key) : null,
    keys.length > 0 ? keys.map(([, epoch]) => epoch) : null,
    errors.length > 0 ? errors : null,
    shared.length > 0 ? sharedText(shared) : null,
    guarded.length > 0 ? guarded : null,
  ];
}

/** All jobs of a unit fail with one text: it is sent once, and each job refers to it by its number in `like`, from 1. */
export function withErrorsOnce(failed: readonly FailureRun[]): { items: readonly object[]; errors: string[] } {
  const errors: string[] = [];
  const items = failed.map((item, index) => {
    const { error, ...rest } = item;
    if (error === undefined) return item;
    if (error !== failed[index - 1]?.error) {
      if (error !== failed[index + 1]?.error) return item;
      errors.push(error);
    }
    return { ...rest, like: errors.length };
  });
  return { items, errors };
}

/** Arrays and not objects: Postgres reads the fields of a JSON object only when no text in it has U+0000. */
export function resultsText(results: Settlement['results']): string {
  return `[${results.map(({ id, claim, result }) => `[${id},${claim},${result}]`).join()}]`;
}

export function sharedText(shared: Settlement['shared']): string {
  return `[${shared.map(({ result, jobs }) => `[${result},${JSON.stringify(jobs)}]`).join()}]`;
}

/** The parameters of a statement that adds many jobs. */
export function addValues(queue: number, batch: NewJobs): unknown[] {
  const { shard, n, kinds, priorities, payloads, keys, runAt, delays, options, declared } = batch;
  const everyKey = keys?.map((key) => key ?? '') ?? null;
  const everyTime = runAt?.map((time) => time ?? 'infinity') ?? null;
  return [
    queue,
    shard,
    n,
    kinds,
    priorities,
    payloads,
    everyKey,
    everyTime,
    options,
    delays?.map((delay) => delay ?? -1) ?? null,
    declared ?? null,
  ];
}

/** The parameters of a statement that adds one job. */
export function oneValues(queue: number, batch: NewJobs): unknown[] {
  const { shard, kinds, priorities, payloads, keys, runAt, delays, options } = batch;
  return [
    queue,
    shard,
    kinds[0],
    priorities[0],
    payloads.slice(1, -1),
    keys?.[0] ?? null,
    runAt?.[0] ?? null,
    options?.slice(1, -1) ?? null,
    delays?.[0] ?? null,
  ];
}

export function jobsText(columns: object, payloads: string, options: string | null): string {
  return `[${JSON.stringify(columns)},${payloads}${options === null ? '' : `,${options}`}]`;
}
