import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { SqlSession } from '../sql-session.ts';

// The callback of a batch is of a unique kind, and an open transaction has enqueued the job that would be it.

let database: FreshDatabase;
let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 10, logger: recordLog() });
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
  await database.drop();
});

const unique = { while: 'outstanding' } as const;
const kinds = { job: {}, called: { unique } } as const;
const onComplete = { kind: 'called', key: 'k', payload: 'of the batch' } as const;

async function newQueue(): Promise<Queue<typeof kinds>> {
  nth += 1;
  const queue = createQueue(engine, `callback ${nth}`, { kinds });
  await queue.register();
  return queue;
}

async function enqueueInOpenTransaction(queue: Queue<typeof kinds>): Promise<void> {
  await session.begin();
  const request = { queue: queue.name, kind: 'called', key: 'k', payload: 'of the transaction', unique };
  await session.one('select pawl.enqueue($1::jsonb)', [JSON.stringify(request)]);
}

for (const end of ['rollback', 'commit'] as const) {
  for (const last of ['the seal', 'the end of its last job'] as const) {
    test(`a callback that ${last} cannot enqueue yet is enqueued after the ${end} of the other transaction`, async () => {
      const queue = await newQueue();
      const batch = await queue.batch({ onComplete });
      if (last !== 'the seal') {
        await batch.enqueue({ kind: 'job', payload: 1 });
        await batch.seal();
      }
      await enqueueInOpenTransaction(queue);
      if (last === 'the seal') await batch.seal();
      else await (await queue.claim())[0]?.complete();
      expect(await batch.progress()).toMatchObject({ outstanding: 0, doneAt: null, problem: null });
      const seen: unknown[] = [];
      const worker = queue.work({ job: () => {}, called: ({ payload }) => void seen.push(payload) });
      await session.client.query(end);
      await eventually(async () => {
        expect(await batch.progress()).toMatchObject({ doneAt: expect.any(Date) as Date, problem: null });
        expect(seen).toContain(end === 'rollback' ? 'of the batch' : 'of the transaction');
      });
      await worker.stop();
    });
  }
}
