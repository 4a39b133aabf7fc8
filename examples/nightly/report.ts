import type { Locks } from 'pawl/lock';
import { type PostgresEngine, statement } from 'pawl/postgres';

/**
 * The daily job: every process tries to start it, one succeeds per day. If it fails, the next to try may, because of
 * `onError: 'release'`.
 */
export async function startReport(engine: PostgresEngine, locks: Locks): Promise<void> {
  const makeReport = async (): Promise<void> => {
    await engine.query(statement('nightly.report', 'insert into nightly_report default values'));
  };
  await locks.oncePer('daily-report', '24h', makeReport, { onError: 'release' });
}
