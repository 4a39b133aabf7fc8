import { afterAll, beforeAll, expect, test } from 'vitest';
import { BACKOFF, delay } from '../../../src/base/time/backoff.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';

let engine: PostgresEngine;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url);
});

afterAll(() => engine.stop());

async function one<T>(text: string, values: unknown[]): Promise<T | undefined> {
  const [row] = await engine.query<{ value: T }>(statement('test.one', text, { prepare: false }), values);
  return row?.value;
}

test.each([undefined, 'k'])(
  'a job that is lost with its worker for the fifth time in a row ends in error (key: %s)',
  async (key) => {
    const name = `lost ${key}`;
    const queue = createQueue(engine, name, { kinds: { job: {} } });
    const { id } = await queue.enqueue('job', 1, { key });
    const lose = async (): Promise<void> => {
      const worker = await one<string>(
        `insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold)
       values (pawl.queue_id($1), 'h', 1, 1, '1s', clock_timestamp() + interval '1 hour', 'lease') returning id::text as value`,
        [name],
      );
      const claim = await one<string>(
        'select pawl.queue_claim(pawl.queue_id($1), 0::smallint, $2, 1, 1, 10, 1, (-32768)::smallint, 0) as value',
        [name, worker],
      );
      expect(claim).toContain(`${id}`);
      await one(`update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 second' where id = $1`, [
        worker,
      ]);
      await one('select r.jobs as value from pawl.queue_rescue(pawl.queue_id($1)) r', [name]);
    };
    for (let nth = 1; nth <= 4; nth += 1) await lose();
    expect(await queue.get(id)).toMatchObject({ status: 'new', attempt: 4, attempts: 15 });
    await lose();
    expect(await queue.get(id)).toMatchObject({
      status: 'error',
      attempt: 5,
      error: expect.stringContaining('worker was lost'),
    });
  },
);

test('a job of a key that was lost five times in a row is charged for no other dead worker, who ran it in between', async () => {
  const queue = createQueue(engine, 'lost by many', { kinds: { job: { attempts: 6 } } });
  const { id } = await queue.enqueue('job', 1, { key: 'k' });
  for (let nth = 1; nth <= 7; nth += 1) {
    const worker = await one<string>(
      `insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold, holding)
       values (pawl.queue_id($1), 'h', 1, 1, '1s', clock_timestamp(), 'transaction', array[$2::bigint]) returning id::text as value`,
      [queue.name, id],
    );
    await one('select s.jobs as value from pawl.queue_suspect($1, false) s', [worker]);
    expect(await one(`select cardinality(w.holding) as value from pawl.queue_worker w where w.id = $1`, [worker])).toBe(
      0,
    );
  }
  expect((await queue.history(id)).slice(1).map(({ attempt }) => attempt)).toEqual([1, 2, 3, 4, 5]);
  expect(await queue.get(id)).toMatchObject({ status: 'new', attempt: 6 });
});

test('the default attempts span more than an hour, whatever chance says', () => {
  const { attempts } = { attempts: 15 };
  const waits = (random: number): number => {
    let sum = 0;
    for (let nth = 1; nth < attempts; nth += 1) sum += delay(BACKOFF, nth, random);
    return sum / 3_600_000;
  };
  expect(waits(1)).toBeGreaterThan(1.5);
  expect(waits(0)).toBeLessThan(3.2);
});

test('a job has 15 attempts where nothing else is said', async () => {
  const queue = createQueue(engine, 'by default', { kinds: { job: {} } });
  expect((await queue.get((await queue.enqueue('job', 1)).id)).attempts).toBe(15);
});
