import { beforeAll, expect, test } from 'vitest';
import { plantSql } from '../../faults/plants/plant.ts';
import { eventually } from '../../support/eventually.ts';
import { some } from '../../support/long.ts';
import { interleave, interleavings, makePatient } from '../interleaving.ts';
import { breaches } from '../invariants.ts';
import { sessionsOfFile } from '../sessions.ts';
import type { ClaimedJob, QueueRow, SqlSession } from '../sql-session.ts';

const CHILDREN = 5;

const at = sessionsOfFile(3);
let queue: QueueRow;
let worker: number;

beforeAll(async () => {
  await makePatient(at(0).client);
  queue = await at(0).register('children', [{ name: 'job', attempts: 1 }]);
  worker = await at(0).addWorker(queue.queue);
});

/** A claimed parent, and children in one run that come after it: by one watch, or by one for each, in a pack. */
async function setStage(afterError: string, packed: boolean): Promise<{ parent: ClaimedJob; children: number[] }> {
  const group = {
    queue: 'children',
    shard: 0,
    kinds: ['job'],
    priorities: [0],
    jobs: [],
    batches: [],
    afterCancel: 'run',
  };
  const each = Array.from({ length: CHILDREN }, (_, nth) => nth + 1);
  const payloads = packed ? each.map((nth) => [nth]) : [each];
  const flow = [
    [{ n: 1, after: [] }, ...payloads.map(({ length: n }) => ({ n, after: [0] }))].map((one) => ({
      ...group,
      ...one,
      afterError,
    })),
    [[0], ...payloads],
    [null, ...payloads.map(() => null)],
  ];
  const added = await at(0).one<string>('select array_to_json(pawl.queue_add_flow($1::json))::text', [
    JSON.stringify(flow),
  ]);
  const [id, ...children] = JSON.parse(added) as number[];
  const { jobs } = await at(0).claim(queue.queue, worker, { limit: 1 });
  const [parent] = jobs;
  if (parent?.id !== id || parent === undefined) throw new Error('the parent is to be claimed first');
  return { parent, children };
}

/** What a hand does to the middle one of the children. */
const HANDS: Record<string, (session: SqlSession, id: number) => Promise<unknown>> = {
  'changes its payload': (session, id) =>
    session.one(`select pawl.update(jsonb_build_object('id', $1::text, 'payload', 9))`, [id]),
  'cancels it': (session, id) => session.one(`select pawl.cancel(jsonb_build_object('id', $1::text))`, [id]),
  'takes it out of its run': (session, id) =>
    session.one(`select pawl.queue_isolate(jsonb_build_object('id', $1::text))`, [id]),
  'cancels it, and retries it': async (session, id) => {
    await session.one(`select pawl.cancel(jsonb_build_object('id', $1::text))`, [id]);
    await session.one(`select pawl.retry(jsonb_build_object('id', $1::text))`, [id]);
  },
};

interface Scene {
  readonly hand: string;
  readonly end: 'commit' | 'rollback';
  readonly fails: boolean;
  readonly packed: boolean;
}

async function play({ hand, end, fails, packed }: Scene, order: readonly number[], patienceMs?: number): Promise<void> {
  const { parent, children } = await setStage(fails ? 'error' : 'run', packed);
  const change = HANDS[hand];
  const target = children[2];
  if (change === undefined || target === undefined) throw new Error(`nothing is done by "${hand}"`);
  const fail = [{ claim: parent.claim, id: parent.id, to: 'error' as const, reason: 'error', error: 'it fails' }];
  await interleave(
    at(0),
    [
      {
        name: 'hand',
        session: at(1),
        steps: [
          () => at(1).begin(),
          // The parents may have ended it meanwhile: then it is refused.
          () => change(at(1), target).catch((error: { code?: string }) => expect(error.code).toBe('PW003')),
          () => at(1).client.query(end),
        ],
      },
      {
        name: 'settle',
        session: at(2),
        steps: [
          () => at(2).begin(),
          () => at(2).settle(queue.queue, worker, fails ? { fail } : { whole: [parent.claim] }),
          () => at(2).commit(),
        ],
      },
    ],
    order,
  );
  const cancelled = hand === 'cancels it' && end === 'commit' ? [target] : [];
  const allHaveLeft = async (): Promise<void> => {
    await at(0).one('select pawl.queue_look(1000)');
    const { rows } = await at(0).client.query<{ id: number; status: string }>(
      `select i.id::int, pawl.queue_status(0::smallint, i.id) as status from unnest($1::bigint[]) i (id)
       where not exists (select from pawl.queue_delayed d where i.id between d.id and d.id + d.n - 1) order by 1`,
      [children],
    );
    expect(
      rows.map(({ id }) => id),
      `${hand}, ${end}, in the order ${order.join(' ')}: all children have left`,
    ).toEqual(children);
    for (const { id, status } of rows) {
      if (!cancelled.includes(id) || status !== 'cancelled') expect(status).toBe(fails ? 'error' : 'new');
    }
  };
  await eventually(allHaveLeft, patienceMs);
  const left = await at(0).claim(queue.queue, worker, { limit: 100 });
  await at(0).complete(queue.queue, worker, left.jobs);
}

test.for(
  Object.keys(HANDS).flatMap((hand) =>
    (['commit', 'rollback'] as const).flatMap((end) =>
      [true, false].flatMap((fails) =>
        (end === 'commit' ? [true, false] : [false]).map((packed): Scene => ({ hand, end, fails, packed })),
      ),
    ),
  ),
)('J1, J5: no child is forgotten whose run a hand changes while its last parent ends: %o', async (scene) => {
  for (const order of some(interleavings([3, 3]))) await play(scene, order);
  expect(await breaches(at(0).client)).toEqual([]);
});

test('a planted settlement that never comes back is found', async () => {
  const passed = '(select count(*) from gone) < (select count(*) from mine)';
  await plantSql(at(0).client, 'queue_take_children', (source) => source.replace(passed, 'false'));
  for (const [fails, packed] of [
    [false, false],
    [false, true],
    [true, false],
  ] as const) {
    const scene = { hand: 'changes its payload', end: 'commit', fails, packed } as const;
    await expect(play(scene, [0, 0, 1, 1, 1, 0], 2000)).rejects.toThrow(/all children have left/);
  }
});
