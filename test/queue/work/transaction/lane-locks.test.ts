import { expect, onTestFinished, test } from 'vitest';
import type { ClaimAnswer } from '../../../../src/queue/store.ts';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { openScene } from '../../faults.ts';
import { SqlSession } from '../../sql-session.ts';

// A process may pause between any two messages of a lane, for any time. All other workers would wait for locks that its
// transaction then holds on other rows than its own job and key.

interface Lane {
  /** Claims in a transaction that stays open. @returns the ids of the claimed jobs, and what blocks the claim */
  claim(): Promise<{ jobs: number[]; blockedBy: string | undefined }>;
  unblock(what: string): Promise<number>;
}

const LATER = new Date(Date.now() + 3_600_000);
/** Makes delayed jobs due. */
const TIME_PASSES = `update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 second'`;

interface Stage {
  readonly lane: Lane;
  readonly other: SqlSession;
  readonly queue: number;
  readonly kinds: Readonly<Record<string, number>>;
  /** The id of a worker with hold: lease, on `other`. */
  readonly worker: number;
  readonly url: string;
}

async function open(): Promise<Stage> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const [other, own] = [await SqlSession.open(database.url), await SqlSession.open(database.url)];
  onTestFinished(async () => {
    await other.end();
    await own.end();
  });
  await other.client.query(`set lock_timeout = '2s'`);
  const { queue, kinds } = await other.register('stage', [{ name: 'a' }, { name: 'b', after: ['a'] }]);
  const worker = await other.addWorker(queue);
  const laneWorker = await other.addWorker(queue);
  const start = '64, (-32768)::smallint, 0';
  return {
    other,
    queue,
    kinds,
    worker,
    url: database.url,
    lane: {
      async claim() {
        await own.begin();
        const text = await own.one<string>(
          `select pawl.queue_claim_one(${queue}::smallint, 0::smallint, ${laneWorker}, ${start})`,
        );
        const { runs, keys, blockedBy } = JSON.parse(text) as ClaimAnswer;
        expect(keys).toEqual([]);
        return { jobs: runs.map(({ first }) => first), blockedBy };
      },
      async unblock(what) {
        await own.commit();
        return own.one(`select pawl.queue_unblock_claim(${queue}::smallint, 0::smallint, '${what}', ${start})::int`);
      },
    },
  };
}

test('a lane that has claimed while jobs were due does not keep other workers from claiming these', async () => {
  const { lane, other, queue, kinds, worker } = await open();
  const later = { kind: kinds['a'] ?? -1, runAt: LATER };
  const ids = await other.add(queue, [later, later]);
  await other.client.query(TIME_PASSES);
  expect(await lane.claim()).toEqual({ jobs: [], blockedBy: 'due' });
  expect((await other.claim(queue, worker)).jobs.map(({ id }) => id)).toEqual(ids);
  expect(await lane.unblock('due')).toBe(0);
  await other.add(queue, [later]);
  await other.client.query(TIME_PASSES);
  expect(await lane.unblock('due')).toBe(1);
});

test('a lane that has met a run does not keep other workers from taking its jobs', async () => {
  const { lane, other, queue, kinds, worker } = await open();
  const job = { kind: kinds['a'] ?? -1 };
  const ids = await other.add(queue, [job, job, job]);
  expect(await lane.claim()).toEqual({ jobs: [], blockedBy: 'run' });
  expect((await other.claim(queue, worker, { limit: 2 })).jobs.map(({ id }) => id)).toEqual(ids.slice(0, 2));
  await other.add(queue, [job, job]);
  expect(await lane.unblock('run')).toBe(0);
  expect((await other.claim(queue, worker, { limit: 1 })).jobs.map(({ id }) => id)).toEqual(ids.slice(2));
  expect(await lane.unblock('run')).toBe(2);
});

test('a lane that has skipped a busy key blocks neither the settlement of its owner nor claims of its next job', async () => {
  const { lane, other, queue, kinds, worker } = await open();
  const job = { kind: kinds['a'] ?? -1, key: 'k' };
  const [first] = await other.add(queue, [job]);
  const { jobs } = await other.claim(queue, worker);
  expect(jobs.map(({ id }) => id)).toEqual([first]);
  const [second] = await other.add(queue, [job]);
  const [plain] = await other.add(queue, [{ kind: job.kind }]);
  // Its handler may run for an hour now.
  expect(await lane.claim()).toEqual({ jobs: [plain], blockedBy: 'keys' });
  expect(await other.complete(queue, worker, jobs)).toEqual([]);
  expect((await other.claim(queue, worker)).jobs.map(({ id }) => id)).toEqual([second]);
  await other.add(queue, [job]);
  expect(await lane.unblock('keys')).toBe(1);
});

test('a lane that has met a key whose predecessor is delayed does not block the key', async () => {
  const { lane, other, queue, kinds } = await open();
  const later = { kind: kinds['a'] ?? -1, key: 'k', runAt: LATER };
  const [predecessor] = await other.add(queue, [later]);
  await other.add(queue, [{ kind: kinds['b'] ?? -1, key: 'k' }]);
  expect(await lane.claim()).toEqual({ jobs: [], blockedBy: 'keys' });
  expect(await other.one(`select pawl.queue_cancel_job('stage', $1, null)`, [predecessor])).toBe('cancelled');
  await other.add(queue, [later]);
  await lane.unblock('keys');
  expect(await other.one('select count(*)::int from pawl.queue_parked')).toBe(1);
});

test('due jobs that another open transaction has locked keep lanes neither from other jobs nor busy', async () => {
  const { lane, other, queue, kinds, worker, url } = await open();
  const a = kinds['a'] ?? -1;
  await other.add(queue, [{ kind: a, runAt: LATER }]);
  await other.client.query(TIME_PASSES);
  const [plain] = await other.add(queue, [{ kind: a }]);
  await other.begin();
  await other.client.query('select 1 from pawl.queue_delayed for update');
  expect(await lane.claim()).toEqual({ jobs: [], blockedBy: 'due' });
  expect(await lane.unblock('due')).toBe(0);
  const asked = `select pawl.queue_claim_one(${queue}::smallint, 0::smallint, ${worker}, 64, (-32768)::smallint, 0, true)`;
  const session = await SqlSession.open(url);
  onTestFinished(() => session.end());
  const answer = JSON.parse(await session.one<string>(asked)) as ClaimAnswer;
  expect(answer.runs.map(({ first }) => first)).toEqual([plain]);
  expect(JSON.parse(await session.one<string>(asked))).toMatchObject({ runs: [], blockedBy: 'due', busy: true });
  await other.commit();
});

test('hold: transaction: a process that pauses after a claim with due jobs delays no other worker', async () => {
  const scene = await openScene();
  const jobs = Array.from({ length: 6 }, (_, n) => ({
    kind: 'job' as const,
    payload: {},
    runAt: LATER,
    ...(n % 2 === 0 ? { key: `k${n}` } : {}),
  }));
  await scene.queue.enqueueMany(jobs);
  // Its first claim finds nothing; the second one, after it is woken, finds due jobs.
  await scene.child('transaction', {
    PAWL_FAULT: 'queue.after_claim:stop#2',
    CONCURRENCY: '1',
    LEASE: '60s',
    POLL: '60s',
  });
  const lanes = `select count(*)::int from pg_stat_activity where datname = current_database() and query`;
  await until('its lane is idle', async () => (await scene.one<number>(`${lanes} = 'commit;'`)) > 0);
  await scene.eye.client.query(TIME_PASSES);
  await scene.queue.enqueue('job', {});
  const open = `${lanes} like '%queue_claim_one%' and state = 'idle in transaction'`;
  await until('its transaction is open', async () => (await scene.one<number>(open)) > 0);
  await scene.worker('lease', { lease: '20s' });
  await scene.drained();
});
