import { createFiles, disk, type Files } from 'pawl/files';
import type { PostgresEngine } from 'pawl/postgres';

/**
 * The documents. Everything is kept for as short as it may be, so that one can look on; in earnest the defaults are right: a
 * week for what was replaced.
 */
export function openDocuments(engine: PostgresEngine, dir: string): Files {
  return createFiles(engine, {
    content: disk(dir),
    namespace: 'documents',
    retain: 0,
    tombstone: 0,
    history: '1h',
    limits: { total: '6s', idle: '3s' },
    pending: '7s',
  });
}
