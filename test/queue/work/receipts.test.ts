import { expect, onTestFinished, test } from 'vitest';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { OPEN_DOOR } from '../../support/servers/open-door.ts';

/** The number of receipts of batches and of single jobs. */
const RECEIPTS = statement(
  'receipts.count',
  'select (select count(*)::int from pawl.queue_receipt) as batches, (select count(*)::int from pawl.queue_receipt_one) as ones',
);
const EXPIRE = statement('receipts.expire', `update pawl.queue_definition set history = interval '0'`);
const PRUNE = statement('receipts.prune', 'select pawl.queue_prune(id, 10000) as jobs from pawl.queue_definition');

interface Body {
  readonly items: Record<string, unknown>[];
  readonly points: Record<string, unknown>[];
}

test.each(['lease', 'transaction'] as const)(
  'complete jobs are found, listed, counted and pruned in the same way (hold: %s)',
  async (hold) => {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const engine = postgres(database.url, { max: 10 });
    onTestFinished(() => engine.stop());
    const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
    const sent = (await queue.enqueueMany(Array.from({ length: 50 }, (_, n) => ({ kind: 'send', payload: n })))).map(
      String,
    );
    const told = new Map<string, string>();
    const worker = queue.work(
      { send: (unit) => void told.set(unit.job.id, unit.processId) },
      { hold, concurrency: 2, poll: '20ms' },
    );
    await queue.drain();
    await worker.stop();
    const [{ batches, ones } = { batches: 0, ones: 0 }] = await engine.query<{ batches: number; ones: number }>(
      RECEIPTS,
    );
    // Makes sure that the test covers both kinds of receipts.
    expect(hold === 'lease' ? [batches > 0, ones] : [batches, ones > 40]).toEqual(
      hold === 'lease' ? [true, 0] : [0, true],
    );

    await queue.enqueueMany(Array.from({ length: 5000 }, () => ({ kind: 'send', payload: null })));
    const newest = sent.toReversed();
    expect((await queue.search('status:complete', { limit: 100 })).jobs.map(({ id }) => id)).toEqual(newest);
    for (const id of [newest[0] ?? '', newest[30] ?? '']) {
      const job = await queue.get(id);
      expect(job).toMatchObject({ status: 'complete', attempt: 1, processId: told.get(id) });
      const history = await queue.history(id);
      expect(history.map(({ reason, to }) => `${reason}: ${to}`)).toEqual([
        'enqueue: new',
        'claim: in-progress',
        'complete: complete',
      ]);
      expect(history.slice(1).map(({ at }) => at)).toEqual([job.claimedAt, job.settledAt]);
      expect(history.slice(1).map(({ processId }) => processId)).toEqual([told.get(id), told.get(id)]);
    }
    expect((await queue.stats()).completePerMinute).toBe(50);

    const http = createHttp(engine, { auth: OPEN_DOOR });
    onTestFinished(() => http.stop());
    const ask = async (path: string): Promise<Body> =>
      (
        await http(new Request(`http://localhost/api/v1${path}`), { remoteAddress: '127.0.0.1' })
      ).json() as Promise<Body>;
    const { items } = await ask('/history?limit=100&part=job');
    const complete = items.filter(({ event }) => event === 'complete');
    expect(complete.length).toBe(batches + ones);
    const one = await ask(`/history?part=job&q=${newest[0]}`);
    expect(one.items).toContainEqual(expect.objectContaining({ event: 'complete', subject: 'mail' }));
    const { points } = await ask('/queues/mail/series');
    expect(points.reduce((sum, { complete: n }) => sum + Number(n), 0)).toBe(50);

    await engine.query(EXPIRE);
    expect(await engine.query(PRUNE)).toEqual([{ jobs: 50 }]);
    expect(await engine.query(RECEIPTS)).toEqual([{ batches: 0, ones: 0 }]);
    expect((await queue.search('status:complete')).jobs).toEqual([]);
    expect((await queue.stats()).new).toBe(5000);
  },
);
