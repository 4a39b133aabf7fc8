import { expect, onTestFinished, test, vi } from 'vitest';
import type { ClaimAnswer } from '../../../src/queue/store.ts';
import { Scan } from '../../../src/queue/work/scan.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { SqlSession } from '../sql-session.ts';

test('what has just become due waits for the next pass behind its start, and never longer, nor where jobs have keys', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());
  const { queue, kinds } = await session.register('passes', [{ name: 'k' }]);
  const kind = kinds['k'] ?? 0;
  const worker = await session.addWorker(queue);
  const [late = 0] = await session.add(queue, [{ kind, runAt: new Date(Date.now() + 3_600_000) }]);
  const first = await session.add(
    queue,
    Array.from({ length: 10 }, () => ({ kind })),
  );
  const second = await session.add(
    queue,
    Array.from({ length: 10 }, () => ({ kind })),
  );
  const behind = [0, first[9] ?? 0] as const;

  /** Whether the job that has been due for this time is ready after a claim of one job from there; nothing of it stays. */
  const isBrought = async (dueMs: number, after?: readonly [number, number]): Promise<boolean> => {
    await session.begin();
    await session.client.query(
      `update pawl.queue_delayed set run_at = clock_timestamp() - $1::float8 * interval '1 ms' where id = $2`,
      [dueMs, late],
    );
    await session.claim(queue, worker, { limit: 1, ...(after && { after }) });
    const isReady = await session.one<number>('select count(*)::int from pawl.queue_delayed where id = $1', [late]);
    await session.client.query('rollback');
    return isReady === 0;
  };

  expect(await isBrought(0)).toBe(true);
  expect(await isBrought(60_000, behind)).toBe(true);
  // One row without a key is all that is left: the end of a pass.
  expect(await isBrought(0, behind)).toBe(true);
  await session.client.query('update pawl.queue_ready set n = 5 where id = $1', [second[0]]);
  await session.client.query(
    'insert into pawl.queue_ready (id, shard, queue, priority, kind, n) values ($1, 0, $2, 0, $3, 5)',
    [second[5], queue, kind],
  );
  await until('a claim comes soon enough to leave it', async () => !(await isBrought(0, behind)));

  await session.add(queue, [{ kind, key: 'a' }]);
  expect(await isBrought(0, behind)).toBe(true);
  await session.client.query('delete from pawl.queue_ready where id = $1', [second[5]]);
  expect(await isBrought(0, behind)).toBe(true);
});

test('a pass reads as many rows at its start as the one before had to read there, and fewer behind it', () => {
  vi.spyOn(performance, 'now').mockReturnValue(0);
  onTestFinished(() => void vi.restoreAllMocks());
  const LIMIT = 1000;
  const scan = new Scan(0);
  /** The rows that the polls of a pass read: the first rows of it have one job each, and those behind them have 500. */
  const pass = (singles: number): number[] => {
    const polled: number[] = [];
    let at = 0;
    for (let filled = 0; filled < 2; ) {
      const ns: number[] = [];
      let jobs = 0;
      for (; ns.length < scan.rows && jobs < LIMIT; at += 1) {
        const n = Math.min(at < singles ? 1 : 500, LIMIT - jobs);
        ns.push(n);
        jobs += n;
      }
      polled.push(scan.rows);
      if (jobs === LIMIT) filled += 1;
      scan.read(answer(ns, scan.rows, at), LIMIT);
    }
    scan.read(answer([], 0, at), LIMIT);
    return polled;
  };
  expect(pass(0)).toEqual([64, 64]);
  expect(pass(0)).toEqual([16, 16]);
  expect(pass(100)).toEqual([16, 32, 64, 16]);
  expect(pass(100)).toEqual([128, 16]);
  expect(pass(0)).toEqual([128, 16]);
  expect(pass(0)).toEqual([16, 16]);
});

function answer(ns: readonly number[], seen: number, at: number): ClaimAnswer {
  const runs = ns.map((n) => ({ claim: 1, first: 1, n, kind: 1, attempt: 1, origin: 0, payloads: [] }));
  return { runs, keys: [], processes: {}, seen, last: { priority: 0, id: at + 1 } };
}
