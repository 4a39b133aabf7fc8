import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { SqlSession } from '../sql-session.ts';

// A claim that is under way while the queue is paused. It may take what was there before; what is enqueued after the pause waits.

test.each([
  ['a job without a key', undefined, 1],
  ['several jobs without a key', undefined, 3],
  ['jobs of keys', 'k', 2],
] as const)(
  'a claim that waits while its queue is paused starts nothing that is enqueued then: %s',
  async (_, key, n) => {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const [admin, claimer, blocker] = await Promise.all([1, 2, 3].map(() => SqlSession.open(database.url)));
    if (admin === undefined || claimer === undefined || blocker === undefined) throw new Error('no session');
    onTestFinished(async () => void (await Promise.all([admin, claimer, blocker].map((session) => session.end()))));
    const { queue, kinds } = await admin.register('paused', [{ name: 'job' }]);
    const kind = kinds['job'] ?? -1;
    const worker = await admin.addWorker(queue);
    // A claim waits for a session that brings due jobs back: here, until the queue is paused.
    const [due] = await admin.add(queue, [{ kind, runAt: new Date(Date.now() + 3_600_000) }]);
    await admin.client.query('update pawl.queue_delayed set run_at = clock_timestamp()');
    await blocker.begin();
    await blocker.one("select pg_advisory_xact_lock(hashtextextended('', $1::int * 65536))", [queue]);
    const claimed = claimer.claim(queue, worker);
    await until(
      'the claim waits',
      () => admin.one("select wait_event = 'advisory' from pg_stat_activity where pid = $1", [claimer.pid]),
      10_000,
    );
    await admin.one('select pawl.queue_pause($1)', ['paused']);
    await admin.add(
      queue,
      Array.from({ length: n }, (_unused, at) => ({ kind, ...(key === undefined ? {} : { key: `${key}${at}` }) })),
    );
    await blocker.commit();
    expect((await claimed).jobs.filter(({ id }) => id !== due)).toEqual([]);
    await admin.one('select pawl.queue_resume($1)', ['paused']);
    expect((await claimer.claim(queue, worker)).jobs.length).toBeGreaterThanOrEqual(n);
  },
);
