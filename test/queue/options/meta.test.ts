import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

/** A payload that is too large for a look-ahead. */
const LARGE = 'x'.repeat(3000);
const RETRY = { attempts: 2, backoff: { kind: 'fixed', min: 1 } } as const;

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

async function inSql(request: object): Promise<string> {
  const [row] = await engine.query<{ answer: { id: string } }>(
    statement('test.enqueue', 'select pawl.enqueue($1::jsonb) as answer'),
    [JSON.stringify(request)],
  );
  return row?.answer.id ?? '';
}

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  test.each([
    ['without a key', {}, {}],
    ['with a large payload', {}, { payload: LARGE }],
    ['with a key', {}, { key: 'k' }],
    ['of a kind that coalesces', { coalesce: 'all' }, { key: 'k' }],
    ['of a unique kind', { unique: 'key' }, { key: 'k' }],
  ] as const)(
    'a job %s has its meta in every attempt, and its neighbours have theirs or none',
    async (_, kind, given) => {
      nth += 1;
      const queue = createQueue(engine, `meta ${nth}`, { kinds: { job: kind }, retry: RETRY });
      const { payload, ...where } = { payload: 1, ...given };
      const wanted = new Map<string, unknown>();
      const note = (id: string, meta: unknown): void => void wanted.set(id, meta);
      for (const meta of [{ tenant: 'a' }, undefined, { tenant: 'b', deep: [1, null] }]) {
        const key = 'unique' in kind ? { key: `${JSON.stringify(meta)}` } : where;
        note((await queue.enqueue('job', payload, { ...key, meta })).id, meta);
      }
      if (!('unique' in kind)) {
        const many = [{ n: 1 }, undefined, undefined, { n: 2 }];
        const ids = await queue.enqueueMany(many.map((meta) => ({ kind: 'job', payload, ...where, meta })));
        ids.forEach((id, at) => note(id, many[at]));
        await engine.transaction(async (tx) => {
          const [id] = await queue.enqueueMany([{ kind: 'job', payload, ...where, meta: { inside: true } }], { tx });
          note(id ?? '', { inside: true });
        });
      }
      note(await inSql({ queue: queue.name, kind: 'job', payload, key: 'sql', meta: { from: 'SQL' } }), {
        from: 'SQL',
      });

      const seen = new Map<string, unknown[]>();
      const worker = queue.work(
        {
          job: ({ jobs, attempt }) => {
            for (const { id, meta } of jobs) seen.set(id, [...(seen.get(id) ?? []), meta]);
            if (attempt === 1) throw new Error('not yet');
          },
        },
        { hold, poll: '100ms', concurrency: 3 },
      );
      await until('all have ended', async () => {
        const { new: left, inProgress } = await queue.stats();
        return left + inProgress === 0;
      });
      await worker.stop();
      for (const [id, meta] of wanted) {
        expect(seen.get(id), id).toEqual([meta, meta]);
        expect(await queue.get(id)).toMatchObject({ status: 'complete', attempt: 2, meta: meta ?? null });
      }
    },
  );

  test('a job that is handed over directly has its meta', async () => {
    nth += 1;
    const queue = createQueue(engine, `meta ${nth}`, { kinds: { job: {} } });
    const seen: unknown[] = [];
    const worker = queue.work({ job: ({ job }) => void seen.push(job.meta) }, { hold, concurrency: 3 });
    await worker.started;
    for (const meta of [{ n: 1 }, undefined, { n: 2 }]) {
      await queue.enqueue('job', null, { meta });
      await queue.drain();
    }
    await worker.stop();
    expect(seen).toEqual([{ n: 1 }, undefined, { n: 2 }]);
  });
});

test('meta that is no object, or too large, is refused, from programs and from SQL', async () => {
  const queue = createQueue(engine, 'refused', { kinds: { job: {} } });
  await queue.register();
  for (const meta of [5, 'x', [1], { a: 'x'.repeat(17_000) }]) {
    const bad = { meta: meta as unknown as Record<string, unknown> };
    const calls: Promise<unknown>[] = [
      queue.enqueue('job', 1, bad),
      queue.enqueueMany([{ kind: 'job', payload: 1, ...bad }]),
      inSql({ queue: 'refused', kind: 'job', meta }),
    ];
    for (const refused of await Promise.allSettled(calls)) {
      expect(refused).toMatchObject({ status: 'rejected', reason: { message: expect.stringContaining('meta') } });
      expect(refused.status === 'rejected' && refused.reason).toBeInstanceOf(InvalidInput);
    }
  }
  await expect(queue.enqueue('job', 1, { meta: { n: 1n } })).rejects.toBeInstanceOf(InvalidInput);
  expect(await queue.stats()).toMatchObject({ new: 0 });
});
