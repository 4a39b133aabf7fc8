import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';
import { LONG } from '../../../support/long.ts';
import { type Actor, interleave, interleavings } from '../../interleaving.ts';
import { breaches, places } from '../../invariants.ts';
import { SqlSession } from '../../sql-session.ts';

/** A long run plays every order, others every n-th. */
const EVERY = LONG ? 1 : 16;
const CHANNEL = 'handover';

/** A third event next to two enqueues that could both use the only offer. */
type Third = 'withdraw' | 'recall' | 'leave' | 'rescue' | 'pause' | 'late commit' | 'claim';
const THIRDS: readonly Third[] = ['withdraw', 'recall', 'leave', 'rescue', 'pause', 'late commit', 'claim'];

/** After these no job may be handed over; a claim and a recall do not change the offer. */
const FINAL: ReadonlySet<Third> = new Set(['withdraw', 'leave', 'rescue', 'pause', 'late commit']);

class Stage {
  readonly sessions: readonly SqlSession[];
  #queue = 0;

  static async open(url: string): Promise<Stage> {
    return new Stage(await Promise.all(Array.from({ length: 4 }, () => SqlSession.open(url))));
  }

  private constructor(sessions: readonly SqlSession[]) {
    this.sessions = sessions;
  }

  close(): Promise<unknown> {
    return Promise.all(this.sessions.map((session) => session.end()));
  }

  /** Plays one order of two enqueues and a third event; throws if a promise is broken. */
  async play(third: Third, order: readonly number[]): Promise<void> {
    const [director, other, ...producers] = this.sessions as [SqlSession, SqlSession, SqlSession, SqlSession];
    this.#queue += 1;
    const { queue, kinds } = await director.register(`q${this.#queue}`, [{ name: 'work' }]);
    const kind = kinds['work'] ?? -1;
    const worker = await director.addWorker(queue);
    const offer = [queue, worker, CHANNEL];
    await director.client.query(
      'insert into pawl.queue_offer (queue, worker, number, channel) values ($1, $2, 1, $3)',
      offer,
    );
    await director.client.query('select pg_advisory_lock_shared(hashtextextended($1, 0))', [CHANNEL]);

    let handed = 0;
    let isOver = false;
    let isReady = false;
    let withdrawn: number[] = [];
    let recalled: { jobs: number; offers: number[] } | undefined;
    const steps: Record<Third, () => Promise<unknown>> = {
      withdraw: async () => {
        withdrawn = await other.one('select pawl.queue_withdraw($1::smallint, $2)', [queue, worker]);
      },
      recall: async () => {
        recalled = await other.one(`select pawl.queue_recall($1::smallint, $2, '{}')`, [queue, worker]);
      },
      leave: () => other.one(`select pawl.queue_leave($1::smallint, $2, '{}')`, [queue, worker]),
      rescue: () => other.rescue(queue),
      pause: () =>
        other.client.query('update pawl.queue_definition set paused_at = clock_timestamp() where id = $1', [queue]),
      'late commit': () => other.add(queue, [{ kind }]),
      claim: () => other.claim(queue, worker),
    };
    const produce = async (session: SqlSession): Promise<boolean> => {
      const before = { isOver, isReady };
      await session.begin();
      const id = await session.one<string>(
        `select pawl.queue_add_alone($1::smallint, 0::smallint, $2::smallint, 0::smallint, '1', null, null)::json ->> 'id'`,
        [queue, kind],
      );
      const isHanded = await session.one<boolean>(
        'select exists (select 1 from pawl.queue_running r where r.ids @> $1::bigint)',
        [id],
      );
      if (isHanded) handed += 1;
      if (isHanded && before.isOver && FINAL.has(third)) throw new Error(`a job was handed over after the ${third}`);
      if (isHanded && before.isReady) throw new Error('a job was handed over before one that is ready');
      return isHanded;
    };
    const producer = (session: SqlSession, index: number): Actor => {
      let isHanded = false;
      return {
        name: `producer ${index}`,
        session,
        steps: [
          async () => {
            isHanded = await produce(session);
          },
          async () => {
            await session.commit();
            isReady ||= !isHanded && third !== 'claim';
          },
        ],
      };
    };
    const actors: Actor[] = [
      ...producers.map(producer),
      {
        name: third,
        session: other,
        steps: [
          async () => {
            if (third === 'rescue') await other.expire(worker);
            await other.begin();
            await steps[third]();
          },
          async () => {
            await other.commit();
            isOver = true;
          },
        ],
      },
    ];
    await interleave(director, actors, order);

    const left = await director.one<number>('select count(*)::int from pawl.queue_offer where queue = $1', [queue]);
    if (handed + left + withdrawn.length > 1) {
      throw new Error(`one offer became ${handed} jobs, ${left} left and ${withdrawn.length} taken back`);
    }
    if (handed > 0 && recalled?.offers.includes(1) && recalled.jobs > 0) {
      throw new Error('the recall gave back a job whose notification would still be accepted');
    }
    if (third === 'leave' && left + (await running(director, queue)) > 0) throw new Error('something is left behind');
    await director.client.query('update pawl.queue_definition set paused_at = null where id = $1', [queue]);
    await director.expire(worker);
    await director.rescue(queue);
    if ((await running(director, queue)) > 0) throw new Error('a rescue did not find what was handed over');
    expect(await breaches(director.client)).toEqual([]);
    const next = await director.addWorker(queue);
    for (let quiet = 0; quiet < 2; quiet += 1) {
      const { jobs } = await director.claim(queue, next);
      if (jobs.length > 0) expect(await director.complete(queue, next, jobs)).toEqual([]);
    }
    expect(await places(director.client, queue)).toEqual({ complete: third === 'late commit' ? 3 : 2 });
    await director.client.query('select pg_advisory_unlock_shared(hashtextextended($1, 0))', [CHANNEL]);
  }

  async playAll(third: Third, orders: readonly (readonly number[])[]): Promise<number> {
    for (const order of orders) {
      await this.play(third, order).catch((cause: Error) => {
        throw new Error(`broken by the order ${order.join(' ')}: ${cause.message}`, { cause });
      });
    }
    return orders.length;
  }
}

function running(session: SqlSession, queue: number): Promise<number> {
  return session.one('select count(*)::int from pawl.queue_running where queue = $1', [queue]);
}

const ORDERS = interleavings([2, 2, 2]);
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

describe('two enqueues and one offer: it is used at most once, no job is lost or overtaken', () => {
  for (const third of THIRDS) {
    test(`in every order of them and of a ${third}`, async () => {
      const orders = ORDERS.filter((_, index) => index % EVERY === 0);
      expect(await stage.playAll(third, orders)).toBeGreaterThan(5);
    });
  }
});

describe('the checks find', () => {
  /** Orders in which the third event comes late, and orders in which it comes first. */
  const [late, early] = [ORDERS, ORDERS.toReversed()];

  async function planted(
    third: Third,
    orders: readonly (readonly number[])[],
    [name, from, to]: readonly [name: string, from: string, to: string],
  ): Promise<void> {
    const own = await freshDatabase();
    const broken = await Stage.open(own.url);
    try {
      const [session] = broken.sessions as [SqlSession];
      const text = await session.one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [
        name,
      ]);
      expect(text).toContain(from);
      await session.client.query(text.replace(from, to));
      await expect(broken.playAll(third, orders)).rejects.toThrow(/broken by the order/);
    } finally {
      await broken.close();
      await own.drop();
    }
  }

  test('an enqueue that uses an offer and leaves it there', async () => {
    const [from, to] = [
      'delete from pawl.queue_offer o where',
      'update pawl.queue_offer o set number = o.number where',
    ];
    await planted('pause', late, ['queue_add_alone', from, to]);
  });

  test('an enqueue that does not check whether a job is ready', async () => {
    await planted('late commit', early, ['queue_add_alone', 'from pawl.queue_ready', 'from pawl.queue_dead']);
  });

  test('an enqueue that hands over while the queue is paused', async () => {
    await planted('pause', early, ['queue_add_alone', 'd.paused_at is null', 'true']);
  });

  test('a worker that leaves without waiting for an enqueue that uses its offer', async () => {
    await planted('leave', late, ['queue_leave', 'o.worker = p_worker;', 'o.worker = p_worker and false;']);
  });
});
