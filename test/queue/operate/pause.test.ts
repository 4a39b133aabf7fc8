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
    const { admin, claimer, blocker } = await threeSessions();
    const { queue, kinds } = await admin.register('paused', [{ name: 'job' }]);
    const kind = kinds['job'] ?? -1;
    const worker = await admin.addWorker(queue);
    // A claim waits for a session that brings due jobs back: here, until the queue is paused.
    const [due] = await admin.add(queue, [{ kind, runAt: new Date(Date.now() + 3_600_000) }]);
    await admin.client.query('update pawl.queue_delayed set run_at = clock_timestamp()');
    await blocker.begin();
    await blocker.one("select pg_advisory_xact_lock(hashtextextended('', $1::int * 65536))", [queue]);
    const claimed = claimer.claim(queue, worker);
    await until('the claim waits', () =>
      admin.one("select wait_event = 'advisory' from pg_stat_activity where pid = $1", [claimer.pid]),
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

test.each([
  ['jobs that run one by one', 'none'],
  ['jobs that coalesce', 'all'],
] as const)(
  'a claim that has a key while its queue is paused takes no later job of that key: %s',
  async (_, coalesce) => {
    const { admin, claimer, blocker } = await threeSessions();
    const { queue, kinds } = await admin.register('paused', [{ name: 'job', coalesce }]);
    const kind = kinds['job'] ?? -1;
    const worker = await admin.addWorker(queue);
    const before = await admin.add(queue, [{ kind, key: 'k' }]);
    // The claim has seen that the key has a job, and waits for the row of its worker.
    await blocker.begin();
    await blocker.one('select id from pawl.queue_worker where id = $1 for update', [worker]);
    const claimed = claimer.claim(queue, worker);
    await until('the claim waits', () =>
      admin.one("select wait_event_type = 'Lock' from pg_stat_activity where pid = $1", [claimer.pid]),
    );
    await admin.one('select pawl.queue_pause($1)', ['paused']);
    const after = await admin.add(queue, [{ kind, key: 'k' }]);
    await blocker.commit();
    const { jobs } = await claimed;
    expect(jobs.filter(({ id }) => after.includes(id))).toEqual([]);
    await admin.complete(queue, worker, jobs);
    await admin.one('select pawl.queue_resume($1)', ['paused']);
    const rest = [...before, ...after].filter((id) => !jobs.some((job) => job.id === id));
    expect((await claimer.claim(queue, worker)).jobs.map(({ id }) => id)).toEqual(rest);
  },
);

async function threeSessions(): Promise<Record<'admin' | 'claimer' | 'blocker', SqlSession>> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const [admin, claimer, blocker] = await Promise.all([1, 2, 3].map(() => SqlSession.open(database.url)));
  if (admin === undefined || claimer === undefined || blocker === undefined) throw new Error('no session');
  onTestFinished(async () => void (await Promise.all([admin, claimer, blocker].map((session) => session.end()))));
  return { admin, claimer, blocker };
}
