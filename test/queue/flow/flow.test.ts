import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { Draw } from '../../support/random.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20, logger: recordLog() });
});

afterAll(() => engine.stop());

const kinds = { job: { attempts: 2 }, once: { unique: 'key' } } as const;
type Jobs = Queue<typeof kinds>;

function newQueue(shards = 1): Jobs {
  nth += 1;
  return createQueue(engine, `flow ${nth}`, { kinds, shards, retry: { backoff: { kind: 'fixed', min: 1 } } });
}

async function working<T>(queues: readonly Jobs[], run: (unit: Unit) => unknown, body: () => Promise<T>): Promise<T> {
  const workers = queues.map((queue) => queue.work({ job: run, once: run }, { concurrency: 20 }));
  try {
    return await body();
  } finally {
    for (const worker of workers) await worker.stop();
  }
}

async function jobs(): Promise<number> {
  const [row] = await engine.query<{ n: number }>(
    statement('test.jobs', 'select count(*)::int as n from pawl.queue_job'),
  );
  return row?.n ?? -1;
}

test('jobs that become ready together are runs, though each comes after others; what is not plain stands alone', async () => {
  const queue = newQueue();
  const session = await SqlSession.open(url);
  onTestFinished(() => session.end());
  await queue.register();
  const id = await session.one<number>('select pawl.queue_id($1)', [queue.name]);
  const parents = Array.from({ length: 30 }, (_, n) => ({ name: `p${n}` }));
  // Each pair of parents has one child.
  const pairs = parents.flatMap(({ name }, n) => parents.slice(n + 1).map((other) => [name, other.name]));
  const special: Record<number, object> = { 5: { tags: ['own'] }, 9: { priority: 1 }, 12: { key: 'k' } };
  const children = pairs.map((after, n) => ({ name: `c${n}`, after, ...special[n] }));
  const ids = await queue.flow(
    [...parents, ...children].map((node) => ({ kind: 'job', payload: 0, ...node }) as const),
  );
  // Of another enqueue, with an id that follows.
  await queue.flow([{ name: 'late', kind: 'job', payload: 0, after: [ids['p0'] ?? ''] }]);
  const worker = await session.addWorker(id);
  const { jobs: claimed } = await session.claim(id, worker, { limit: 30 });
  await session.complete(id, worker, claimed);
  const { rows } = await session.client.query<{ n: number; jobs: number; enqueues: number; own: number }>(
    `select r.n, j.* from pawl.queue_ready r cross join lateral (
       select count(*)::int as jobs, count(distinct j.created_at)::int as enqueues,
         (count(j.key) + count(j.options) + count(nullif(j.priority, 0)))::int as own
       from pawl.queue_job j where j.shard = 0 and j.id >= r.id and j.id < r.id + r.n) j
     where r.queue = $1`,
    [id],
  );
  expect(rows.reduce((sum, { n }) => sum + n, 0)).toBe(pairs.length + 1);
  for (const { n, jobs: there, enqueues, own } of rows) {
    expect({ there, enqueues }).toEqual({ there: n, enqueues: 1 });
    expect(n).toBeLessThanOrEqual(own > 0 ? 1 : 256);
  }
  // Three that stand alone, one of another enqueue, and runs, of which the three may have parted some.
  expect(rows.length).toBeLessThanOrEqual(3 + 1 + 2 + 4);
});

test('a graph over two queues runs in its order, and each node reads the results of those before it', async () => {
  const queue = newQueue();
  const other = newQueue(4);
  const ids = await queue.flow([
    { name: 'total', kind: 'job', payload: 'total', after: ['left', 'right'] },
    { name: 'left', kind: 'job', payload: 'left', after: ['start'], priority: 3 },
    { name: 'right', queue: other, kind: 'job', payload: 'right', after: ['start'], key: 'k', meta: { side: 'right' } },
    { name: 'start', kind: 'job', payload: 'start' },
  ]);
  expect(Object.keys(ids).length).toBe(4);
  const result = await working(
    [queue, other],
    async (unit) => {
      const parents = await unit.parents();
      return [unit.payload, ...parents.map(({ result: of }) => of)];
    },
    () => queue.waitFor(ids['total'] ?? ''),
  );
  expect(result).toEqual(['total', ['left', ['start']], ['right', ['start']]]);
  expect(await other.get(ids['right'] ?? '')).toMatchObject({ key: 'k', meta: { side: 'right' } });
});

test('a flow comes after jobs that exist, and before others', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 'first');
  const ids = await queue.flow([{ name: 'a', kind: 'job', payload: 'a', after: [id] }]);
  const last = await queue.enqueue('job', 'last', { after: [ids['a'] ?? ''] });
  const order: unknown[] = [];
  await working(
    [queue],
    (unit) => void order.push(unit.payload),
    () => queue.waitFor(last.id),
  );
  expect(order).toEqual(['first', 'a', 'last']);
});

test('a flow is of the transaction that it is enqueued in', async () => {
  const queue = newQueue();
  await queue.register();
  const before = await jobs();
  const undone = engine.transaction(async (tx) => {
    await queue.flow(
      [
        { name: 'a', kind: 'job', payload: 1 },
        { name: 'b', kind: 'job', payload: 2, after: ['a'] },
      ],
      { tx },
    );
    throw new Error('undone');
  });
  await expect(undone).rejects.toThrow('undone');
  expect(await jobs()).toBe(before);
  const ids = await engine.transaction((tx) => queue.flow([{ name: 'a', kind: 'job', payload: 1 }], { tx }));
  expect((await queue.get(ids['a'] ?? '')).status).toBe('new');
});

test('what is no graph is refused by name, and nothing is written', async () => {
  const queue = newQueue();
  await queue.register();
  const before = await jobs();
  const node = (
    name: string,
    after: string[] = [],
  ): { name: string; kind: 'job'; payload: number; after: string[] } => ({
    name,
    kind: 'job',
    payload: 1,
    after,
  });
  await expect(queue.flow([node('a', ['c']), node('b', ['a']), node('c', ['b']), node('d', ['c'])])).rejects.toThrow(
    'nodes of the flow come after each other in a cycle: "a" after "c" after "b" after "a"',
  );
  await expect(queue.flow([node('a', ['a'])])).rejects.toThrow('in a cycle: "a" after "a"');
  await expect(queue.flow([node('start'), node('b', ['strat'])])).rejects.toThrow('did you mean "start"?');
  await expect(queue.flow([node('a'), node('a')])).rejects.toThrow('two nodes of the flow are named "a"');
  await expect(queue.flow([node('7')])).rejects.toThrow(InvalidInput);
  await expect(queue.flow([node('a'), node('b', ['987654321'])])).rejects.toThrow(NotFound);
  await expect(queue.flow([{ name: 'a', kind: 'once', payload: 1, key: 'k' }])).rejects.toThrow(
    'is unique or throttled',
  );
  await expect(queue.flow([{ ...node('a'), colour: 'red' } as never])).rejects.toThrow(
    'unknown field "colour" in nodes[0]',
  );
  expect(await queue.flow([])).toEqual({});
  expect(await jobs()).toBe(before);
});

test('what a flow leaves behind goes with the history of its queue', async () => {
  const queue = createQueue(engine, `flow of a day ${Date.now()}`, { kinds: { job: {} }, history: '1d' });
  const names = ['a', 'b', 'c'];
  await queue.flow([
    ...names.map((name) => ({ name, kind: 'job', payload: name }) as const),
    ...names.map((name) => ({ name: `${name}2`, kind: 'job', payload: name, after: [name] }) as const),
    { name: 'last', kind: 'job', payload: 'last', after: ['a2', 'b2', 'c2'] },
  ]);
  const worker = queue.work({ job: () => undefined });
  await queue.drain({ delayed: true });
  await worker.stop();
  const run = (text: string): Promise<{ n: number }[]> =>
    engine.query<{ n: number }>(statement('test.history', text, { prepare: false }), [queue.name]);
  const left = `
    select ((select count(*) from pawl.queue_watch w where w.queue = q.id) + (select count(*) from pawl.queue_watch_over o where o.queue = q.id)
      + (select count(*) from pawl.queue_child c join pawl.queue_job j on j.shard = c.shard and j.id = c.first where j.queue = q.id))::int as n
    from pawl.queue_definition q where q.name = $1`;
  const [before] = await run(left);
  expect(before?.n).toBeGreaterThan(8);
  await run('select pawl.queue_prune(pawl.queue_id($1), 1000) as n');
  expect(await run(left)).toEqual([before]);
  for (const [table, at] of [
    ['queue_watch_over', 'over_at'],
    ['queue_receipt', 'settled_at'],
    ['queue_receipt_one', 'settled_at'],
  ]) {
    await run(`update pawl.${table} set ${at} = ${at} - interval '2 days' where queue = pawl.queue_id($1)`);
  }
  await run('select pawl.queue_prune(pawl.queue_id($1), 1000) as n');
  expect(await run(left)).toEqual([{ n: 0 }]);
});

test('a thousand nodes of one layer are one watch, and few rows', async () => {
  const queue = newQueue();
  const layer = (name: string, after: string[]): { name: string; kind: 'job'; payload: number; after: string[] }[] =>
    Array.from({ length: 500 }, (_, n) => ({ name: `${name} ${n}`, kind: 'job', payload: n, after }));
  const first = layer('first', []);
  const ids = await queue.flow([
    ...first,
    ...layer(
      'second',
      first.map(({ name }) => name),
    ),
  ]);
  const [rows] = await engine.query<{ watches: number; delayed: number }>(
    statement(
      'test.rows',
      `select (select count(*)::int from pawl.queue_watch w where exists (select from pawl.queue_watch_part p where p.watch = w.id) and w.sort = 'after') as watches,
        (select count(*)::int from pawl.queue_delayed d where d.n > 1) as delayed`,
    ),
  );
  expect(rows).toEqual({ watches: 1, delayed: 2 });
  let ended = 0;
  let early = 0;
  await working(
    [queue],
    (unit) => {
      if (Number(unit.job.id) > Number(ids['first 499']) && ended < 500) early += 1;
      ended += 1;
    },
    () => queue.drain({ delayed: true, timeout: '60s' }),
  );
  expect([ended, early]).toEqual([1000, 0]);
});

/** What becomes of each node, by a model: decided in the order of the layers. */
function modelled(nodes: readonly RandomNode[]): Map<string, string> {
  const outcomes = new Map<string, string>();
  for (const { name, after, fails, afterError, afterCancel } of nodes) {
    const before = after.map((parent) => outcomes.get(parent));
    const fate =
      before.includes('error') && afterError !== 'run'
        ? afterError
        : before.includes('cancelled') && afterCancel !== 'run'
          ? afterCancel
          : 'run';
    outcomes.set(
      name,
      fate === 'error' || (fate === 'run' && fails) ? 'error' : fate === 'cancel' ? 'cancelled' : 'complete',
    );
  }
  return outcomes;
}

interface RandomNode {
  readonly name: string;
  readonly after: string[];
  readonly fails: boolean;
  readonly afterError: 'run' | 'error' | 'cancel';
  readonly afterCancel: 'run' | 'error' | 'cancel';
}

// Invariants J1.
test('diamonds of five layers with random failures end as a model says', async () => {
  const draw = new Draw(20, 'diamonds');
  const policy = (): 'run' | 'error' | 'cancel' => draw.pick('run', 'error', 'cancel');
  const queues = [newQueue(), newQueue(3)] as const;
  const queueOf = (n: number): Jobs => queues[n % 2 === 0 ? 0 : 1];
  const flows = Array.from({ length: 12 }, () => {
    const nodes: RandomNode[] = [];
    let above: string[] = [];
    for (let layer = 0; layer < 5; layer += 1) {
      const size = layer === 0 || layer === 4 ? 1 : draw.int(2, 6);
      const names = Array.from({ length: size }, (_, n) => `${layer}/${n}`);
      for (const name of names) {
        const chosen = above.filter(() => draw.chance(0.6));
        const after = layer === 0 ? [] : layer === 4 ? above : chosen.length > 0 ? chosen : above.slice(0, 1);
        nodes.push({ name, after, fails: draw.chance(0.2), afterError: policy(), afterCancel: policy() });
      }
      above = names;
    }
    return nodes;
  });
  const begun = new Map<string, number>();
  const all = await working(
    queues,
    async (unit) => {
      const { fails, name } = unit.payload as { fails: boolean; name: string };
      begun.set(name, (begun.get(name) ?? 0) + 1);
      for (const parent of await unit.parents()) expect(['complete', 'error', 'cancelled']).toContain(parent.status);
      if (fails) throw new Error('it fails');
      return name;
    },
    async () => {
      const added = await Promise.all(
        flows.map((nodes, f) =>
          queues[0].flow(
            nodes.map(({ name, after, fails, afterError, afterCancel }, n) => ({
              name,
              queue: queueOf(n),
              kind: 'job',
              payload: { fails, name: `${f} ${name}` },
              after,
              afterError,
              afterCancel,
              ...(n % 5 === 4 && { key: `key ${f}` }),
            })),
          ),
        ),
      );
      for (const queue of queues) await queue.drain({ delayed: true, timeout: '60s' });
      for (const queue of queues) await queue.drain({ delayed: true, timeout: '60s' });
      return added;
    },
  );
  for (const [f, ids] of all.entries()) {
    const expected = modelled(flows[f] ?? []);
    const found = new Map<string, string>();
    for (const [n, { name }] of (flows[f] ?? []).entries()) {
      found.set(name, (await queueOf(n).get(ids[name] ?? '')).status);
    }
    expect(found).toEqual(expected);
    for (const [name, outcome] of expected) {
      if (outcome === 'complete') expect(begun.get(`${f} ${name}`)).toBe(1);
      if (outcome === 'cancelled') expect(begun.get(`${f} ${name}`)).toBeUndefined();
      // It has failed in both attempts, or never begun.
      if (outcome === 'error') expect([undefined, 2]).toContain(begun.get(`${f} ${name}`));
    }
  }
  const [left] = await engine.query<{ n: number }>(
    statement(
      'test.parts',
      `select count(*)::int as n from pawl.queue_watch_part p join pawl.queue_watch w on w.id = p.watch where w.sort = 'after' and w.queue in (select d.id from pawl.queue_definition d where d.name = any ($1))`,
    ),
    [queues.map(({ name }) => name)],
  );
  expect(left?.n).toBe(0);
});
