import { beforeEach, expect, test } from 'vitest';
import { eventually, until } from '../../support/eventually.ts';
import { breaches } from '../invariants.ts';
import { sessionsOfFile } from '../sessions.ts';
import type { ClaimedJob, QueueRow, SqlSession } from '../sql-session.ts';

const at = sessionsOfFile(4);
let queue: QueueRow;
let worker: number;
let nth = 0;

beforeEach(async () => {
  nth += 1;
  queue = await at(0).register(`circles ${nth}`, [{ name: 'job', attempts: 1 }]);
  worker = await at(0).addWorker(queue.queue);
});

async function enqueue(more: object = {}): Promise<string> {
  const request = { queue: `circles ${nth}`, kind: 'job', afterError: 'run', ...more };
  return (await at(0).one<{ id: string }>('select pawl.enqueue($1)', [JSON.stringify(request)])).id;
}

/** From here on jobs are in another bucket, with room for more. */
function leaveBucket(): Promise<unknown> {
  return at(0).one(`select setval('pawl.queue_job_id', (nextval('pawl.queue_job_id') / 256 + 2) * 256)`);
}

/** Each by a claim of its own. */
async function claim(...ids: string[]): Promise<ClaimedJob[]> {
  const jobs: ClaimedJob[] = [];
  while (jobs.length < ids.length) jobs.push(...(await at(0).claim(queue.queue, worker, { limit: 1 })).jobs);
  expect(jobs.map(({ id }) => String(id))).toEqual(ids);
  return jobs;
}

function fails({ id, claim: of }: ClaimedJob): { fail: { claim: number; id: number; to: 'error'; error: string }[] } {
  return { fail: [{ claim: of, id, to: 'error', error: 'it fails' }] };
}

async function waits(session: SqlSession): Promise<void> {
  await until('the session waits for a lock', async () => {
    const blockers = await at(0).one<number[]>('select pg_blocking_pids($1)', [session.pid]);
    return blockers.length > 0;
  });
}

/** The jobs that may run, as soon as they are these. */
async function areReady(...ids: string[]): Promise<void> {
  await eventually(async () => {
    await at(0).one('select pawl.queue_look(1000)');
    const ready = await at(0).one<string[]>(
      'select array_agg(r.id::text order by r.id) from pawl.queue_ready r where r.queue = $1',
      [queue.queue],
    );
    expect(ready).toEqual(ids);
  });
}

// Invariants J5.
test('two settlements that end jobs of the same watches, one by way of a child, never wait for each other', async () => {
  const parent = await enqueue();
  await leaveBucket();
  const other = await enqueue();
  const child = await enqueue({ after: [parent], afterError: 'error' });
  const ofBoth = await enqueue({ after: [parent, other] });
  const ofChild = await enqueue({ after: [child, other] });
  const [first, second] = await claim(parent, other);
  if (first === undefined || second === undefined) throw new Error('two jobs were claimed');
  // The first settlement stands still between two watches that it locks, and then goes on to what waits for the child.
  await at(3).begin();
  await at(3).one('select w.id from pawl.queue_watch w where w.id = pawl.queue_watch_of(0::smallint, $1) for update', [
    child,
  ]);
  const one = at(1).settle(queue.queue, worker, fails(first));
  await waits(at(1));
  const two = at(2).settle(queue.queue, worker, { whole: [second.claim] });
  await waits(at(2));
  await at(3).commit();
  expect(await Promise.all([one, two])).toEqual([[], []]);
  expect(await at(0).one('select pawl.queue_status(0::smallint, $1)', [child])).toBe('error');
  await areReady(ofBoth, ofChild);
  expect(await breaches(at(0).client)).toEqual([]);
});

test.for(['repeatable read', 'serializable'])(
  'the last parent may be cancelled in a transaction that is %s, and older than the end of the others',
  async (isolation) => {
    const parent = await enqueue();
    const [job] = await claim(parent);
    await leaveBucket();
    const other = await enqueue();
    const child = await enqueue({ after: [parent, other], afterCancel: 'run' });
    await at(1).client.query(`begin isolation level ${isolation}`);
    await at(1).one('select count(*) from pawl.queue_job');
    await at(2).settle(queue.queue, worker, { whole: [job?.claim ?? 0] });
    await at(1).one(`select pawl.cancel(jsonb_build_object('id', $1::text))`, [other]);
    await at(1).commit();
    await areReady(child);
    expect(await at(0).one('select count(*)::int from pawl.queue_watch_part')).toBe(0);
  },
);

test('nothing is left of what was to be looked at again', async () => {
  await eventually(async () => {
    await at(0).one('select pawl.queue_look(1000)');
    expect(
      await at(0).one(`select count(*)::int from pawl.queue_watch w where w.sort = 'again' or w.check_at is not null`),
    ).toBe(0);
  });
});

// Invariants J5.
test('a child that is cancelled in a transaction that stays open keeps no parent from being settled', async () => {
  const parent = await enqueue();
  const child = await enqueue({ after: [parent] });
  const [job] = await claim(parent);
  await at(1).begin();
  await at(1).one(`select pawl.cancel(jsonb_build_object('id', $1::text))`, [child]);
  await at(2).settle(queue.queue, worker, { whole: [job?.claim ?? 0] });
  await at(1).client.query('rollback');
  await areReady(child);
});
