import type { JobRecord } from '../../queue/index.ts';
import { errorOf } from '../redaction/hidden.ts';

/** In lists, without what may be long and is nobody's business. */
export function summary(record: JobRecord): object {
  const { payload: _payload, result: _result, ...rest } = record;
  return { ...rest, progress: null, error: errorOf(record.error, record) };
}
