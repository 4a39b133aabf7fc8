import { beforeAll, expect, test } from 'vitest';
import { type Actor, interleave, interleavings, makePatient } from '../interleaving.ts';
import { breaches } from '../invariants.ts';
import { sessionsOfFile } from '../sessions.ts';
import type { QueueRow, SqlSession } from '../sql-session.ts';

const at = sessionsOfFile(4);
let queue: QueueRow;
let worker: number;

beforeAll(async () => {
  await makePatient(at(0).client);
  const rule = { by: 'key', while: 'waiting', replace: true };
  queue = await at(0).register('orders', [{ name: 'newest', rule }, { name: 'plain' }]);
  worker = await at(0).addWorker(queue.queue);
});

async function enqueue(session: SqlSession, kind: string, payload: string): Promise<string> {
  const request = JSON.stringify({ queue: 'orders', kind, payload, key: 'k' });
  return (await session.one<{ id: string }>('select pawl.enqueue($1)', [request])).id;
}

/** Claims what there is and completes it. @returns the payloads */
async function work(session: SqlSession): Promise<string[]> {
  const { jobs } = await session.claim(queue.queue, worker);
  const ids = jobs.map(({ id }) => id);
  const { rows } = await session.client.query<{ payload: string }>(
    'select j.payload #>> array[]::text[] as payload from pawl.queue_job j where j.id = any ($1) order by j.id',
    [ids],
  );
  await session.complete(queue.queue, worker, jobs);
  return rows.map(({ payload }) => payload);
}

async function rest(): Promise<string[]> {
  const ran: string[] = [];
  for (let more = await work(at(0)); more.length > 0; more = await work(at(0))) ran.push(...more);
  return ran;
}

/** A transaction of a user, of one statement. */
function inTransaction(session: SqlSession, what: () => Promise<unknown>, isCommitted: boolean): Actor['steps'] {
  return [() => session.begin(), what, () => session.client.query(isCommitted ? 'commit' : 'rollback')];
}

test.for([true, false])(
  'J20: whatever a worker does meanwhile, the newest payload is run last, and never two wait; the first transaction is committed: %s',
  async (isCommitted) => {
    for (const order of interleavings([3, 1, 1])) {
      await enqueue(at(0), 'newest', 'v1');
      const written: string[] = [];
      const ran: string[] = [];
      const replace = async (session: SqlSession, payload: string): Promise<void> => {
        await enqueue(session, 'newest', payload);
        written.push(payload);
      };
      await interleave(
        at(0),
        [
          { name: 'first', session: at(1), steps: inTransaction(at(1), () => replace(at(1), 'v2'), isCommitted) },
          { name: 'second', session: at(2), steps: [() => replace(at(2), 'v3')] },
          { name: 'worker', session: at(3), steps: [async () => void ran.push(...(await work(at(3))))] },
        ],
        order,
      );
      const [waiting] = await at(0).one<number[]>(
        `select array[count(*)::int] from pawl.queue_job j where j.queue = $1 and pawl.queue_status(j.shard, j.id) = 'new'`,
        [queue.queue],
      );
      ran.push(...(await rest()));
      const kept = isCommitted ? written : ['v3'];
      const about = `in the order ${order.join(' ')}: ${ran.join(' ')}`;
      expect(ran.at(-1), about).toBe(kept.at(-1));
      expect(waiting, about).toBeLessThanOrEqual(1);
      expect(ran.includes('v2') && !isCommitted, about).toBe(false);
      expect(new Set(ran).size, about).toBe(ran.length);
    }
    expect(await breaches(at(0).client)).toEqual([]);
  },
);

test.for([true, false])(
  'J21: a job that is completed by hand while a worker claims is run or complete, and what comes after it runs; it is committed: %s',
  async (isCommitted) => {
    for (const order of interleavings([3, 1])) {
      const id = await enqueue(at(0), 'plain', 'job');
      const child = JSON.stringify({ queue: 'orders', kind: 'plain', payload: 'child', after: [id] });
      await at(0).one('select pawl.enqueue($1)', [child]);
      const ran: string[] = [];
      let isFinished = false;
      const finish = async (): Promise<void> => {
        await at(1).client.query('savepoint s');
        // A worker was first: the job is complete.
        isFinished = await at(1)
          .one(`select pawl.finish(jsonb_build_object('id', $1::text))`, [id])
          .then(
            () => true,
            () =>
              at(1)
                .client.query('rollback to s')
                .then(() => false),
          );
      };
      await interleave(
        at(0),
        [
          { name: 'hand', session: at(1), steps: inTransaction(at(1), finish, isCommitted) },
          { name: 'worker', session: at(2), steps: [async () => void ran.push(...(await work(at(2))))] },
        ],
        order,
      );
      // As each worker does after such a commit, by its notification.
      await at(0).one('select pawl.queue_look(1000)');
      ran.push(...(await rest()));
      const runs = isFinished && isCommitted ? ['child'] : ['job', 'child'];
      expect(ran, `in the order ${order.join(' ')}`).toEqual(runs);
      expect(await at(0).one('select pawl.queue_status(0::smallint, $1)', [id])).toBe('complete');
    }
    expect(await breaches(at(0).client)).toEqual([]);
  },
);
