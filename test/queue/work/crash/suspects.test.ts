import { expect, onTestFinished, test } from 'vitest';
import type { ClaimAnswer } from '../../../../src/queue/store.ts';
import { freshDatabase } from '../../../support/database.ts';
import { type NewJob, SqlSession } from '../../sql-session.ts';

// hold: 'transaction'. When a search finds the dead worker of a job that kills its process late, the next worker has the job
// already, and the job cannot be charged. So the rescue has to charge it before a lane takes it once more.

const CLAIM = `64, (-32768)::smallint, 0`;

/** The answer of queue_claim_one: a job without a key, a job of a key that was tried before, or another job of a key. */
interface Scene {
  readonly dead: number;
  readonly job: number;
  readonly other: SqlSession;
  readonly rescue: () => Promise<number>;
  /** Claims in a transaction that stays open. @returns the jobs, as [id, attempt] */
  readonly claim: (lane: SqlSession) => Promise<number[][]>;
  readonly peek: () => Promise<number>;
  readonly lane: () => Promise<SqlSession>;
  readonly attemptsOf: (job: number) => Promise<number>;
}

/** A scene with a worker that died while it ran the first of these jobs. */
async function open(jobs: readonly Omit<NewJob, 'kind'>[]): Promise<Scene> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const session = async (): Promise<SqlSession> => {
    const opened = await SqlSession.open(database.url);
    onTestFinished(() => opened.end());
    return opened;
  };
  const other = await session();
  const { queue, kinds } = await other.register('scene', [{ name: 'a' }]);
  const ids = await other.add(
    queue,
    jobs.map((job) => ({ ...job, kind: kinds['a'] ?? -1 })),
  );
  const job = ids[0] ?? -1;
  const worker = await other.addWorker(queue);
  const dead = await other.addWorker(queue, -1000);
  await other.client.query(`update pawl.queue_worker set hold = 'transaction', holding = $2 where id = $1`, [
    dead,
    [job],
  ]);
  return {
    dead,
    job,
    other,
    rescue: () => other.one(`select jobs from pawl.queue_rescue(${queue}::smallint)`),
    async claim(lane) {
      await lane.begin();
      const answer = JSON.parse(
        await lane.one<string>(`select pawl.queue_claim_one(${queue}::smallint, 0::smallint, ${worker}, ${CLAIM})`),
      ) as ClaimAnswer;
      const ofKeys = answer.keys.map(({ ids, attempts }) => [ids[0] ?? -1, attempts[0] ?? -1]);
      const first = answer.chains?.ids.map((id) => [id, 1]) ?? [];
      return [...answer.runs.map((run) => [run.first, run.attempt]), ...ofKeys, ...first];
    },
    async peek() {
      const text = await other.one<string | null>(
        `select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, ${worker}, ${CLAIM})`,
      );
      return (JSON.parse(text ?? '[]') as unknown[]).length;
    },
    lane: session,
    attemptsOf: (id) => other.one('select attempt::int from pawl.queue_ready where id = $1', [id]),
  };
}

test('a job that killed its worker is charged before it runs again, though another worker has it when the death is found', async () => {
  const { rescue, claim, lane, job, attemptsOf, peek } = await open([{ key: null }]);
  const [second, third] = [await lane(), await lane()];
  expect(await claim(second)).toEqual([[job, 1]]);
  expect(await rescue()).toBe(0);
  await second.client.query('rollback');
  // The job is free, and no rescue has run since.
  expect(await claim(third)).toEqual([]);
  expect(await peek()).toBe(0);
  await third.client.query('rollback');
  expect(await rescue()).toBe(1);
  expect(await attemptsOf(job)).toBe(1);
  expect(await claim(third)).toEqual([[job, 2]]);
});

test('a job of a key that killed its worker is charged before it runs again, and other jobs run meanwhile', async () => {
  const { rescue, claim, lane, job, attemptsOf, peek, other } = await open([{ key: 'k' }, { key: null }]);
  const [second, third] = [await lane(), await lane()];
  expect(await claim(second)).toEqual([[job, 1]]);
  expect(await rescue()).toBe(0);
  await second.client.query('rollback');
  const [[next] = []] = await claim(third);
  expect(next).toBeGreaterThan(job);
  await third.commit();
  expect(await peek()).toBeLessThan(2);
  expect(await rescue()).toBe(1);
  expect(await attemptsOf(job)).toBe(1);
  expect(await other.one('select suspects from pawl.queue_definition')).toEqual([]);
  expect(await claim(third)).toEqual([[job, 2]]);
});

test('a job that its next worker completes is not charged, and is no longer a suspect', async () => {
  const { rescue, claim, lane, job, other, dead } = await open([{ key: null }]);
  const second = await lane();
  expect(await claim(second)).toEqual([[job, 1]]);
  expect(await rescue()).toBe(0);
  expect(await other.one('select suspects::int[] from pawl.queue_definition')).toEqual([job]);
  await second.commit();
  expect(await rescue()).toBe(0);
  expect(await other.one('select suspects from pawl.queue_definition')).toEqual([]);
  expect(await other.one('select count(*)::int from pawl.queue_worker where id = $1', [dead])).toBe(0);
});
