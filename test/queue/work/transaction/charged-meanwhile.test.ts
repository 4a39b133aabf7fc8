import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { breaches } from '../../invariants.ts';
import { SqlSession } from '../../sql-session.ts';

// hold: 'transaction'. A rescue charges a job an attempt while a lane's search, which has begun before, is about to lock the row of the job.

const GATE = 4010;

test('a job that is charged an attempt while a lane claims it has left its place when it is claimed', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const open = async (): Promise<SqlSession> => {
    const session = await SqlSession.open(database.url);
    onTestFinished(() => session.end());
    return session;
  };
  const [eye, lane] = [await open(), await open()];
  const { queue, kinds } = await eye.register('scene', [{ name: 'a' }]);
  const [job] = await eye.add(queue, [{ kind: kinds['a'] ?? -1 }]);
  const worker = await eye.addWorker(queue);
  // The search of the lane stands still after it has begun, and before it locks a row.
  await eye.client.query(`
    update pawl.queue_definition set rate_limit = 1000, rate_per = '1s', per_group = 1000;
    create or replace function pawl.queue_is_rate_due(p_queue smallint, p_shard smallint, p_now timestamptz, p_per interval) returns boolean
    language plpgsql as $$
    begin
      perform pg_advisory_lock(${GATE});
      perform pg_advisory_unlock(${GATE});
      return false;
    end $$`);
  await eye.client.query(`select pg_advisory_lock(${GATE})`);
  await lane.begin();
  const claimed = lane.one<string>(
    `select pawl.queue_claim_one($1::smallint, 0::smallint, $2, 64, (-32768)::smallint, 0)`,
    [queue, worker],
  );
  await until('the search waits', () => eye.one<boolean>('select cardinality(pg_blocking_pids($1)) > 0', [lane.pid]));
  await eye.one('select pawl.queue_charge($1::json)', [
    JSON.stringify({ queue, shard: 0, worker, ids: [job], attempts: [1], ends: false, reason: 'transaction lost' }),
  ]);
  await eye.client.query(`select pg_advisory_unlock(${GATE})`);
  expect(JSON.parse(await claimed)).toMatchObject({ runs: [{ first: job, attempt: 2 }] });
  expect(await lane.one('select count(*)::int from pawl.queue_ready')).toBe(0);
  await lane.client.query('rollback');
  expect(await breaches(eye.client)).toEqual([]);
});
