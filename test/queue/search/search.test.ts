import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, searchFilter } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually, until } from '../../support/eventually.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

const kinds = { mail: {}, print: {} } as const;
type Mail = Queue<typeof kinds>;

function newQueue(shards = 1, attempts = 2): Mail {
  nth += 1;
  return createQueue(engine, `search ${nth}`, {
    kinds,
    shards,
    retry: { attempts, backoff: { kind: 'fixed', min: 1 } },
  });
}

async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

interface IndexAnswer {
  readonly chunks: number;
  readonly waits: boolean;
}

async function index(): Promise<IndexAnswer> {
  const [row] = await rows<{ answer: IndexAnswer }>('select pawl.queue_index(10000) as answer');
  return row?.answer ?? { chunks: -1, waits: false };
}

/** Waits until every transaction that is open on the server now has ended: those of other tests, too, delay a chunk. */
async function settled(): Promise<void> {
  const [now] = await rows<{ xid: string }>('select pg_current_xact_id()::text as xid');
  const isOver = 'select 1 where pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8';
  await until('older transactions are over', async () => (await rows(isOver, [now?.xid])).length === 1, 50_000);
}

/** All pages. */
async function found(queue: Mail, query: string, limit = 50): Promise<string[]> {
  const ids: string[] = [];
  let after: string | null | undefined;
  do {
    const page = await queue.search(query, { limit, after });
    expect(page.jobs.length).toBeLessThanOrEqual(limit);
    ids.push(...page.jobs.map(({ id }) => id));
    after = page.after;
  } while (after !== null);
  return ids;
}

const payloads = async (queue: Mail, query: string): Promise<unknown[]> =>
  (await queue.search(query)).jobs.map(({ payload }) => payload);

const fail = (): never => {
  throw new Error('connect ECONNREFUSED: the printer is unreachable');
};

test('words are found whole, in any case and any part of a payload; phrases are found in their order', async () => {
  const queue = newQueue();
  const texts = [
    { to: 'Ann@Acme.example', text: 'Warranty for the drill' },
    { to: 'bob', items: [{ name: 'drills', n: 4711 }] },
    'line one\nline two\ttabbed "quoted"',
    { text: 'Grüße aus Köln', path: 'a\\b', percent: '100% of_it' },
    null,
  ];
  await queue.enqueueMany(texts.map((payload) => ({ kind: 'mail', payload }) as const));
  const [a, b, c, d] = texts;
  expect(await payloads(queue, 'drill')).toEqual([a]);
  expect(await payloads(queue, 'DRILLS 4711')).toEqual([b]);
  expect(await payloads(queue, 'acme warranty')).toEqual([a]);
  expect(await payloads(queue, 'ann@acme.example')).toEqual([a]);
  expect(await payloads(queue, '"for the drill"')).toEqual([a]);
  expect(await payloads(queue, '"the for drill"')).toEqual([]);
  expect(await payloads(queue, 'arrant')).toEqual([]);
  expect(await payloads(queue, 'line tabbed quoted')).toEqual([c]);
  expect(await payloads(queue, 'nline')).toEqual([]);
  expect(await payloads(queue, 'köln')).toEqual([d]);
  expect(await payloads(queue, '"100% of_it"')).toEqual([d]);
  expect(await payloads(queue, '"1000 of_it"')).toEqual([]);
  expect(await payloads(queue, '"(drill" name')).toEqual([]);
  expect(await payloads(queue, '')).toEqual(texts.toReversed());
});

test('filters narrow a search by key, kind, status and time, alone and together', async () => {
  const queue = newQueue();
  const ids: string[] = [];
  for (const [n, options] of [
    [1, { key: 'k 1' }],
    [2, { key: 'k2' }],
    [3, { runAt: new Date(Date.now() + 3_600_000) }],
    [4, {}],
  ] as const) {
    ids.push((await queue.enqueue(n % 2 === 0 ? 'mail' : 'print', { n, word: 'ink' }, options)).id);
  }
  const [first = '', second = '', third = '', fourth = ''] = ids;
  await queue.cancel(second, { reason: 'too many' });
  expect(await found(queue, 'key:"k 1"')).toEqual([first]);
  expect(await found(queue, 'kind:mail')).toEqual([fourth, second]);
  expect(await found(queue, 'status:cancelled')).toEqual([second]);
  expect(await found(queue, 'status:new')).toEqual([fourth, third, first]);
  expect(await found(queue, 'status:new kind:print ink')).toEqual([third, first]);
  expect(await found(queue, 'kind:mail status:cancelled ink many')).toEqual([second]);
  expect(await found(queue, 'key:k2 status:new')).toEqual([]);
  expect(await found(queue, 'since:1h ink')).toEqual([fourth, third, second, first]);
  expect(await found(queue, 'until:1h ink')).toEqual([]);
  expect(await found(queue, `since:2020-01-01 until:${new Date(Date.now() + 60_000).toISOString()}`)).toHaveLength(4);
  const strange = `C:\\new "k" \\${'"'.repeat(500)}`;
  const { id } = await queue.enqueue('print', { n: 5 }, { key: strange });
  expect(await found(queue, searchFilter('key', strange))).toEqual([id]);
  const worker = queue.work({ mail: () => {}, print: () => {} });
  await queue.drain();
  await worker.stop();
  expect(await found(queue, 'status:complete ink')).toEqual([fourth, first]);
});

test('complete jobs are found at once behind thousands of waiting ones, and outlive their receipt if their key is unique', async () => {
  const queue = newQueue();
  const done = await queue.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ kind: 'mail' as const, payload: n })));
  const worker = queue.work({ mail: () => {}, print: () => {} });
  await queue.drain();
  await worker.stop();
  await queue.enqueueMany(Array.from({ length: 20_000 }, () => ({ kind: 'mail' as const, payload: null })));
  const newest = done.map(String).toReversed();
  const page = await queue.search('status:complete', { limit: 10, budget: '1ms' });
  expect(page.jobs.map(({ id }) => id)).toEqual(newest.slice(0, 10));
  expect(await found(queue, 'status:complete')).toEqual(newest);
  const once = createQueue(engine, 'search once', { kinds: { charge: { unique: 'key' } } });
  const { id } = await once.enqueue('charge', {}, { key: 'order 1' });
  const cashier = once.work({ charge: () => {} });
  await once.drain();
  await cashier.stop();
  const pruned = await rows('delete from pawl.queue_receipt where ids @> $1::bigint returning 1', [id]);
  expect(pruned).toHaveLength(1);
  const { jobs } = await once.search('status:complete');
  expect(jobs.map((job) => job.id)).toEqual([id]);
});

test('jobs are found by the words of their errors, whatever their final status', async () => {
  const queue = newQueue();
  const bad = await queue.enqueue('mail', { to: 'ann' });
  const late = await queue.enqueue('print', { to: 'bob' });
  await queue.enqueue('print', { to: 'cid' });
  let isSecond = false;
  const worker = queue.work({
    mail: fail,
    print: (unit) => {
      if (unit.job.id !== late.id || isSecond) return;
      isSecond = true;
      throw new Error('ECONNREFUSED at first');
    },
  });
  await eventually(async () => expect(await queue.stats()).toMatchObject({ new: 0, 'in-progress': 0 }));
  await worker.stop();
  expect(await found(queue, 'econnrefused')).toEqual([late.id, bad.id]);
  expect(await found(queue, 'econnrefused status:error')).toEqual([bad.id]);
  expect(await found(queue, 'econnrefused status:complete')).toEqual([late.id]);
  expect(await found(queue, '"printer is unreachable" status:error')).toEqual([bad.id]);
  expect(await found(queue, 'ann unreachable status:error')).toEqual([bad.id]);
  expect(await found(queue, 'bob unreachable')).toEqual([]);
});

test('a search covers chunks and the rest: its pages have every job once, like a scan of all jobs', async () => {
  const queue = newQueue(3);
  const other = newQueue();
  const words = ['red', 'blue', 'tall', 'old', 'rare', 'odd'];
  const at: { id: string; words: Set<string>; kind: string }[] = [];
  for (let round = 0; round < 6; round += 1) {
    const jobs = Array.from({ length: 900 }, (_, n) => {
      const some = words.filter((_word, index) => (n * 7 + round * 13 + n * n) % (index * index * 11 + 2) === 0);
      return {
        kind: n % 3 === 0 ? 'mail' : 'print',
        payload: { n, some, round: `r${round}` },
        key: `k${n % 50}`,
      } as const;
    });
    const ids = await queue.enqueueMany(jobs);
    ids.forEach((id, n) => {
      const job = jobs[n];
      if (job !== undefined) at.push({ id, words: new Set([...job.payload.some, `r${round}`]), kind: job.kind });
    });
    await other.enqueueMany(jobs.slice(0, 100));
    if (round === 3) {
      const first = await index();
      await settled();
      expect(first.chunks + (await index()).chunks).toBeGreaterThanOrEqual(3);
    }
  }
  const newestFirst = at.toSorted((a, b) => Number(b.id) - Number(a.id));
  const expected = (kind: string | undefined, ...all: string[]): string[] =>
    newestFirst
      .filter((job) => all.every((word) => job.words.has(word)) && (kind ?? job.kind) === job.kind)
      .map(({ id }) => id);
  for (const [query, ids] of [
    ['rare', expected(undefined, 'rare')],
    ['red tall', expected(undefined, 'red', 'tall')],
    ['odd r5', expected(undefined, 'odd', 'r5')],
    ['odd r0', expected(undefined, 'odd', 'r0')],
    ['kind:mail old', expected('mail', 'old')],
    ['nobody', []],
  ] as const) {
    expect(ids.length).toBeGreaterThan(query === 'nobody' ? -1 : 3);
    expect(await found(queue, query, 1000)).toEqual(ids);
    expect(await found(queue, query, 7)).toEqual(ids);
  }
  expect(await found(queue, 'kind:mail', 333)).toEqual(expected('mail'));
});

test('a chunk waits for every transaction that may still commit a job of it, and misses none', async () => {
  const queue = newQueue();
  // First closes the chunks of earlier tests.
  await settled();
  await until('the existing jobs are indexed', async () => {
    const { chunks, waits } = await index();
    return chunks === 0 && !waits;
  });
  let open = (): void => {};
  const mayCommit = new Promise<void>((resolve) => {
    open = resolve;
  });
  let told = (_id: string): void => {};
  const enqueued = new Promise<string>((resolve) => {
    told = resolve;
  });
  const late = engine.transaction(async (tx) => {
    told((await queue.enqueue('mail', 'latecomer', { tx })).id);
    await mayCommit;
  });
  const id = await enqueued;
  await queue.enqueueMany(Array.from({ length: 2100 }, (_, n) => ({ kind: 'mail', payload: n }) as const));
  expect(await index()).toMatchObject({ chunks: 0, waits: true });
  expect(await index()).toMatchObject({ chunks: 0, waits: true });
  expect(await found(queue, 'latecomer')).toEqual([]);
  open();
  await late;
  expect(await found(queue, 'latecomer')).toEqual([id]);
  await settled();
  await until('the chunk of the latecomer is closed', async () => {
    await index();
    const [state] = await rows<{ sealed: string }>('select sealed_to as sealed from pawl.queue_search_state');
    return Number(state?.sealed) > Number(id);
  });
  expect(await found(queue, 'latecomer')).toEqual([id]);
});

test('a worker indexes enqueued jobs, and removes chunks whose jobs are all gone', async () => {
  const queue = newQueue();
  await queue.enqueueMany(Array.from({ length: 2100 }, (_, n) => ({ kind: 'mail', payload: `word${n}` }) as const));
  using indexed = probe.watch('queue.indexed');
  const worker = queue.work({ mail: () => {}, print: () => {} });
  await indexed.next(({ chunks }) => Number(chunks) > 0);
  await queue.drain();
  await worker.stop();
  expect(await found(queue, 'word1234')).toHaveLength(1);
  const chunks = async (): Promise<number> =>
    (await rows<{ n: number }>('select count(*)::int as n from pawl.queue_search_chunk'))[0]?.n ?? -1;
  const before = await chunks();
  expect(before).toBeGreaterThan(1);
  const [oldest] = await rows<{ to: string }>('select min(id_to) as to from pawl.queue_search_chunk');
  await rows('delete from pawl.queue_job where id < $1', [oldest?.to]);
  await queue.enqueueMany(Array.from({ length: 1100 }, (_, n) => ({ kind: 'mail', payload: n }) as const));
  const { chunks: first } = await index();
  await settled();
  const { chunks: second } = await index();
  expect(await chunks()).toBe(before + first + second - 1);
});

test('payloads that jsonb would refuse, and words of any script, do not stop the index', async () => {
  const queue = newQueue();
  const odd = ['emoji 🎉 party', 'back\\slash \\u0041', 'x'.repeat(70_000), { deep: { er: ['ünïcode'] } }];
  await queue.enqueueMany(odd.map((payload) => ({ kind: 'mail', payload }) as const));
  // No public function accepts these payloads.
  const refused = String.raw`[{"big":1e400,"s":"caf\u00e9"},"a\u0000b nul","\ud83d alone"]`;
  await rows(
    `select pawl.queue_add(pawl.queue_id($1), 0::smallint, 3, array[k.id], array[0::smallint], $2::json)
    from pawl.queue_kind k where k.queue = pawl.queue_id($1) and k.name = 'mail'`,
    [queue.name, refused],
  );
  await queue.enqueueMany(Array.from({ length: 1100 }, (_, n) => ({ kind: 'print', payload: n }) as const));
  const words = ['nul', 'party', 'alone', 'slash', 'ünïcode', 'big'];
  const counts = async (): Promise<number[]> =>
    Promise.all(words.map(async (word) => (await found(queue, word)).length));
  expect(await counts()).toEqual([1, 1, 1, 1, 1, 1]);
  // Other tests' jobs are indexed, too; any of the calls may make the chunk of these.
  await index();
  await settled();
  await index();
  expect(await rows('select 1 from pawl.queue_search_chunk limit 1', [])).toHaveLength(1);
  expect(await counts()).toEqual([1, 1, 1, 1, 1, 1]);
});

test('a search without a queue covers all queues', async () => {
  const [one, two] = [newQueue(), newQueue()];
  const a = await one.enqueue('mail', 'zebra');
  const b = await two.enqueue('print', 'zebra', { key: 'z' });
  const admin = createQueueAdmin(engine);
  const ids = async (query: string, options = {}): Promise<string[]> =>
    (await admin.search(query, options)).jobs.map(({ id }) => id);
  expect(await ids('zebra')).toEqual([b.id, a.id]);
  expect(await ids('zebra', { queue: one.name })).toEqual([a.id]);
  expect(await ids('zebra', { limit: 1 })).toEqual([b.id]);
  expect(await ids('key:z status:new')).toEqual([b.id]);
  // On a busy machine the usual time of a page may be over before it has seen that there are no more.
  expect(await one.search('zebra', { budget: '10s' })).toMatchObject({
    jobs: [{ id: a.id, queue: one.name, status: 'new' }],
    after: null,
  });
});

test('a malformed query is refused, and the error says what to write instead', async () => {
  const queue = newQueue();
  const refused = async (query: string, words: RegExp): Promise<void> => {
    const error: unknown = await queue.search(query).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field: 'query', message: expect.stringMatching(words) });
  };
  await refused('status:eror', /no status "eror"; did you mean "error"/);
  await refused('stauts:error', /no filter "stauts:"; did you mean "status:"/);
  await refused('status:', /needs a value/);
  await refused('kind:mail kind:print', /given twice/);
  await refused('"open', /quote at ""open" is not closed/);
  await refused('since:yesterday', /takes a date/);
  await refused('until:2026-13-01', /takes a date/);
  await refused('--- x', /no letter or digit/);
  await refused('key:"a\\"', /is not closed/);
  await refused('key:a\0', /U\+0000/);
  await refused('kind:\ud800', /lone surrogate/);
  await refused('x'.repeat(3001), /at most 3000 characters/);
  await refused('w '.repeat(21), /more than 20 words/);
  await expect(queue.search('kind:fax')).rejects.toThrow(/no kind "fax"; there are "mail", "print"/);
  await expect(queue.search('kind:fax')).rejects.toBeInstanceOf(NotFound);
  await expect(queue.search('x', { after: 'bogus' })).rejects.toThrow(/is no cursor/);
  await expect(queue.search('x', { limit: 0 })).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.search('x', { limt: 5 } as object)).rejects.toThrow(/did you mean "limit"/);
  expect(await found(queue, 'http://example.com/x?y=1')).toEqual([]);
  expect(await found(queue, `x'); drop table pawl.queue_job;--x`)).toEqual([]);
});
