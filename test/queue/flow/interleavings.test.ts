import { beforeAll, expect, test } from 'vitest';
import { plantSql } from '../../faults/plants/plant.ts';
import { some } from '../../support/long.ts';
import { type Actor, interleave, interleavings } from '../interleaving.ts';
import { breaches } from '../invariants.ts';
import { sessionsOfFile } from '../sessions.ts';
import type { ClaimedJob, QueueRow, SqlSession } from '../sql-session.ts';

const at = sessionsOfFile(4);
let queue: QueueRow;
let workers: [number, number];
let schema: number;

beforeAll(async () => {
  queue = await at(0).register('members', [{ name: 'job', attempts: 1 }, { name: 'called' }]);
  workers = [await at(0).addWorker(queue.queue), await at(0).addWorker(queue.queue)];
  schema = Number(await at(0).one(`select 'pawl'::regnamespace::oid::bigint`));
});

/** How a member ends: its first transaction may be rolled back, as when its process is killed before the commit. */
interface Ending {
  readonly fails: boolean;
  readonly rollsBack: boolean;
}

interface Scene {
  readonly endings: readonly [Ending, Ending];
  /** Whether the members are of parts of their own. */
  readonly apart: boolean;
  /** Whether the batch is sealed before, or by a third session meanwhile. */
  readonly sealed: boolean;
}

const COMPLETES: Ending = { fails: false, rollsBack: false };
const FAILS: Ending = { fails: true, rollsBack: false };
const KILLED: Ending = { fails: false, rollsBack: true };

/** A batch of two claimed jobs, and a job that comes after both. */
async function setStage({ apart, sealed }: Scene): Promise<{ batch: number; child: number; jobs: ClaimedJob[] }> {
  const session = at(0);
  const callbacks = { onDone: { queue: 'members', kind: 'called', payload: null } };
  const batch = Number(
    await session.one('select pawl.queue_batch_new($1)', [JSON.stringify({ queue: 'members', callbacks })]),
  );
  const ids: number[] = [];
  for (const nth of [1, 2]) {
    const head = { queue: schema * 65_536 + queue.queue, shard: 0, n: 1, kinds: [queue.kinds['job']], priorities: [0] };
    const added = await session.one<string>('select array_to_json(pawl.queue_batch_add($1))::text', [
      JSON.stringify([batch, [head, [nth]]]),
    ]);
    ids.push(...(JSON.parse(added) as number[]));
    if (apart) await session.one(`select count(nextval('pawl.queue_job_id')) from generate_series(1, 300)`);
  }
  const child = await session.one<{ id: string }>('select pawl.enqueue($1)', [
    JSON.stringify({ queue: 'members', kind: 'job', after: ids.map(String), afterError: 'run' }),
  ]);
  if (sealed) await session.one('select pawl.queue_batch_seal($1)', [batch]);
  const jobs: ClaimedJob[] = [];
  for (const worker of workers) jobs.push(...(await session.claim(queue.queue, worker, { limit: 1 })).jobs);
  expect(jobs.map(({ id }) => id)).toEqual(ids);
  return { batch, child: Number(child.id), jobs };
}

function end(session: SqlSession, worker: number, { id, claim }: ClaimedJob, { fails }: Ending): Promise<unknown> {
  const fail = [{ claim, id, to: 'error' as const, reason: 'error', error: 'it fails' }];
  return session.settle(queue.queue, worker, fails ? { fail } : { whole: [claim] });
}

/** What became of a batch, and of the job that comes after its members. */
async function outcomeOf(batch: number, child: number): Promise<object | undefined> {
  const [row] = (
    await at(0).client.query<object>(
      `select (select count(*)::int from pawl.queue_job j where j.kind = $1 and j.options -> 'meta' -> 'batch' ->> 'id' = $2) as callbacks,
        (select count(*)::int from pawl.queue_ready r where r.id = $3) as ready,
        (select w.errors::int from pawl.queue_watch w where w.id = $2::bigint and w.over_at is not null) as errors,
        (select count(*)::int from pawl.queue_watch_part) as parts`,
      [queue.kinds['called'], String(batch), child],
    )
  ).rows;
  return row;
}

async function play(scene: Scene, order: readonly number[]): Promise<void> {
  const { batch, child, jobs } = await setStage(scene);
  const ender = (nth: 0 | 1): Actor => {
    const session = at(1 + nth);
    const job = jobs[nth];
    if (job === undefined) throw new Error('there are two jobs');
    const settle = (): Promise<unknown> => end(session, workers[nth], job, scene.endings[nth]);
    const steps = [() => session.begin(), settle];
    if (!scene.endings[nth].rollsBack)
      return { name: `end ${nth}`, session, steps: [...steps, () => session.commit()] };
    return { name: `end ${nth} again`, session, steps: [...steps, () => session.client.query('rollback'), settle] };
  };
  const seal: Actor = {
    name: 'seal',
    session: at(3),
    steps: [() => at(3).one('select pawl.queue_batch_seal($1)', [batch])],
  };
  await interleave(at(0), [ender(0), ender(1), ...(scene.sealed ? [] : [seal])], order);
  const row = await outcomeOf(batch, child);
  const errors = scene.endings.filter(({ fails }) => fails).length;
  expect(row, `${JSON.stringify(scene)} in the order ${order.join(' ')}`).toEqual({
    callbacks: 1,
    ready: 1,
    errors,
    parts: 0,
  });
  // The stage is empty for the next scene.
  const left = await at(0).claim(queue.queue, workers[0]);
  await at(0).complete(queue.queue, workers[0], left.jobs);
}

const counts = ({ endings, sealed }: Scene): number[] => [
  ...endings.map(({ rollsBack }) => (rollsBack ? 4 : 3)),
  ...(sealed ? [] : [1]),
];

test.for([
  { endings: [COMPLETES, COMPLETES], apart: false, sealed: true },
  { endings: [COMPLETES, FAILS], apart: true, sealed: true },
  { endings: [KILLED, FAILS], apart: false, sealed: true },
  { endings: [COMPLETES, COMPLETES], apart: true, sealed: false },
] as const satisfies readonly Scene[])(
  'J1, J2: two last members that end at once, in every order, make one callback and free one job: %o',
  async (scene) => {
    for (const order of some(interleavings(counts(scene)))) await play(scene, order);
    expect(await breaches(at(0).client)).toEqual([]);
  },
);

const TWO: Scene = { endings: [COMPLETES, COMPLETES], apart: true, sealed: true };

test.for([
  {
    name: 'a batch is not locked',
    fn: 'queue_batches_over',
    from: 'w.over_at is null for update',
    to: 'w.over_at is null',
    scene: TWO,
  },
  {
    name: 'parts are not locked',
    fn: 'queue_ended_step',
    from: 'for update of w',
    to: '',
    scene: { ...TWO, apart: false },
  },
])('it is found when $name', async ({ fn, from, to, scene }) => {
  const right = await at(0).one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [fn]);
  await plantSql(at(0).client, fn, (source) => source.replace(from, to));
  const playAll = async (): Promise<void> => {
    for (const order of interleavings(counts(scene))) await play(scene, order);
  };
  try {
    await expect(playAll()).rejects.toThrow(/in the order/);
  } finally {
    await at(0).client.query(right);
    await at(0).client.query(
      'truncate pawl.queue_watch, pawl.queue_watch_part, pawl.queue_batch_part, pawl.queue_child, pawl.queue_delayed, pawl.queue_ready, pawl.queue_running, pawl.queue_job, pawl.queue_receipt, pawl.queue_dead',
    );
  }
});

// Invariants J3.
test('members whose worker was lost in their last attempt count as ended in error', async () => {
  const { batch, child } = await setStage({ endings: [FAILS, FAILS], apart: true, sealed: true });
  for (const worker of workers) await at(0).expire(worker);
  expect(await at(0).rescue(queue.queue)).toBe(2);
  expect(await outcomeOf(batch, child)).toEqual({ callbacks: 1, ready: 1, errors: 2, parts: 0 });
  expect(await breaches(at(0).client)).toEqual([]);
});
