import type { JobRecord } from '../queue/index.ts';

/** In lists, without what may be long and is nobody's business. */
export function summary(record: JobRecord): Omit<JobRecord, 'payload' | 'result'> {
  const { payload: _payload, result: _result, ...rest } = record;
  return { ...rest, progress: null };
}
