import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type DeadLetter, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

const KINDS = {
  job: { attempts: 1 },
  told: { attempts: 1, onError: 'late' },
  late: {},
  own: {},
  one: { unique: 'key' },
  ordered: { key: 'required' },
} as const;

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  engine = postgres((await freshDatabase()).url, { max: 10 });
});

afterAll(() => engine.stop());

function declare(): Queue<typeof KINDS> {
  nth += 1;
  return createQueue(engine, `own letters ${nth}`, { kinds: KINDS });
}

function inSql<Row>(text: string, values: unknown[]): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

async function fromSql(request: object): Promise<{ readonly id: string }> {
  const [row] = await inSql<{ answer: { id: string } }>('select pawl.enqueue($1::jsonb) as answer', [
    JSON.stringify(request),
  ]);
  return row?.answer ?? { id: '' };
}

/** The kinds of the letters of each job. */
async function lettersOf(queue: Queue): Promise<Record<string, string[]>> {
  const told: Record<string, string[]> = {};
  for (const kind of ['late', 'own', 'ordered']) {
    for (const { payload } of (await queue.search(`kind:${kind}`, { limit: 1000 })).jobs) {
      (told[(payload as DeadLetter).job] ??= []).push(kind);
    }
  }
  return told;
}

async function fails(queue: Queue<typeof KINDS>): Promise<void> {
  const down = (): never => {
    throw new Error('down');
  };
  const up = (): void => {};
  const worker = queue.work({ job: down, told: down, late: up, own: up, one: up, ordered: up }, { poll: '50ms' });
  await queue.drain();
  await worker.stop();
}

// Invariants J4.
test('a job with an onError of its own leaves a letter of that kind, however it was enqueued', async () => {
  const queue = declare();
  const none = await queue.enqueue('job', 'none');
  const ofKind = await queue.enqueue('told', 'of its kind');
  const one = await queue.enqueue('told', 'one', { onError: 'own' });
  const [many, plain] = await queue.enqueueMany([
    { kind: 'job', payload: 'many', onError: 'own' },
    { kind: 'job', payload: 'many' },
  ]);
  const keyed = await queue.enqueue('job', 'keyed', { onError: 'ordered', key: 'k' });
  const sql = await fromSql({ queue: queue.name, kind: 'job', payload: 'sql', onError: 'own' });
  const changed = await queue.enqueue('job', 'changed', { delay: '1h', tags: ['t'] });
  await queue.update(changed.id, { onError: 'own', delay: 0 });
  const flow = await queue.flow([
    { name: 'first', kind: 'job', payload: 'first', onError: 'own' },
    { name: 'child', kind: 'job', payload: 'child', onError: 'own', after: ['first'] },
  ]);
  expect((await queue.explain(one.id)).reasons.map(({ text }) => text).join()).toContain('a dead letter of kind "own"');
  await fails(queue);

  const own = [one.id, many ?? '', sql.id, changed.id, flow.first, flow.child];
  const expected = {
    [ofKind.id]: ['late'],
    [keyed.id]: ['ordered'],
    ...Object.fromEntries(own.map((id) => [id, ['own']])),
  };
  expect(await lettersOf(queue)).toEqual(expected);
  expect(Object.keys(expected)).not.toContain(none.id);
  expect(Object.keys(expected)).not.toContain(plain);
  expect((await queue.search('tag:t')).jobs.map(({ id }) => id)).toEqual([changed.id]);
});

test('one that ends with its worker leaves it, too, and it puts the job back to work', async () => {
  const queue = declare();
  const { id } = await queue.enqueue('job', 1, { onError: 'own' });
  const [unit] = await queue.claim({ lease: '1h' });
  expect(unit?.jobs[0]?.id).toBe(id);
  await inSql(`update pawl.queue_worker set expires_at = 'epoch' where queue = pawl.queue_id($1)`, [queue.name]);
  await until('a rescue has ended it', async () => {
    await inSql('select from pawl.queue_rescue(pawl.queue_id($1))', [queue.name]);
    return (await queue.get(id)).status === 'error';
  });
  expect(await lettersOf(queue)).toEqual({ [id]: ['own'] });

  const [letter] = (await queue.search('kind:own')).jobs;
  expect(await queue.redrive(letter?.id ?? '')).toEqual({ id, status: 'new' });
  expect((await queue.get(letter?.id ?? '')).status).toBe('cancelled');
  const plain = await queue.enqueue('job', 1);
  const stranger = await queue.enqueue('own', { job: plain.id });
  await expect(queue.redrive(stranger.id)).rejects.toBeInstanceOf(InvalidInput);
});

test('an onError that cannot be is refused by its name, from programs and from SQL, and nothing is written', async () => {
  const queue = declare();
  const blocking = createQueue(engine, `own blocks ${nth}`, { kinds: { job: {}, own: {} }, keyOnError: 'block' });
  await Promise.all([queue.register(), blocking.register()]);
  const bad: readonly (readonly [Queue<{ readonly job: object }>, string, RegExp])[] = [
    [queue, 'owm', /"owm"/],
    [queue, '', /onError/],
    [queue, 'one', /is unique/],
    [queue, 'ordered', /needs a key/],
    [blocking, 'own', /keyOnError/],
  ];
  for (const [into, onError, why] of bad) {
    const given = { onError };
    const calls: Promise<unknown>[] = [
      into.enqueue('job', 1, given),
      into.enqueueMany([{ kind: 'job', payload: 1, ...given }]),
      into.flow([{ name: 'a', kind: 'job', payload: 1, ...given }]),
      fromSql({ queue: into.name, kind: 'job', ...given }),
    ];
    for (const refused of await Promise.allSettled(calls)) {
      expect(refused, onError).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(why) } });
      expect(refused.status === 'rejected' && refused.reason).toBeInstanceOf(InvalidInput);
    }
    expect(await into.stats()).toMatchObject({ new: 0 });
  }
  const { id } = await queue.enqueue('job', 1, { onError: 'own' });
  await expect(queue.update(id, { onError: 'one', payload: 2 })).rejects.toThrow(/is unique/);
  const away = createQueue(engine, `own away ${nth}`, { kinds: { job: {} } });
  await away.register();
  const moved = inSql('select pawl.move($1::jsonb)', [JSON.stringify({ id, to: away.name })]);
  await expect(moved).rejects.toThrow(/has no kind "own"/);
  expect(await queue.get(id)).toMatchObject({ queue: queue.name, status: 'new', payload: 1 });
});
