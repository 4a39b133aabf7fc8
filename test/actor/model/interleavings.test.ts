import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { interleave, interleavings, type Actor as Lane } from '../../queue/interleaving.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { LONG, MODELS } from '../../support/long.ts';
import { type Ending, type Row, Stage } from './stage.ts';

interface Scene {
  readonly ending: Ending;
  readonly raisedBefore: boolean;
  readonly rollsBack: boolean;
  /** The actor hibernates when it begins, instead of being due. */
  readonly hibernates: boolean;
}

/** Claims what is due, in an open transaction. */
function looker(stage: Stage, worker: number, claimed: (rows: Row[]) => void): Lane {
  return {
    name: `worker ${worker}`,
    session: stage.at(worker),
    steps: [
      async () => {
        await stage.at(worker).begin();
        claimed(await stage.claim(worker));
      },
      () => stage.at(worker).commit(),
    ],
  };
}

async function play(stage: Stage, scene: Scene, order: readonly number[]): Promise<void> {
  await stage.clear();
  const id = await stage.create();
  if (scene.hibernates) {
    for (const row of await stage.claim(1)) await stage.end(1, row, 'hibernate');
  }
  if (scene.raisedBefore) await stage.incr(3, id);
  let mine: Row[] = [];
  let others: Row[] = [];
  const lanes: Lane[] = [
    {
      name: 'owner',
      session: stage.at(1),
      steps: [
        async () => {
          await stage.at(1).begin();
          mine = await stage.claim(1);
        },
        () => stage.at(1).commit(),
        async () => {
          await stage.at(1).begin();
          for (const row of mine) expect(await stage.end(1, row, scene.ending)).toBe(true);
        },
        () => stage.at(1).commit(),
      ],
    },
    {
      name: 'producer',
      session: stage.at(3),
      steps: [
        async () => {
          await stage.at(3).begin();
          expect(await stage.incr(3, id)).toBe(true);
        },
        () => (scene.rollsBack ? stage.at(3).client.query('rollback') : stage.at(3).commit()),
      ],
    },
    looker(stage, 2, (rows) => {
      others = rows;
    }),
  ];
  await interleave(stage.at(0), lanes, order);
  for (const row of others) expect(await stage.end(2, row, 'hibernate')).toBe(true);
  await stage.drain(2);
  const expected = (scene.raisedBefore ? 1 : 0) + (scene.rollsBack ? 0 : 1);
  // A turn that ignores it has run anyway: it has seen it. What is left is then still there.
  const left = Number(await stage.at(0).one('select coalesce(sum(val), 0) from pawl.semaphore'));
  const taken = stage.taken.reduce((sum, n) => sum + n, 0);
  expect(taken + left).toBe(expected);
  if (scene.ending !== 'ignore') expect(left).toBe(0);
  else if (left > 0) expect(stage.seen.some(({ go }) => go >= left)).toBe(true);
  expect(await stage.at(0).one('select count(*)::int from pawl.actor_inbox')).toBe(0);
  expect(await stage.at(0).one('select status from pawl.actor')).toBe('hibernating');
}

const ALL = interleavings([4, 2, 2]);

async function playAll(stage: Stage, scene: Scene, every: number): Promise<void> {
  for (const order of ALL.filter((_, index) => index % every === 0)) {
    await play(stage, scene, order).catch((cause: unknown) => {
      throw new Error(`broken by the order ${order.join(' ')}: ${String(cause)}`, { cause });
    });
  }
}

let database: FreshDatabase;
let stage: Stage;
beforeAll(async () => {
  database = await freshDatabase();
  stage = await Stage.open(database.url);
});
afterAll(async () => {
  await stage.close();
  await database.drop();
});

const SCENES: readonly Scene[] = (['hibernate', 'to', 'ignore', 'failed'] as const).flatMap((ending) =>
  [false, true].flatMap((raisedBefore) =>
    [false, true].flatMap((hibernates) =>
      [false, true].map((rollsBack) => ({ ending, raisedBefore, hibernates, rollsBack })),
    ),
  ),
);

describe('in every order of raising, claiming and committing', () => {
  // Invariants A5, A7, A9, A10.
  test.each(SCENES)(
    'the actor runs at least once after the last commit, no transaction waits, nothing is left ($ending, before: $raisedBefore, hibernates: $hibernates, rolls back: $rollsBack)',
    async (scene) => playAll(stage, scene, LONG ? 1 : MODELS ? 53 : 311),
    120_000,
  );

  test.each([
    [
      'a commit that forgets what came while the turn ran',
      'actor_commit',
      /a\.signal_at is not null then least\(a\.signal_at/,
      'false then least(a.signal_at',
    ],
    [
      'an absorber that does not wake',
      'actor_absorb_of',
      /else least\(a\.wake_at, greatest\(w\.wake_at, a\.floor_at\)\)/,
      'else a.wake_at',
    ],
    ['a commit that lowers to nothing', 'actor_commit', /else pawl\.actor_add\(a\.semaphores[^\n]*\n/, "else '{}'\n"],
  ])(
    '%s is caught',
    async (_bug, name, pattern, replacement) => {
      const own = await freshDatabase();
      const planted = await Stage.open(own.url);
      try {
        const source = await planted.at(0).one<string>(`select pg_get_functiondef('pawl.${name}'::regproc)`);
        expect(source).toMatch(pattern);
        await planted.at(0).client.query(source.replace(pattern, replacement));
        const scenes = SCENES.filter(({ ending, rollsBack }) => ending === 'hibernate' && !rollsBack);
        const all = async (): Promise<void> => {
          for (const scene of scenes) await playAll(planted, scene, 3);
        };
        await expect(all()).rejects.toThrow(/broken by the order/);
      } finally {
        await planted.close();
        await own.drop();
      }
    },
    120_000,
  );
});

// Invariant A20.
test('in every order in which the last two children end, their parent is woken once', async () => {
  for (const order of interleavings([2, 2, 2, 2])) {
    if (!LONG && order.length > 0 && Number(order.join('')) % 61 !== 0) continue;
    await stage.clear();
    const parent = await stage.create();
    for (const row of await stage.claim(1)) await stage.end(1, row, 'hibernate');
    const children = [await stage.create(parent), await stage.create(parent)];
    const rows = await stage.claim(1);
    expect(rows.map(({ id }) => id).toSorted((a, b) => a - b)).toEqual(children);
    for (const row of await stage.claim(2)) await stage.end(2, row, 'hibernate');
    stage.seen.length = 0;
    const brought: { worker: number; row: Row }[] = [];
    const ender = (session: number, row: Row | undefined): Lane => ({
      name: `child ${session}`,
      session: stage.at(session),
      steps: [
        async () => {
          await stage.at(session).begin();
          await stage
            .at(session)
            .one(
              `select pawl.actor_commit(1, $1, $2, '{done}', '{null}', '{only}', null, null, null, null, null, null, null, null, null)`,
              [[row?.id], [row?.epoch]],
            );
        },
        () => stage.at(session).commit(),
      ],
    });
    const brings = (worker: number): Lane =>
      looker(stage, worker, (claimed) => brought.push(...claimed.map((row) => ({ worker, row }))));
    await interleave(stage.at(0), [ender(3, rows[0]), ender(4, rows[1]), brings(1), brings(2)], order);
    for (const { worker, row } of brought) await stage.end(worker, row, 'hibernate');
    await stage.drain(2);
    const turns = stage.seen.filter(({ id }) => id === parent);
    expect(
      turns.map(({ children: open }) => open),
      `order ${order.join(' ')}`,
    ).toEqual([0]);
  }
});

test('in every order in which something comes for an actor that ends, its turn waits for the worker that absorbs it, and does not fail', async () => {
  for (const order of interleavings([3, 1, 2])) {
    await stage.clear();
    const id = await stage.create();
    let mine: Row[] = [];
    let others: Row[] = [];
    const lanes: Lane[] = [
      {
        name: 'owner',
        session: stage.at(1),
        steps: [
          async () => {
            mine = await stage.claim(1);
          },
          async () => {
            await stage.at(1).begin();
            for (const row of mine) expect(await stage.end(1, row, 'done')).toBe(true);
          },
          () => stage.at(1).commit(),
        ],
      },
      { name: 'producer', session: stage.at(3), steps: [() => stage.incr(3, id)] },
      looker(stage, 2, (rows) => {
        others = rows;
      }),
    ];
    await interleave(stage.at(0), lanes, order);
    for (const row of others) await stage.end(2, row, 'done');
    const ended = await stage.at(0).one(`select array_agg(reason order by at) from pawl.actor_transition`);
    expect(ended, `order ${order.join(' ')}`).toEqual(['created', 'done']);
  }
});
