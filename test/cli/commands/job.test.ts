import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { type PawlExit, type PawlOptions, startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const KINDS = { send: {}, welcome: { unique: 'key' }, bad: { attempts: 1 } } as const;

interface Fixture {
  readonly queue: Queue<typeof KINDS>;
  readonly locks: Locks;
  readonly engine: PostgresEngine;
  readonly job: (args: readonly string[], options?: PawlOptions) => Promise<PawlExit>;
}

async function fixture(): Promise<Fixture> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'emails', { kinds: KINDS, concurrency: { perGroup: 1 } });
  await queue.register();
  return {
    queue,
    engine,
    locks: createLocks(engine),
    job: (args, options) => warmPawl(['job', ...args], { url, ...options }),
  };
}

/** Runs every job that is there: `bad` ones fail. */
async function runAll(queue: Queue<typeof KINDS>, ...ids: readonly string[]): Promise<void> {
  const bad = (): never => {
    throw new Error('mailbox full');
  };
  await using worker = queue.work({ send: () => 'sent', welcome: () => {}, bad });
  await worker.started;
  for (const id of ids)
    await until('the job is settled', async () => !['new', 'in-progress'].includes((await queue.get(id)).status));
}

test('what was done to some of several jobs is printed, also if the server goes away before the others', async () => {
  const { queue, job, engine } = await fixture();
  const ids: string[] = [];
  for (let n = 0; n < 3; n += 1) ids.push((await queue.enqueue('send', n)).id);
  await engine.session((session) =>
    session.run(`
create function public.go_away() returns trigger language plpgsql as $$ begin
  perform pg_terminate_backend(pg_backend_pid());
  perform pg_sleep(10);
  return new;
end $$;
create trigger go_away before insert on pawl.queue_dead for each row when (new.id = ${ids[1]}) execute function public.go_away()`),
  );
  const said = await job(['cancel', ...ids, '--yes', '-q']);
  expect(said).toMatchObject({ code: 3, stdout: `${ids[0]}\n` });
  expect(said.stderr).toContain('the database ended the connection');
  expect((await queue.get(ids[2] ?? '')).status).toBe('new');
});

test('a day that does not exist is no time', async () => {
  const said = await warmPawl(['job', 'add', 'q', 'k', '--run-at', '2126-02-31T09:30:00Z'], { url: 'postgres://none' });
  expect(said).toMatchObject({ code: 2, stderr: expect.stringContaining('--run-at') });
});

test('add enqueues from an argument, stdin or a file, with key, priority and time', async () => {
  const { queue, job } = await fixture();
  const file = join(mkdtempSync(join(tmpdir(), 'pawl-cli-')), 'payload.json');
  onTestFinished(() => rmSync(join(file, '..'), { recursive: true, force: true }));
  writeFileSync(file, '{"to":"carl"}');
  const given = await job([
    'add',
    'emails',
    'send',
    '{"to":"ada"}',
    '--key',
    'k',
    '--priority',
    '-5',
    '--run-at',
    '10m',
    '-o',
    'json',
  ]);
  const { id, ...rest } = JSON.parse(given.stdout);
  expect(rest).toEqual({ status: 'new', duplicate: false });
  expect(await queue.get(id)).toMatchObject({
    payload: { to: 'ada' },
    key: 'k',
    priority: -5,
    runAt: expect.any(Date),
  });
  const piped = await job(['add', 'emails', 'send', '-', '-q'], { input: '["bob"]' });
  expect((await queue.get(piped.stdout.trim())).payload).toEqual(['bob']);
  const read = await job(['add', 'emails', 'send', '--file', file, '-q']);
  expect((await queue.get(read.stdout.trim())).payload).toEqual({ to: 'carl' });
});

test('add waits for a program that writes its payload slowly, and refuses one in another encoding', async () => {
  const { queue, job } = await fixture();
  const slow = await job(['add', 'emails', 'send', '-', '-q'], { input: ['"', 'x'.repeat(1_000_000), '"'] });
  expect(slow).toMatchObject({ code: 0, stderr: '' });
  expect((await queue.get(slow.stdout.trim())).payload).toHaveLength(1_000_000);
  const file = join(mkdtempSync(join(tmpdir(), 'pawl-cli-')), 'latin.json');
  onTestFinished(() => rmSync(join(file, '..'), { recursive: true, force: true }));
  writeFileSync(file, '"Müller"', 'latin1');
  expect(await job(['add', 'emails', 'send', '--file', file])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(file),
  });
});

test('a command that reads stdin ends when its time is over', async () => {
  const { url } = await freshDatabase();
  const child = startPawl(['job', 'add', 'emails', 'send', '-', '--timeout', '1s'], { url, input: null });
  expect((await child.ended).code).toBe(6);
});

test('a question that gets no answer, because stdin ends, is answered by no', async () => {
  const { queue, job } = await fixture();
  const { id } = await queue.enqueue('send', 1);
  const terminal = 'process.stdin.isTTY=true;process.stderr.isTTY=true';
  const env = { NODE_OPTIONS: `--import=data:text/javascript,${terminal}` };
  const asked = await job(['erase', id], { env, input: '' });
  expect(asked).toMatchObject({ code: 1, stderr: expect.stringContaining('nothing was done') });
  expect((await queue.get(id)).payload).toBe(1);
});

test('add of a duplicate gives the id that is there; --dry-run adds nothing', async () => {
  const { queue, job } = await fixture();
  const first = await job(['add', 'emails', 'welcome', '--key', 'ada', '-q']);
  const second = await job(['add', 'emails', 'welcome', '--key', 'ada', '-o', 'json']);
  expect(JSON.parse(second.stdout)).toMatchObject({ id: first.stdout.trim(), duplicate: true });
  expect(await job(['add', 'emails', 'send', '--dry-run'])).toMatchObject({ code: 0, stdout: '' });
  expect(await job(['add', 'emails', 'sned', '--dry-run'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('has no kind "sned"'),
  });
  expect(await job(['add', 'emails', 'send', '"\\u0000"'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('cannot hold U+0000'),
  });
  expect((await queue.stats()).ready).toBe(1);
});

test('add refuses what is no JSON, an unknown kind, and an unknown queue', async () => {
  const { job } = await fixture();
  expect(await job(['add', 'emails', 'send', '{to:ada}'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('the payload is no JSON, but "{to:ada}": '),
  });
  expect(await job(['add', 'emails', 'send', '--file', 'nowhere.json'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('nowhere.json cannot be read: ENOENT'),
  });
  expect((await job(['add', 'emails', 'sned', '{}'])).code).not.toBe(0);
  expect(await job(['add', 'nope', 'send', '{}'])).toMatchObject({ code: 4 });
});

test('list and search show the newest jobs that fit, as a table, as JSON, and as ids for the next command', async () => {
  const { queue, job } = await fixture();
  const { id: bad } = await queue.enqueue('bad', { to: 'ada' }, { key: 'a "key"' });
  await runAll(queue, bad);
  const ids = await queue.enqueueMany(
    Array.from({ length: 5 }, (_, n) => ({ kind: 'send' as const, payload: { to: `carl ${n}` }, key: 'a "k" \\' })),
  );
  const newest = ids.map(String).toReversed();
  const lines = (of: readonly string[]): string => of.map((id) => `${id}\n`).join('');
  expect(await job(['list', '--status', 'error', '-q'])).toMatchObject({ code: 0, stdout: lines([bad]) });
  expect((await job(['list', '--status', 'error'])).stdout).toMatch(/ID +QUEUE.*\n.*emails +bad.*error.*mailbox full/);
  expect((await job(['list', '--queue', 'emails', '--kind', 'send', '--key', 'a "k" \\', '-q'])).stdout).toBe(
    lines(newest),
  );
  const some = await job(['list', '--since', '1h', '--limit', '2', '-o', 'jsonl']);
  expect(
    some.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).id),
  ).toEqual(newest.slice(0, 2));
  const [, after = ''] = /add --after (\S+)/.exec(some.stderr) ?? [];
  expect((await job(['list', '--after', after, '-q'])).stdout).toBe(lines([...newest.slice(2), bad]));
  expect((await job(['search', 'mailbox', 'status:error', '-q'])).stdout).toBe(lines([bad]));
  expect((await job(['search', '"carl 3"', '-q'])).stdout).toBe(lines(newest.slice(1, 2)));
  expect(await job(['search', 'nobody'])).toMatchObject({ code: 0, stderr: expect.stringContaining('no job matches') });
  expect(await job(['list', '--status', 'eror'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('"error"'),
  });
  expect(await job(['list', '--queue', 'emials'])).toMatchObject({ code: 4 });
});

test('get shows a job, why it is where it is, and its history', async () => {
  const { queue, job } = await fixture();
  const { id } = await queue.enqueue('bad', { to: 'ada' });
  await runAll(queue, id);
  const shown = await job(['get', id]);
  expect(shown.stdout).toMatch(/status +error/);
  expect(shown.stdout).toMatch(/mailbox full/);
  expect(shown.stdout).toMatch(/history\nAT .*\n.*enqueue/);
  const { history, explanation, ...record } = JSON.parse((await job(['get', id, '-o', 'json'])).stdout);
  expect(record).toMatchObject({ id, status: 'error', payload: { to: 'ada' } });
  expect(explanation.reasons[0]).toMatchObject({ code: 'error', text: expect.stringContaining('mailbox full') });
  expect(history.at(-1)).toMatchObject({ to: 'error' });
});

test('get shows the locks that its handler took', async () => {
  const { queue, locks, job } = await fixture();
  const { id } = await queue.enqueue('send', {});
  const send = (): Promise<void> => locks.request('printer', () => {});
  await using worker = queue.work({ send, welcome: () => {}, bad: () => {} });
  await worker.started;
  await until('it is done', async () => (await queue.get(id)).status === 'complete');
  expect((await job(['get', id])).stdout).toMatch(/locks\nLOCK .*\nprinter .*released/);
  const { locks: taken } = JSON.parse((await job(['get', id, '-o', 'json'])).stdout);
  expect(taken).toMatchObject([{ name: 'printer', state: 'ended', token: expect.any(String) }]);
});

test('get says why a job waits', async () => {
  const { queue, job } = await fixture();
  const { id } = await queue.enqueue('send', {}, { key: 'ada' });
  const behind = await queue.enqueue('send', {}, { key: 'ada' });
  expect((await job(['get', id])).stdout).toMatch(/why +.*no worker/);
  expect((await job(['get', behind.id])).stdout).toMatch(new RegExp(`why +.*${id}`));
});

test('an escape sequence in a payload does not reach the terminal', async () => {
  const { queue, job } = await fixture();
  const { id } = await queue.enqueue('send', { to: '\u001b]0;owned\u0007' }, { key: '\u001b[31mred' });
  expect((await job(['get', id])).stdout).not.toContain('\u001b');
  const { id: other } = await queue.enqueue('send', { to: '\u009b31m\u202e' });
  const env = { NODE_OPTIONS: '--import=data:text/javascript,process.stdout.isTTY=true' };
  const { stdout } = await job(['get', other, '-o', 'json'], { env, input: '' });
  expect(stdout).not.toMatch(/[\u0080-\u009f\p{Cf}]/u);
  expect(JSON.parse(stdout).payload).toEqual({ to: '\u009b31m\u202e' });
});

test('an escape sequence in a name does not reach the terminal by way of a message', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  await createQueue(engine, 'emails', { kinds: { 'se\u001b[2Jnd': {} } }).register();
  const { code, stderr } = await warmPawl(['job', 'add', 'emails', 'other', '1', '--dry-run'], { url });
  expect([code, stderr]).toEqual([2, expect.stringContaining('it has se')]);
  expect(stderr).not.toContain('\u001b[2J');
});

test('retry puts a failed job back; of a complete one it is 5, of an unknown one 4, of what is no id 2', async () => {
  const { queue, job } = await fixture();
  const [failed, sent] = [await queue.enqueue('bad', {}), await queue.enqueue('send', {})];
  await runAll(queue, failed.id, sent.id);
  expect(await job(['retry', failed.id, '-q'])).toMatchObject({ code: 0, stdout: `${failed.id}\n` });
  expect((await queue.get(failed.id)).status).toBe('new');
  expect(await job(['retry', sent.id])).toMatchObject({ code: 5, stdout: '' });
  expect(await job(['retry', '999999'])).toMatchObject({ code: 4 });
  expect(await job(['retry', 'first'])).toMatchObject({ code: 2 });
});

test('cancel asks before many; one that refuses does not keep the others from it', async () => {
  const { queue, job } = await fixture();
  const ids = await queue.enqueueMany([1, 2].map((to) => ({ kind: 'send' as const, payload: { to } })));
  const [first = '', second = ''] = ids;
  expect(await job(['cancel', first, second])).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
  expect((await queue.get(first)).status).toBe('new');
  const { code, stdout } = await job([
    'cancel',
    first,
    '999999',
    second,
    '--yes',
    '--reason',
    'sent twice',
    '-o',
    'json',
  ]);
  expect(code).toBe(4);
  expect(JSON.parse(stdout)).toEqual(ids.map((id) => ({ id, status: 'cancelled' })));
  expect((await queue.get(second)).error).toContain('sent twice');
});

test('add takes tags, attempts and an end, and redrive puts the job of a dead letter back to work', async () => {
  const { queue, job } = await fixture();
  const added = await job([
    'add',
    'emails',
    'send',
    '{}',
    '--tag',
    'a',
    '--tag',
    'b',
    '--attempts',
    '1',
    '--expires-at',
    '1h',
    '--group',
    'acme',
    '-q',
  ]);
  const id = added.stdout.trim();
  expect(await queue.get(id)).toMatchObject({
    group: 'acme',
    tags: ['a', 'b'],
    attempts: 1,
    expiresAt: expect.any(Date),
  });
  expect((await job(['list', '--tag', 'b', '-q'])).stdout.trim()).toBe(id);
  const letters = createQueue(queue.engine, 'letters', { kinds: { bad: { attempts: 1 }, unsent: {} } });
  await letters.register();
  expect(await job(['add', 'letters', 'bad', '{}', '--on-error', 'unsetn'])).toMatchObject({ code: 2 });
  const bad = (await job(['add', 'letters', 'bad', '{}', '--on-error', 'unsent', '-q'])).stdout.trim();
  const hold = new Promise<void>(() => {});
  const worker = letters.work({ bad: () => Promise.reject(new Error('down')), unsent: () => hold }, { concurrency: 1 });
  await until('it is in error', async () => (await letters.get(bad)).status === 'error');
  await worker.stop({ timeout: '1ms' });
  const letter = (await job(['list', '--kind', 'unsent', '-q'])).stdout.trim();
  expect(await job(['redrive', letter])).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`job ${bad} is new`),
  });
  expect((await letters.get(bad)).status).toBe('new');
  expect((await letters.get(letter)).status).toBe('cancelled');
});

test('skip lets a key go on past the job that blocks it', async () => {
  const { queue, job } = await fixture();
  const ledger = createQueue(queue.engine, 'ledger', { kinds: { book: { attempts: 1 } }, keyOnError: 'block' });
  const [id = ''] = await ledger.enqueueMany([1, 2].map((payload) => ({ kind: 'book' as const, payload, key: 'ada' })));
  const worker = ledger.work({ book: () => Promise.reject(new Error('down')) });
  await until('it is in error', async () => (await ledger.get(id)).status === 'error');
  await worker.stop();
  expect((await job(['get', id])).stdout).toContain(`it blocks its key "ada": the later jobs of that key wait`);
  expect(await job(['skip', id, '-o', 'json'])).toMatchObject({ code: 0, stdout: expect.stringContaining('"error"') });
  expect((await ledger.stats()).blockedKeys).toBe(0);
  expect((await job(['skip', id])).stderr).toContain('blocks no key, so there is nothing to skip');
});
