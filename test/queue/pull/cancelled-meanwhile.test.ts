import { expect, test } from 'vitest';
import { until } from '../../support/eventually.ts';
import { SqlSession } from '../sql-session.ts';
import { pullStage } from './stage.ts';

// A transaction cancels a job that a client has claimed, and commits while the client's call that gives the job back waits for it.

const stage = pullStage('cancelled');

for (const how of ['release', 'fail'] as const) {
  test(`a job that is cancelled while ${how}() waits does not run again`, async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1, { key: 'k' });
    const [unit] = await queue.claim({ lease: '1h' });
    await stage.eye.begin();
    const asked = await stage.eye.one('select pawl.cancel($1::jsonb)', [JSON.stringify({ id, reason: 'wrong' })]);
    expect(asked).toEqual({ id, status: 'in-progress' });
    const settled = how === 'release' ? unit?.release() : unit?.fail(new Error('no'), { retryIn: 0 });
    const watcher = await SqlSession.open(stage.url);
    const waits = 'select exists (select from pg_stat_activity a where $1::int = any (pg_blocking_pids(a.pid)))';
    await until('the call waits', () => watcher.one<boolean>(waits, [stage.eye.pid]));
    await watcher.end();
    await stage.eye.commit();
    expect(await settled).toBe('cancelled');
    expect(await queue.get(id)).toMatchObject({ status: 'cancelled', error: 'wrong' });
    expect(await queue.claim()).toEqual([]);
  });
}
