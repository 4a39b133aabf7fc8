import { beforeEach, expect, test } from 'vitest';
import { eventually } from '../../support/eventually.ts';
import { some } from '../../support/long.ts';
import { Draw } from '../../support/random.ts';
import { type Actor, interleave, interleavings } from '../interleaving.ts';
import { breaches } from '../invariants.ts';
import { sessionsOfFile } from '../sessions.ts';
import type { ClaimedJob, QueueRow, SqlSession } from '../sql-session.ts';

type Policy = 'run' | 'error' | 'cancel';

interface Child {
  readonly after: readonly number[];
  readonly afterError: Policy;
  readonly afterCancel: Policy;
  readonly key?: string;
}

const at = sessionsOfFile(3);
let queue: QueueRow;
let name = '';
let nth = 0;
let worker: number;

beforeEach(async () => {
  name = `packs ${(nth += 1)}`;
  queue = await at(0).register(name, [{ name: 'job', attempts: 1 }]);
  worker = await at(0).addWorker(queue.queue);
});

/** A flow of so many parents, each of which is claimed by itself, and of children that are a watch each. The first `before` parents are of another bucket. */
async function setStage(
  count: number,
  children: readonly Child[],
  before = 0,
): Promise<{ parents: ClaimedJob[]; ids: number[] }> {
  await at(0).one(`select setval('pawl.queue_job_id', (nextval('pawl.queue_job_id') / 256 + 2) * 256 - 1 - $1::int)`, [
    before,
  ]);
  const group = { queue: name, shard: 0, kinds: ['job'], priorities: [0], jobs: [], batches: [], n: 1 };
  const groups = [
    { ...group, n: count, after: [] },
    ...children.map(({ key, ...child }) => ({ ...group, ...child, ...(key !== undefined && { keys: [key] }) })),
  ];
  const payloads = groups.map(({ n }) => Array.from({ length: n }, (_, i) => i));
  const flow = [groups, payloads, groups.map(() => null)];
  const added = await at(0).one<string>('select array_to_json(pawl.queue_add_flow($1::json))::text', [
    JSON.stringify(flow),
  ]);
  const ids = (JSON.parse(added) as number[]).slice(count);
  const parents: ClaimedJob[] = [];
  while (parents.length < count) parents.push(...(await at(0).claim(queue.queue, worker, { limit: 1 })).jobs);
  return { parents, ids };
}

const READ = `
  select i.id::int, case when exists (select from pawl.queue_delayed d where d.run_at = pawl.queue_never() and i.id between d.id and d.id + d.n - 1)
    then 'waits' else pawl.queue_status(0::smallint, i.id) end as state from unnest($1::bigint[]) i (id) order by 1`;

async function statesOf(ids: readonly number[]): Promise<Record<number, string>> {
  const { rows } = await at(0).client.query<{ id: number; state: string }>(READ, [ids]);
  return Object.fromEntries(rows.map(({ id, state }) => [id, state]));
}

const parts = (): Promise<number[]> =>
  at(0).one(
    'select array[count(*) filter (where p.ns is not null), count(*) filter (where p.ns is null)]::int[] from pawl.queue_watch_part p',
  );

/** What becomes of a child of parents that have ended so. */
function fateOf({ afterError, afterCancel }: Child, ends: readonly string[]): string {
  const policy =
    ends.includes('error') && afterError !== 'run' ? afterError : ends.includes('cancelled') ? afterCancel : 'run';
  return policy === 'run' ? 'new' : policy === 'error' ? 'error' : 'cancelled';
}

const CHILD = { afterError: 'error', afterCancel: 'cancel' } as const;

/** Settles what is outstanding, so that nothing is left for the next test. */
async function finish(): Promise<void> {
  for (;;) {
    const { jobs } = await at(0).claim(queue.queue, worker, { limit: 1000 });
    if (jobs.length === 0) break;
    await at(0).complete(queue.queue, worker, jobs);
  }
  expect(await parts()).toEqual([0, 0]);
  expect(await breaches(at(0).client)).toEqual([]);
}

test('watches of one bucket are few rows, and their jobs are runs that are taken apart', async () => {
  const children = Array.from({ length: 100 }, (_, i) => ({ ...CHILD, after: [i, (i + 1) % 100] }));
  const { parents, ids } = await setStage(100, children);
  expect(await parts()).toEqual([4, 0]);
  const runs = (): Promise<number> =>
    at(0).one('select count(*)::int from pawl.queue_delayed d where d.queue = $1', [queue.queue]);
  expect(await runs()).toBe(4);
  const [first, second, ...others] = parents.map(({ claim }) => claim);
  await at(0).settle(queue.queue, worker, { whole: [first ?? 0, ...others.slice(1, 3)] });
  // The parents 0, 3 and 4 have ended: it is child 3 alone that waits for nothing else.
  expect(Object.entries(await statesOf(ids)).filter(([, state]) => state === 'new')).toEqual([[String(ids[3]), 'new']]);
  expect([await parts(), await runs()]).toEqual([[4, 0], 5]);
  const [left, related] = [
    await at(0).one('select pawl.queue_parents_left(0::smallint, $1)', [ids[0]]),
    await at(0).one<{ children: { id: string }[] }>('select pawl.queue_relations($1)', [parents[1]?.id]),
  ];
  expect(left).toEqual({ jobs: 1, first: String(parents[1]?.id) });
  expect(related.children.map(({ id }) => Number(id))).toEqual([ids[0], ids[1]]);
  await at(0).settle(queue.queue, worker, { whole: [second ?? 0, ...others.slice(0, 1), ...others.slice(3)] });
  expect(Object.values(await statesOf(ids))).toEqual(ids.map(() => 'new'));
  expect(
    await at(0).one('select max(r.n) > 32 and max(r.n) <= 256 from pawl.queue_ready r where r.queue = $1', [
      queue.queue,
    ]),
  ).toBe(true);
  await finish();
});

test('a queue that is removed leaves no pack', async () => {
  await setStage(3, [
    { ...CHILD, after: [0] },
    { ...CHILD, after: [1, 2] },
  ]);
  expect(await parts()).toEqual([1, 0]);
  for (const table of ['delayed', 'running', 'job']) {
    await at(0).one(`delete from pawl.queue_${table} where queue = $1`, [queue.queue]);
  }
  await at(0).one('select pawl.queue_remove_end($1::smallint, true)', [queue.queue]);
  expect(await parts()).toEqual([0, 0]);
});

// Invariants J5.
test.for([
  {
    of: 'pack',
    after: [[0], [1], [1, 2]],
    meanwhile: ['new', 'waits', 'waits'],
    decided: ['new', 'cancelled', 'cancelled'],
  },
  { of: 'watch', after: [[0, 1, 2]], meanwhile: ['waits'], decided: ['cancelled'] },
])(
  'a transaction that cancels a job and stays open keeps no settlement of its $of, and no other child',
  async (scene) => {
    const { parents, ids } = await setStage(
      3,
      scene.after.map((after): Child => ({ ...CHILD, after })),
    );
    const [first, second, third] = parents as [ClaimedJob, ClaimedJob, ClaimedJob];
    await at(0).settle(queue.queue, worker, { fail: [{ claim: second.claim, id: second.id, to: 'release' }] });
    await at(1).begin();
    await at(1).one(`select pawl.cancel(jsonb_build_object('id', $1::text))`, [second.id]);
    await at(2).client.query(`set statement_timeout = '2s'`);
    await at(2).settle(queue.queue, worker, { whole: [first.claim] });
    await at(2).settle(queue.queue, worker, { whole: [third.claim] });
    await at(2).client.query('reset statement_timeout');
    expect(Object.values(await statesOf(ids))).toEqual(scene.meanwhile);
    await at(1).commit();
    await eventually(async () => {
      await at(0).one('select pawl.queue_look(1000)');
      expect(Object.values(await statesOf(ids))).toEqual(scene.decided);
    });
    await finish();
  },
);

// Invariants J1, J5.
test.for([
  ['complete', 'complete'],
  ['error', 'complete'],
  ['error', 'cancelled'],
  ['rollback', 'error'],
])('two settlements of the parents of one pack, in every order, decide each child once: %o', async (endings) => {
  const children = [[0], [0, 1], [1], [1, 2]].map((after): Child => ({ ...CHILD, after }));
  const end = (session: SqlSession, ending: string, { id, claim }: ClaimedJob): Promise<unknown> =>
    session.settle(
      queue.queue,
      worker,
      ending === 'error' || ending === 'cancelled'
        ? { fail: [{ claim, id, to: ending, reason: ending }] }
        : { whole: [claim] },
    );
  for (const order of some(interleavings(endings.map((ending) => (ending === 'rollback' ? 4 : 3))))) {
    const { parents, ids } = await setStage(3, children);
    const actors = endings.map((ending, i): Actor => {
      const session = at(1 + i);
      const settle = (): Promise<unknown> => end(session, ending, parents[i] as ClaimedJob);
      const again = ending === 'rollback' ? [() => session.client.query('rollback'), settle] : [() => session.commit()];
      return { name: `${i} ${ending}`, session, steps: [() => session.begin(), settle, ...again] };
    });
    await interleave(at(0), actors, order);
    const ends = endings.map((ending) => (ending === 'rollback' ? 'complete' : ending));
    const expected = children.map((child, i): [number, string] => [
      ids[i] as number,
      child.after.includes(2) && fateOf(child, []) === 'new'
        ? 'waits'
        : fateOf(
            child,
            child.after.map((p) => ends[p] ?? ''),
          ),
    ]);
    await eventually(async () => {
      await at(0).one('select pawl.queue_look(1000)');
      expect(await statesOf(ids), `in the order ${order.join(' ')}`).toEqual(Object.fromEntries(expected));
    });
    await end(at(0), 'complete', parents[2] as ClaimedJob);
    const last = children[3] as Child;
    expect((await statesOf(ids))[ids[3] as number]).toBe(fateOf(last, [ends[1] ?? '', 'complete']));
    await finish();
  }
});

// Invariants J1.
test('packs that end bit by bit, with failures and hands between, decide as a model says', async () => {
  for (const seed of some(Array.from({ length: 12 }, (_, i) => i))) {
    const draw = new Draw(seed, 'packs');
    const policy = (): Policy => draw.pick('run', 'run', 'error', 'cancel');
    const count = draw.int(2, 24);
    const children = Array.from({ length: draw.int(3, 70) }, (_, i): Child => {
      const after = Array.from({ length: draw.int(1, 4) }, () => draw.int(0, count - 1));
      const key = draw.chance(0.1) ? { key: `key ${i}` } : {};
      return { after: [...new Set(after)], afterError: policy(), afterCancel: policy(), ...key };
    });
    // Of every other stage some children wait for jobs of two buckets, and are in no pack.
    const before = seed % 2 === 0 ? 0 : draw.int(1, count - 1);
    const { parents, ids } = await setStage(count, children, before);
    expect((await parts()).map((rows) => rows > 0)).toEqual([true, before > 0]);
    const fails = draw.chance(0.6);
    const ends: string[] = [];
    const cancelled = new Set<number>();
    const model = (): Record<number, string> =>
      Object.fromEntries(
        children.map((child, i): [number, string] => {
          const waits = child.after.some((parent) => ends[parent] === undefined);
          const state = waits
            ? 'waits'
            : fateOf(
                child,
                child.after.map((parent) => ends[parent] ?? ''),
              );
          return [ids[i] as number, cancelled.has(i) ? 'cancelled' : state];
        }),
      );
    while (ends.filter(Boolean).length < count) {
      const some = parents.map((_, i) => i).filter((i) => ends[i] === undefined && draw.chance(0.3));
      for (const i of some) ends[i] = fails && draw.chance(0.2) ? draw.pick('error', 'cancelled') : 'complete';
      const jobs = some.map((i) => ({ ...(parents[i] as ClaimedJob), to: ends[i] as string }));
      const fail = jobs.flatMap(({ claim, id, to }) =>
        to === 'error' || to === 'cancelled' ? [{ claim, id, to, reason: to } as const] : [],
      );
      const whole = jobs.flatMap(({ claim, to }) => (to === 'complete' ? [claim] : []));
      await at(0).settle(queue.queue, worker, { whole, ...(fail.length > 0 && { fail }) });
      expect(await statesOf(ids), `seed ${seed}`).toEqual(model());
      const waiting = children.map((_, i) => i).filter((i) => model()[ids[i] as number] === 'waits');
      const target = waiting[draw.int(0, Math.max(0, waiting.length - 1))];
      const call = (fn: string, i: number): Promise<unknown> =>
        at(0).one(`select pawl.${fn}(jsonb_build_object('id', $1::text))`, [ids[i]]);
      if (target !== undefined && draw.chance(0.5)) {
        const hand = draw.pick('cancel', 'cancel and retry', 'queue_isolate');
        await call(hand === 'queue_isolate' ? hand : 'cancel', target);
        if (hand === 'cancel') cancelled.add(target);
        if (hand === 'cancel and retry') await call('retry', target);
        await at(0).one('select pawl.queue_look(1000)');
        expect(await statesOf(ids), `seed ${seed}, ${hand}`).toEqual(model());
      }
    }
    await finish();
  }
});
