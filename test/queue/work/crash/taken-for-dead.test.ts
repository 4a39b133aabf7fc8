import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';
import { interleave, interleavings } from '../../interleaving.ts';
import { breaches, places } from '../../invariants.ts';
import { SqlSession } from '../../sql-session.ts';

let database: FreshDatabase;
let director: SqlSession;
let claimer: SqlSession;
let rescuer: SqlSession;

beforeAll(async () => {
  database = await freshDatabase();
  [director, claimer, rescuer] = (await Promise.all([1, 2, 3].map(() => SqlSession.open(database.url)))) as [
    SqlSession,
    SqlSession,
    SqlSession,
  ];
});

afterAll(async () => {
  await Promise.all([director, claimer, rescuer].map((session) => session.end()));
  await database.drop();
});

/** Claims of workers that the database does not know any more. */
const ORPHANS = `select count(*)::int from pawl.queue_running r
  where not exists (select 1 from pawl.queue_worker w where w.id = r.worker)`;

describe('a worker that is declared dead while it claims', () => {
  for (const key of [null, 'k']) {
    test(`has either claimed before, or claims nothing: jobs ${key === null ? 'without a key' : 'of a key'}, one and many`, async () => {
      for (const jobs of [1, 3]) {
        for (const order of interleavings([2, 2])) {
          const { queue, kinds } = await director.register(`${key}-${jobs}-${order.join('')}`, [{ name: 'work' }]);
          const worker = await director.addWorker(queue);
          const kind = kinds['work'] ?? -1;
          await director.add(
            queue,
            Array.from({ length: jobs }, () => ({ kind, key })),
          );
          const claim = async (): Promise<void> => {
            await claimer.begin();
            await claimer.claim(queue, worker).catch((error: { code?: string }) => expect(error.code).toBe('PW004'));
          };
          const rescue = async (): Promise<void> => {
            await rescuer.expire(worker);
            await rescuer.begin();
            await rescuer.rescue(queue);
          };
          await interleave(
            director,
            [
              { name: 'claimer', session: claimer, steps: [claim, () => claimer.commit()] },
              { name: 'rescuer', session: rescuer, steps: [rescue, () => rescuer.commit()] },
            ],
            order,
          );
          expect(await director.one(ORPHANS), `order ${order.join(' ')}`).toBe(0);
          await director.rescue(queue);
          expect(await breaches(director.client)).toEqual([]);
          const next = await director.addWorker(queue);
          for (let left = jobs; left > 0; ) {
            const again = (await director.claim(queue, next)).jobs;
            expect(again).not.toEqual([]);
            expect(await director.complete(queue, next, again)).toEqual([]);
            left -= again.length;
          }
          expect(await places(director.client, queue)).toEqual({ complete: jobs });
        }
      }
    });
  }
});
