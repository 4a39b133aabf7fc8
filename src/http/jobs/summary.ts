import type { JobRecord } from '../../queue/index.ts';
import { errorOf } from '../redaction/hidden.ts';

/** For lists: without the fields that may be long or secret. */
export function summary(record: JobRecord): object {
  const { payload: _payload, result: _result, ...rest } = record;
  return { ...rest, progress: null, error: errorOf(record.error, record) };
}
