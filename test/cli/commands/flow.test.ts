import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import type { PawlExit } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const kinds = { send: {}, report: {}, once: { unique: 'key' } } as const;

let url: string;
let engine: PostgresEngine;
let folder: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url);
  folder = mkdtempSync(join(tmpdir(), 'pawl-cli-'));
  return async () => {
    rmSync(folder, { recursive: true, force: true });
    await engine.stop();
  };
});

async function newQueue(): Promise<Queue<typeof kinds>> {
  nth += 1;
  const queue = createQueue(engine, `mails-${nth}`, { kinds });
  await queue.register();
  return queue;
}

function fileOf(value: unknown): string {
  const file = join(folder, 'jobs.json');
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
  return file;
}

const pawl = (words: readonly string[], stdin?: string): Promise<PawlExit> =>
  warmPawl(words, { url, ...(stdin !== undefined && { input: stdin }) });

async function json(words: readonly string[], stdin?: string): Promise<unknown> {
  const { code, stdout, stderr } = await pawl([...words, '-o', 'json'], stdin);
  expect({ words, code, stderr }).toMatchObject({ words, code: 0 });
  return JSON.parse(stdout);
}

async function runAll(queue: Queue<typeof kinds>): Promise<void> {
  const worker = queue.work({ send: () => 'sent', report: () => 'reported', once: () => 'once' });
  await queue.drain();
  await worker.stop();
}

test('a time in words is refused, and is no time long ago', async () => {
  const queue = await newQueue();
  const words = ['flow', 'add', '--queue', queue.name];
  const of = (runAt: string): string => JSON.stringify([{ name: 'one', kind: 'send', runAt }]);
  expect((await pawl(words, of('tomorrow 5'))).code).toBe(2);
  expect((await queue.stats()).new).toBe(0);
  await json(words, of('10m'));
  expect((await queue.stats()).delayed).toBe(1);
});

test('a flow is added as a whole, from a file or from stdin, in any order of its nodes', async () => {
  const [queue, other] = [await newQueue(), await newQueue()];
  const nodes = [
    { name: 'last', kind: 'report', after: ['left', 'right'], key: 'k' },
    { name: 'left', kind: 'send', after: ['first'], runAt: '2020-01-01T00:00:00Z' },
    { name: 'right', queue: other.name, kind: 'send', after: ['first'], tags: ['blue'] },
    { name: 'first', kind: 'send', payload: { to: 'ada' } },
  ];
  const words = ['flow', 'add', fileOf(nodes), '--queue', queue.name];
  expect(await pawl([...words, '--dry-run'])).toMatchObject({ code: 0, stdout: '' });
  expect((await queue.stats()).new).toBe(0);
  const added = (await json(words)) as { name: string; id: string }[];
  const ids = new Map(added.map(({ name, id }) => [name, id]));
  expect([...ids.keys()]).toEqual(['last', 'left', 'right', 'first']);
  expect([(await queue.stats()).delayed, (await other.stats()).delayed]).toEqual([2, 1]);
  const workers = [queue, other].map((one) =>
    one.work({ send: () => 'sent', report: () => 'reported', once: () => 1 }),
  );
  expect(await queue.waitFor(ids.get('last') ?? '')).toBe('reported');
  await Promise.all(workers.map((worker) => worker.stop()));
  expect(await queue.get({ key: 'k' })).toMatchObject({ id: ids.get('last'), status: 'complete' });
  const more = [{ name: 'then', queue: queue.name, kind: 'send', after: [ids.get('last')] }];
  expect((await pawl(['flow', 'add', '-', '-q'], JSON.stringify(more))).stdout).toMatch(/^\d+\n$/);
});

test('a flow with a cycle, an unknown parent, a bad node or a queue that is not there adds nothing', async () => {
  const queue = await newQueue();
  const node = (name: string, more: object = {}): object => ({ name, queue: queue.name, kind: 'send', ...more });
  for (const [nodes, code, said] of [
    [[node('a', { after: ['b'] }), node('b', { after: ['a'] })], 2, /cycle: "a" after "b" after "a"/],
    [[node('first'), node('b', { after: ['frist'] })], 2, /did you mean "first"\?/],
    [[node('a'), node('a')], 2, /two nodes of the flow are named "a"/],
    [[node('a'), node('b', { after: ['a'], attempts: 0 })], 2, /attempts/],
    [[node('a'), node('b', { after: ['a'], runAt: 'soon' })], 2, /runAt/],
    [[node('a'), node('b', { after: ['a'], kind: 'snd' })], 2, /has no kind "snd"/],
    [[node('a'), node('b', { after: ['a'], queue: 'nowhere' })], 4, /queue "nowhere" does not exist/],
    [[node('a'), node('b', { after: ['999999'] })], 4, /999999/],
    [[node('a'), 7], 2, /nodes\[1\] must be an object/],
    [{ a: 1 }, 2, /a flow must be an array of jobs/],
    ['[{', 2, /no JSON/],
  ] as const) {
    const answer = await pawl(['flow', 'add', fileOf(nodes)]);
    expect({ nodes, code: answer.code, stdout: answer.stdout }).toEqual({ nodes, code, stdout: '' });
    expect(answer.stderr).toMatch(said);
  }
  expect((await pawl(['flow', 'add', fileOf([node('a')]), '--read-only'])).code).toBe(2);
  expect((await queue.stats()).new).toBe(0);
});

test('a batch is made with jobs, filled, listed, sealed and done; its callback is enqueued once', async () => {
  const queue = await newQueue();
  const jobs = fileOf([
    { kind: 'send', payload: 1 },
    { kind: 'send', key: 'k' },
  ]);
  const words = ['batch', 'make', queue.name, '--file', jobs, '--on-done', '{"kind":"report","payload":{"n":1}}'];
  expect(await pawl([...words, '--dry-run'])).toMatchObject({ code: 0, stdout: '' });
  expect(await json(['batch', 'list', queue.name])).toEqual([]);
  const { id } = (await json(words)) as { id: string };
  expect(await json(['batch', 'add', id], '[{"kind":"send"}]')).toMatchObject([{ status: 'new', duplicate: false }]);
  const inner = (await pawl(['batch', 'make', queue.name, '--parent', id, '--seal', '-q'])).stdout.trim();
  expect(await json(['batch', 'list', queue.name])).toMatchObject([
    { id: inner, total: 0, sealedAt: expect.any(String) as string, doneAt: expect.any(String) as string },
    { id, total: 4, outstanding: 3, sealedAt: null },
  ]);
  expect((await pawl(['batch', 'list', queue.name, '--limit', '1', '-q'])).stdout).toBe(`${inner}\n`);
  expect((await pawl(['batch', 'list', queue.name, '--before', inner, '-q'])).stdout).toBe(`${id}\n`);
  await json(['batch', 'seal', id]);
  await runAll(queue);
  expect(await json(['batch', 'show', id])).toMatchObject({ outstanding: 0, complete: 4, problem: null });
  expect((await queue.search('kind:report')).jobs).toMatchObject([{ payload: { n: 1 } }]);
  const late = await pawl(['batch', 'add', id], '[{"kind":"send"}]');
  expect(late).toMatchObject({ code: 5, stdout: '', stderr: expect.stringMatching(/was sealed/) as string });
});

test('a batch whose jobs or callbacks cannot be is not made', async () => {
  const queue = await newQueue();
  for (const [words, code, said] of [
    [['--on-done', '{"kind":"reprot"}'], 2, /onDone: queue .* has no kind "reprot"/],
    [['--on-done', '{'], 2, /It must be a job as JSON/],
    [['--on-error', '{"kind":"report","attempts":0}'], 2, /attempts/],
    [['--file', fileOf([{ kind: 'send' }, { kind: 'snd' }])], 2, /has no kind "snd"/],
    [['--parent', '999999'], 4, /there is no batch 999999/],
  ] as const) {
    const answer = await pawl(['batch', 'make', queue.name, ...words]);
    expect({ words, code: answer.code, stdout: answer.stdout }).toEqual({ words, code, stdout: '' });
    expect(answer.stderr).toMatch(said);
  }
  expect((await pawl(['batch', 'make', 'nowhere'])).code).toBe(4);
  expect((await pawl(['batch', 'list', 'nowhere'])).code).toBe(4);
  expect((await pawl(['batch', 'add', '999999'], '[{"kind":"send"}]')).code).toBe(4);
  expect(await json(['batch', 'list', queue.name])).toEqual([]);
  expect((await queue.stats()).new).toBe(0);
});

test('--unique and its like say which jobs are the same, and the one that is there is answered', async () => {
  const queue = await newQueue();
  const add = (payload: object, ...words: string[]): Promise<unknown> =>
    json(['job', 'add', queue.name, 'send', JSON.stringify(payload), ...words]);
  const rule = ['--unique-by', 'user.id', '--unique-while', 'waiting', '--unique-per', '1h'];
  const first = (await add({ user: { id: 1 }, n: 1 }, ...rule)) as { id: string };
  expect(await add({ user: { id: 1 }, n: 2 }, ...rule)).toMatchObject({ id: first.id, duplicate: true });
  expect(await add({ user: { id: 2 } }, ...rule)).toMatchObject({ duplicate: false });
  const keyed = (await add({}, '--key', 'k', '--unique')) as { id: string };
  expect(await add({}, '--key', 'k', '--unique')).toMatchObject({ id: keyed.id, duplicate: true });
  expect(await add({}, '--key', 'k', '--no-unique')).toMatchObject({ duplicate: false });
  for (const words of [
    ['--unique', '--unique-by', 'key'],
    ['--unique-while', 'now'],
    ['--unique-per', 'soon'],
    ['--unique'],
  ])
    expect({ words, code: (await pawl(['job', 'add', queue.name, 'send', ...words])).code }).toEqual({
      words,
      code: 2,
    });
  expect((await queue.stats()).new).toBe(4);
});
