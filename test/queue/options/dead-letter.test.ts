import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Conflict, InvalidInput, NoRetry } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type DeadLetter, type JobRecord, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';

const KINDS = { job: { onError: 'late' }, late: {} } as const;
const AT_ONCE = { attempts: 2, backoff: { kind: 'fixed', min: 1 } } as const;

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

function declare(): Queue<typeof KINDS> {
  nth += 1;
  return createQueue(engine, `letters ${nth}`, { kinds: KINDS, retry: AT_ONCE });
}

async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

async function letters(queue: Queue): Promise<JobRecord[]> {
  return [...(await queue.search('kind:late', { limit: 1000 })).jobs].toReversed();
}

/** The letters of the jobs, by the id of each. */
async function lettersOf(queue: Queue): Promise<Map<string, DeadLetter>> {
  const found = await letters(queue);
  const byJob = new Map(found.map(({ payload }) => [(payload as DeadLetter).job, payload as DeadLetter]));
  expect(byJob.size, 'one for each job').toBe(found.length);
  return byJob;
}

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  // Invariants J4.
  test('each job that ends in error leaves one dead letter, and no other job does', async () => {
    const queue = declare();
    const ids = await queue.enqueueMany(
      ['fails', 'no retry', 'succeeds', 'keyed', 'large', 'is cancelled'].map((payload) => ({
        kind: 'job' as const,
        payload:
          payload === 'large' ? { payload, text: Array.from({ length: 20_000 }, () => Math.random()) } : { payload },
        ...(payload === 'keyed' && { key: 'k' }),
      })),
    );
    await queue.cancel(ids[5] ?? '');
    const worker = queue.work(
      {
        job: ({ payload }) => {
          const { payload: what } = payload as { payload: string };
          if (what === 'succeeds') return;
          throw what === 'no retry' ? new NoRetry('no') : new Error('down');
        },
        late: () => new Promise((resolve) => setTimeout(resolve, 1)),
      },
      { hold, poll: '50ms', concurrency: 3 },
    );
    await until('all have ended', async () => {
      const { new: left, inProgress } = await queue.stats();
      return left + inProgress === 0;
    });
    await worker.stop();
    const told = await lettersOf(queue);
    expect(new Set(told.keys())).toEqual(new Set([0, 1, 3, 4].map((at) => ids[at])));
    expect(told.get(ids[0] ?? '')).toMatchObject({
      queue: queue.name,
      kind: 'job',
      key: null,
      attempts: 2,
      error: expect.stringContaining('down'),
      payload: { payload: 'fails' },
      isPayloadOmitted: false,
    });
    expect(told.get(ids[1] ?? '')).toMatchObject({ attempts: 1, error: expect.stringContaining('no') });
    expect(told.get(ids[3] ?? '')).toMatchObject({ key: 'k', payload: { payload: 'keyed' } });
    expect(told.get(ids[4] ?? '')).toMatchObject({ payload: null, isPayloadOmitted: true });
    expect((await letters(queue)).find(({ key }) => key !== null)).toMatchObject({ key: 'k', status: 'complete' });
  });

  test.each([undefined, 'k'])(
    'a job that ends with its worker, killed in its last attempt, leaves one (key: %s)',
    async (key) => {
      nth += 1;
      const name = `killed ${nth}`;
      const queue = createQueue(engine, name, { kinds: KINDS, retry: AT_ONCE });
      const { id } = await queue.enqueue('job', { n: 1 }, { attempts: 1, key });
      const child = spawnChild('queue/options/hang.child.ts', [url, name, hold]);
      await child.message();
      if (hold === 'transaction') {
        await until('it is noted as running', async () => {
          const held = await rows<{ id: string }>('select unnest(w.holding)::text as id from pawl.queue_worker w');
          return held.some((row) => row.id === id);
        });
      }
      await child.kill('SIGKILL');
      if (hold === 'transaction' && key !== undefined) {
        // The worker that claims it next finds that it has no attempt left.
        await until('its lease is over', async () => {
          await rows('select from pawl.queue_rescue(pawl.queue_id($1))', [name]);
          return (await queue.get(id)).attempt === 1;
        });
        const worker = queue.work(
          { job: () => undefined, late: () => undefined },
          { hold, poll: '50ms', concurrency: 3 },
        );
        await until('it has ended', async () => (await queue.get(id)).status === 'error');
        await worker.stop();
      } else {
        const rescue = 'select from pawl.queue_rescue(pawl.queue_id($1))';
        await until('two rescues at once have ended it', async () => {
          await Promise.all([rows(rescue, [name]), rows(rescue, [name])]);
          return (await queue.get(id)).status === 'error';
        });
      }
      const told = await lettersOf(queue);
      expect([...told]).toEqual([[id, expect.objectContaining({ attempts: 1, key: key ?? null, payload: { n: 1 } })]]);
      expect(told.get(id)?.error).toContain('worker was lost');
    },
  );

  test('a dead letter puts its job back to work, and ends with that', async () => {
    const queue = declare();
    const { id } = await queue.enqueue('job', 1, { attempts: 1 });
    let isDown = true;
    const options = { hold, poll: '50ms', concurrency: 3 } as const;
    const job = (): string => {
      if (isDown) throw new Error('down');
      return 'up';
    };
    await queue.enqueue('late', { other: true });
    const failing = queue.work({ job, late: () => undefined }, options);
    await until('it is in error', async () => (await queue.get(id)).status === 'error');
    await failing.stop();
    const [first, letter] = await letters(queue);
    await expect(queue.redrive(first?.id ?? '')).rejects.toBeInstanceOf(InvalidInput);
    await expect(queue.redrive(id)).rejects.toBeInstanceOf(InvalidInput);
    isDown = false;
    const rolledBack = engine.transaction(async (tx) => {
      await queue.redrive(letter?.id ?? '', { tx });
      throw new Error('not now');
    });
    await expect(rolledBack).rejects.toThrow('not now');
    expect((await queue.get(id)).status).toBe('error');
    const was = (await queue.get(letter?.id ?? '')).status;
    expect(await queue.redrive(letter?.id ?? '')).toEqual({ id, status: 'new' });
    expect((await queue.get(letter?.id ?? '')).status).toBe(was === 'new' ? 'cancelled' : was);
    const working = queue.work({ job, late: () => undefined }, options);
    await until('it is complete', async () => (await queue.get(id)).status === 'complete');
    await working.stop();
    await expect(queue.redrive(letter?.id ?? '')).rejects.toBeInstanceOf(Conflict);
    expect(await letters(queue)).toHaveLength(2);
  });
});

test('a declaration whose dead letters cannot be is refused', () => {
  const declared = (kinds: Record<string, object>) => (): unknown => createQueue(engine, 'bad', { kinds });
  for (const kinds of [
    { a: { onError: 'b' } },
    { a: { onError: 'a' } },
    { a: { onError: 'b' }, b: { onError: 'a' } },
    { a: { onError: 'b' }, b: { unique: 'key' } },
    { a: { onError: 'b' }, b: { key: 'required' } },
  ]) {
    expect(declared(kinds), JSON.stringify(kinds)).toThrow(InvalidInput);
  }
  declared({ a: { onError: 'b', key: 'required' }, b: { coalesce: 'all' } })();
});
