import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { interleave, interleavings, type Actor as Lane } from '../queue/interleaving.ts';
import { SqlSession } from '../queue/sql-session.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { LONG } from '../support/long.ts';

/** What the owner's turn comes to. */
type Ending = 'hibernate' | 'ignore' | 'to' | 'failed';

interface Row {
  readonly id: number;
  readonly epoch: number;
  readonly state: string;
  readonly children: number;
  readonly go: number;
}

/** Six sessions on one database: a director, two workers, and those who raise. */
class Stage {
  readonly #sessions: SqlSession[];
  readonly taken: number[] = [];
  readonly seen: Row[] = [];

  constructor(sessions: SqlSession[]) {
    this.#sessions = sessions;
  }

  static async open(url: string): Promise<Stage> {
    const stage = new Stage(await Promise.all(Array.from({ length: 6 }, () => SqlSession.open(url))));
    const machine = JSON.stringify({ initial: 'only', always: {}, states: { only: { to: ['only'] } } });
    const type = {
      name: 'thing',
      semaphores: ['go'],
      always: [],
      machine: JSON.parse(machine),
      version: 1,
      history: null,
      backoff: [1, 1, 1, 0],
    };
    await stage.at(0).one('select pawl.actor_register($1)', [JSON.stringify([type])]);
    for (const worker of [1, 2]) {
      await stage.at(0).client.query(
        `insert into pawl.actor_worker (id, pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
         values (${worker}, 1, 1, '1 h', clock_timestamp() + interval '1 h', true, 'test', '{1}', '{}')`,
      );
    }
    // Whoever is blocked by a semaphore, or blocks one, fails.
    for (const producer of [3, 4]) await stage.at(producer).client.query(`set lock_timeout = '2s'`);
    return stage;
  }

  at(index: number): SqlSession {
    const session = this.#sessions[index];
    if (session === undefined) throw new Error(`there is no session ${index}`);
    return session;
  }

  async clear(): Promise<void> {
    this.taken.length = 0;
    this.seen.length = 0;
    await this.at(0).client.query(
      'delete from pawl.actor_instance; delete from pawl.actor_inbox; delete from pawl.actor_transition',
    );
  }

  create(parent?: number): Promise<number> {
    const head = { type: 'thing', parent };
    return this.at(0)
      .one<{ id: string }>('select pawl.actor_create_json($1)', [JSON.stringify([head, {}])])
      .then(({ id }) => Number(id));
  }

  async claim(worker: number): Promise<Row[]> {
    const answer = await this.at(worker).one<string>('select pawl.actor_claim($1, $2, 10)', [worker, [1]]);
    const { rows } = JSON.parse(answer) as {
      rows: [number, number, string, number, number, number, number, number, number, number, Record<string, number>][];
    };
    const read = rows.map(([id, , state, , epoch, , , children, , , semaphores]) => ({
      id,
      epoch,
      state,
      children,
      go: semaphores['go'] ?? 0,
    }));
    this.seen.push(...read);
    return read;
  }

  /** @returns whether it was still the worker's */
  async end(worker: number, row: Row, ending: Ending | 'done'): Promise<boolean> {
    const takes = (ending === 'hibernate' || ending === 'to') && row.go > 0;
    const kind = ending === 'hibernate' || ending === 'ignore' ? 'stay' : ending;
    const wait = ending === 'to' ? 0 : ending === 'failed' ? 0 : null;
    const answer = await this.at(worker).one<string>(
      'select pawl.actor_commit($1, $2, $3, $4, $5, $6, $7, null, null, null, $8, null, null, null, null)',
      [
        worker,
        [row.id],
        [row.epoch],
        [kind],
        [wait],
        [row.state],
        [ending === 'to' ? 'only' : null],
        [takes ? JSON.stringify({ go: -row.go }) : null],
      ],
    );
    const { stale } = JSON.parse(answer) as { stale: number[] };
    if (stale.length === 0 && takes) this.taken.push(row.go);
    return stale.length === 0;
  }

  incr(producer: number, actor: number): Promise<boolean> {
    return this.at(producer).one('select pawl.actor_incr($1)', [JSON.stringify({ actor, semaphore: 'go' })]);
  }

  /** Runs whatever is due until nothing is. */
  async drain(worker: number): Promise<number> {
    let turns = 0;
    for (let quiet = 0; quiet < 2; ) {
      const rows = await this.claim(worker);
      quiet = rows.length === 0 ? quiet + 1 : 0;
      for (const row of rows) await this.end(worker, row, 'hibernate');
      turns += rows.length;
      expect(turns).toBeLessThan(50);
    }
    return turns;
  }

  async close(): Promise<void> {
    await Promise.all(this.#sessions.map((session) => session.end()));
  }
}

interface Scene {
  readonly ending: Ending;
  readonly raisedBefore: boolean;
  readonly rollsBack: boolean;
  /** The actor hibernates when it begins, instead of being due. */
  readonly hibernates: boolean;
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
    {
      name: 'other worker',
      session: stage.at(2),
      steps: [
        async () => {
          await stage.at(2).begin();
          others = await stage.claim(2);
        },
        () => stage.at(2).commit(),
      ],
    },
  ];
  await interleave(stage.at(0), lanes, order);
  for (const row of others) expect(await stage.end(2, row, 'hibernate')).toBe(true);
  await stage.drain(2);
  const expected = (scene.raisedBefore ? 1 : 0) + (scene.rollsBack ? 0 : 1);
  // A turn that ignores it has run all the same: it has seen it. What is left is then still there.
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
  test.each(SCENES)(
    'the actor runs at least once after the last commit, nobody waits, nothing is left ($ending, before: $raisedBefore, hibernates: $hibernates, rolls back: $rollsBack)',
    async (scene) => playAll(stage, scene, LONG ? 1 : 19),
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
      'actor_absorb',
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
          for (const scene of scenes) await playAll(planted, scene, 2);
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

test('in every order in which the last two children end, their parent is woken once', async () => {
  for (const order of interleavings([2, 2, 2, 2])) {
    if (!LONG && order.length > 0 && Number(order.join('')) % 31 !== 0) continue;
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
    const looker = (worker: number): Lane => ({
      name: `worker ${worker}`,
      session: stage.at(worker),
      steps: [
        async () => {
          await stage.at(worker).begin();
          for (const row of await stage.claim(worker)) brought.push({ worker, row });
        },
        () => stage.at(worker).commit(),
      ],
    });
    await interleave(stage.at(0), [ender(3, rows[0]), ender(4, rows[1]), looker(1), looker(2)], order);
    for (const { worker, row } of brought) await stage.end(worker, row, 'hibernate');
    await stage.drain(2);
    const turns = stage.seen.filter(({ id }) => id === parent);
    expect(
      turns.map(({ children: open }) => open),
      `order ${order.join(' ')}`,
    ).toEqual([0]);
  }
}, 120_000);
