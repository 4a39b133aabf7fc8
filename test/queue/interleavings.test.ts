import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { LONG, MODELS } from '../support/long.ts';
import { type Actor, interleave, interleavings } from './interleaving.ts';
import { breaches, places } from './invariants.ts';
import { type ClaimedJob, type KindRow, type NewJob, type QueueRow, SqlSession } from './sql-session.ts';

/** The outcome of the job that holds the key when the other sessions come. */
type Ending = 'complete' | 'retry' | 'release' | 'error';
/** The state of the key's second job at that time. */
type Second = 'none' | 'ready' | 'parked';

interface Scene {
  readonly ending: Ending;
  readonly second: Second;
  readonly kinds: readonly KindRow[];
  /** The kinds of the first job, the second job, and the job that comes meanwhile. */
  readonly roles: readonly [string, string, string];
  readonly keys: readonly string[];
  readonly claimers: number;
  /** How many jobs of a key one claim takes; 1 as with hold: 'transaction'. Default 32. */
  readonly chain?: number;
  /** Whether jobs of a key complete in the order of their ids. */
  readonly ordered: boolean;
}

type Plot = Pick<Scene, 'kinds' | 'roles' | 'ordered'>;
const PLAIN: Plot = { kinds: [{ name: 'work' }], roles: ['work', 'work', 'work'], ordered: true };
const COALESCING: Plot = {
  kinds: [{ name: 'work', coalesce: 'all' }],
  roles: ['work', 'work', 'work'],
  ordered: true,
};
const CREATE_UPDATE: Plot = {
  kinds: [{ name: 'create' }, { name: 'update', after: ['create'], coalesce: 'all' }],
  roles: ['create', 'update', 'update'],
  ordered: true,
};
/** The predecessor is enqueued while its successor already runs or waits. */
const LATE_CREATE: Plot = {
  kinds: [{ name: 'create' }, { name: 'update', after: ['create'] }],
  roles: ['update', 'update', 'create'],
  ordered: false,
};

/** A queue and its three workers. */
interface Cast extends QueueRow {
  readonly workers: [number, number, number];
}

/** A database for the scenes, which are played one after another. */
class Stage {
  readonly sessions: SqlSession[];
  readonly #queues = new Map<string, Promise<Cast>>();

  static async open(url: string): Promise<Stage> {
    return new Stage(await Promise.all(Array.from({ length: 6 }, () => SqlSession.open(url))));
  }

  private constructor(sessions: SqlSession[]) {
    this.sessions = sessions;
  }

  session(index: number): SqlSession {
    const session = this.sessions[index];
    if (session === undefined) throw new Error(`there is no session ${index}`);
    return session;
  }

  cast(kinds: readonly KindRow[]): Promise<Cast> {
    const name = JSON.stringify(kinds).slice(0, 90);
    const known = this.#queues.get(name) ?? this.#register(name, kinds);
    this.#queues.set(name, known);
    return known;
  }

  async #register(name: string, kinds: readonly KindRow[]): Promise<Cast> {
    const row = await this.session(0).register(name, kinds);
    const workers: number[] = [];
    for (let index = 0; index < 3; index += 1) workers.push(await this.session(0).addWorker(row.queue));
    return { ...row, workers: workers as [number, number, number] };
  }

  async clear(): Promise<void> {
    await this.session(0).client.query(`
      delete from pawl.queue_job; delete from pawl.queue_receipt; delete from pawl.queue_receipt_one; delete from pawl.queue_dead; delete from pawl.queue_transition;
      delete from pawl.queue_ready; delete from pawl.queue_delayed; delete from pawl.queue_parked; delete from pawl.queue_key;
      delete from pawl.queue_running`);
  }

  async close(): Promise<void> {
    await Promise.all(this.sessions.map((session) => session.end()));
  }
}

/** Plays one scene in one order of steps and checks the remaining rows, then runs the remaining jobs. */
async function play(stage: Stage, scene: Scene, order: readonly number[]): Promise<void> {
  await stage.clear();
  const [director, owner, producer, ...claimers] = stage.sessions as [
    SqlSession,
    SqlSession,
    SqlSession,
    ...SqlSession[],
  ];
  const { queue, kinds, workers } = await stage.cast(scene.kinds);
  const [first, second, third] = workers;
  const kindOf = (role: 0 | 1 | 2): number => kinds[scene.roles[role]] ?? -1;
  const jobs = (role: 0 | 1 | 2): NewJob[] => scene.keys.map((key) => ({ kind: kindOf(role), key }));
  const done: ClaimedJob[] = [];

  await director.add(queue, jobs(0));
  const held = (await owner.claim(queue, first)).jobs;
  expect(held).toHaveLength(scene.keys.length);
  if (scene.second !== 'none') await director.add(queue, jobs(1));
  if (scene.second === 'parked') expect((await director.claim(queue, second)).jobs).toEqual([]);

  const brought: { session: SqlSession; worker: number; jobs: readonly ClaimedJob[] }[] = [];
  const actors: Actor[] = [
    {
      name: 'owner',
      session: owner,
      steps: [
        async () => {
          await owner.begin();
          expect(await end(owner, queue, first, held, scene.ending)).toEqual([]);
        },
        () => owner.commit(),
      ],
    },
    {
      name: 'producer',
      session: producer,
      steps: [
        async () => {
          await producer.begin();
          await producer.add(queue, jobs(2));
        },
        () => producer.commit(),
      ],
    },
    ...claimers.slice(0, scene.claimers).map((session, index): Actor => {
      const worker = index === 0 ? second : third;
      return {
        name: `claimer ${index}`,
        session,
        steps: [
          async () => {
            await session.begin();
            brought.push({ session, worker, jobs: (await session.claim(queue, worker)).jobs });
          },
          () => session.commit(),
        ],
      };
    }),
  ];
  await interleave(director, actors, order);
  if (scene.ending === 'complete') done.push(...held);
  expect(await breaches(director.client)).toEqual([]);

  for (const { session, worker, jobs } of brought) {
    if (jobs.length === 0) continue;
    expect(await session.complete(queue, worker, jobs)).toEqual([]);
    done.push(...jobs);
    expect(await breaches(director.client)).toEqual([]);
  }
  await director.client.query(`update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 s'`);
  for (let quiet = 0; quiet < 2; ) {
    const { jobs } = await director.claim(queue, second, { chain: scene.chain ?? 32 });
    quiet = jobs.length === 0 ? quiet + 1 : 0;
    if (jobs.length === 0) continue;
    await director.complete(queue, second, jobs);
    done.push(...jobs);
    expect(await breaches(director.client)).toEqual([]);
  }
  const { complete: _complete, dead: _dead, ...left } = await places(director.client, queue);
  expect(left).toEqual({});
  expect(await director.one('select count(*)::int from pawl.queue_key')).toBe(0);
  for (const key of scene.keys) {
    const ids = done.filter((job) => job.key === key).map((job) => job.id);
    if (scene.ordered) expect(ids).toEqual(ids.toSorted((a, b) => a - b));
  }
}

function end(
  owner: SqlSession,
  queue: number,
  worker: number,
  jobs: readonly ClaimedJob[],
  ending: Ending,
): Promise<number[]> {
  if (ending === 'complete') return owner.complete(queue, worker, jobs);
  const wait = ending === 'retry' ? 3_600_000 : 0;
  const fail = jobs.map(({ claim, id }) => ({ claim, id, to: ending, wait, reason: 'test' }));
  return owner.settle(queue, worker, { fail, keys: SqlSession.keysOf(jobs) });
}

/** The orders of a scene: all of them, or every n-th. */
function orders(scene: Scene, every: number): number[][] {
  const all = interleavings(Array.from({ length: 2 + scene.claimers }, () => 2));
  return all.filter((_, index) => index % every === 0);
}

async function playAll(stage: Stage, scene: Scene, every: number): Promise<number> {
  const all = orders(scene, LONG ? 1 : every);
  for (const order of all) {
    try {
      await play(stage, scene, order);
    } catch (error) {
      throw new Error(
        `broken by the order ${order.join(' ')}: ${error instanceof Error ? error.message : String(error)}`,
        {
          cause: error,
        },
      );
    }
  }
  return all.length;
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

const ENDINGS: readonly Ending[] = ['complete', 'retry', 'release', 'error'];

/** A long run plays every order; others play every n-th. */
const SHORT = MODELS ? 7 : 23;

describe('in every order of enqueue, claim and settle of one key, no row is left behind', () => {
  for (const ending of ENDINGS) {
    for (const second of ['none', 'ready', 'parked'] as const) {
      test(`a job that ends by ${ending}, the next one ${second === 'none' ? 'not there yet' : second}`, async () => {
        const scene: Scene = { ...PLAIN, ending, second, keys: ['a'], claimers: 1 };
        expect(await playAll(stage, scene, SHORT)).toBeGreaterThan(3);
      });
    }
    test(`two keys at once whose jobs end by ${ending}`, async () => {
      const scene: Scene = { ...PLAIN, ending, second: 'ready', keys: ['a', 'b'], claimers: 1 };
      expect(await playAll(stage, scene, SHORT + 2)).toBeGreaterThan(3);
    });
    test(`two claimers at the same time as a job that ends by ${ending}`, async () => {
      const scene: Scene = { ...PLAIN, ending, second: 'ready', keys: ['a'], claimers: 2 };
      expect(await playAll(stage, scene, 421)).toBeGreaterThan(4);
    }, 600_000);
  }
});

describe('the same for kinds that coalesce and kinds that wait for others', () => {
  const plots = {
    'a coalesced update': COALESCING,
    'a create before its updates': CREATE_UPDATE,
    'a late create': LATE_CREATE,
  };
  for (const [title, plot] of Object.entries(plots)) {
    for (const ending of ENDINGS) {
      test(`${title}, the first job ends by ${ending}`, async () => {
        for (const second of ['ready', 'parked'] as const) {
          const scene: Scene = { ...plot, ending, second, keys: ['a'], claimers: 1 };
          expect(await playAll(stage, scene, MODELS ? 23 : 31)).toBeGreaterThan(2);
        }
      }, 600_000);
    }
  }
});

describe('a chain of one', () => {
  for (const ending of ENDINGS) {
    test(`of jobs without a predecessor, the first ends by ${ending}`, async () => {
      const scene: Scene = { ...PLAIN, ending, second: 'ready', keys: ['a'], claimers: 1, chain: 1 };
      expect(await playAll(stage, scene, MODELS ? 23 : 31)).toBeGreaterThan(2);
    });
  }

  test('a late create runs before the updates that wait for it', async () => {
    const scene: Scene = { ...LATE_CREATE, ending: 'release', second: 'ready', keys: ['a'], claimers: 1, chain: 1 };
    await playAll(stage, scene, 1);
  });
});

describe('a lost worker was running a job in its own transaction', () => {
  for (const key of ['a', null]) {
    test(`its attempt is charged while another worker claims the job, ${key === null ? 'which has no key' : 'by its key'}`, async () => {
      for (const order of interleavings([2, 2])) {
        await stage.clear();
        const [director, rescuer, claimer] = stage.sessions as [SqlSession, SqlSession, SqlSession];
        const { queue, kinds, workers } = await stage.cast(PLAIN.kinds);
        const [dead, alive] = workers;
        const [id = -1] = await director.add(queue, [{ kind: kinds['work'] ?? -1, key }]);
        await director.client.query('update pawl.queue_worker set holding = array[$2::bigint] where id = $1', [
          dead,
          id,
        ]);
        const brought: ClaimedJob[] = [];
        const claim = async (): Promise<void> => {
          await claimer.begin();
          brought.push(...(await claimer.claim(queue, alive)).jobs);
        };
        const suspect = async (): Promise<void> => {
          await rescuer.begin();
          await rescuer.one('select pawl.queue_suspect($1, false)', [dead]);
        };
        await interleave(
          director,
          [
            { name: 'rescuer', session: rescuer, steps: [suspect, () => rescuer.commit()] },
            { name: 'claimer', session: claimer, steps: [claim, () => claimer.commit()] },
          ],
          order,
        );
        expect(await breaches(director.client), `order ${order.join(' ')}`).toEqual([]);
        if (brought.length === 0) brought.push(...(await director.claim(queue, alive)).jobs);
        expect(await director.complete(queue, alive, brought)).toEqual([]);
        expect(await places(director.client, queue)).toEqual({ complete: 1 });
        await director.client.query(`update pawl.queue_worker set holding = '{}' where id = $1`, [dead]);
      }
    });
  }
});

describe('the checks find', () => {
  const scene: Scene = { ...PLAIN, ending: 'complete', second: 'ready', keys: ['a'], claimers: 1 };

  async function planted(name: string, from: RegExp, to: string): Promise<void> {
    const own = await freshDatabase();
    const broken = await Stage.open(own.url);
    try {
      const text = await broken
        .session(0)
        .one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [name]);
      expect(text).toMatch(from);
      await broken.session(0).client.query(text.replace(from, to));
      await expect(playAll(broken, scene, 1)).rejects.toThrow(/broken by the order/);
    } finally {
      await broken.close();
      await own.drop();
    }
  }

  test('a claimer that parks without the lock on the key', async () => {
    await planted('queue_park', /order by k\.key for share skip locked/, 'order by k.key');
  });

  test('an owner that does not make the next job ready', async () => {
    await planted(
      'queue_release_keys',
      /k\.tid from key k where not k\.delayed and k\.tid is not null/,
      'k.tid from key k where false',
    );
  });

  test('an owner that gives up its key without waiting for claims that park jobs', async () => {
    await planted('queue_release_keys', /and k\.held order by k\.key for update/, 'and k.held order by k.key');
  });
});
