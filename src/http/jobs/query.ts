import { InvalidInput } from '../../base/errors.ts';
import { JOB_STATUSES, type JobRecord, searchFilter } from '../../queue/index.ts';
import { choice, type Field, maybe, text, timeOrAgo } from '../protocol/field.ts';
import { errorOf } from '../redaction/hidden.ts';

interface JobFilters {
  readonly status: string | undefined;
  readonly kind: string | undefined;
  readonly key: string | undefined;
  readonly since: string | undefined;
  readonly until: string | undefined;
}

/** The filters of a search as separate parameters. */
export const JOB_FILTERS: { readonly [N in keyof JobFilters]: Field<JobFilters[N]> } = {
  status: maybe(choice(JOB_STATUSES)),
  kind: maybe(text({ max: 100 })),
  key: maybe(text({ max: 1000 })),
  since: maybe(timeOrAgo('enqueued since then: a time, or how long ago')),
  until: maybe(timeOrAgo('enqueued before then: a time, or how long ago')),
};

/** Combines a search and its filter parameters into one search. */
export function queryOf({ q = '', status, kind, key, since, until }: JobFilters & { q: string | undefined }): string {
  const filters = Object.entries({ status, kind, key, since, until } as const).flatMap(([name, value]) =>
    value === undefined ? [] : [searchFilter(name as keyof JobFilters, value)],
  );
  return filters.length === 0 ? q : [q, ...filters].join(' ');
}

/** Adds to the refusal of a query the field that contained it. */
export async function ofQuery<T>(field: string, searching: Promise<T>): Promise<T> {
  try {
    return await searching;
  } catch (cause) {
    if (cause instanceof InvalidInput && cause.field === 'query')
      throw new InvalidInput(cause.message, { field, cause });
    throw cause;
  }
}

/** A job for lists: without fields that may be long or secret. */
export function summary(record: JobRecord): object {
  const { payload: _payload, result: _result, meta: _meta, ...rest } = record;
  return { ...rest, progress: null, error: errorOf(record.error, record) };
}
