import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createQueue, createQueueAdmin } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { doorOf } from '../door.ts';
import { pawl, startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const local = await sharedDynamo();
const TABLE = 'cli-queues';
const at = ['--dynamodb', TABLE, '--endpoint', local.endpoint];
const WORKERS = fileURLToPath(new URL('workers.mjs', import.meta.url));
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: TABLE });
  await engine.migrate();
});

const json = async (...words: string[]): Promise<unknown> =>
  JSON.parse((await warmPawl([...words, ...at, '-o', 'json'])).stdout);

describe.skipIf(local.kind === 'dynalite')('queues on DynamoDB', () => {
  test('queues are listed, counted, paused and resumed', async () => {
    await createQueue(engine, 'mail', { kinds: { send: {}, sweep: { attempts: 3 } }, shards: 2 }).enqueue('send', {});
    expect(await json('queue', 'list')).toContainEqual(
      expect.objectContaining({ name: 'mail', kinds: ['send', 'sweep'], shards: 2, workers: 0, pausedAt: null }),
    );
    expect((await warmPawl(['queue', 'pause', 'mail', ...at])).code).toBe(0);
    expect(await json('queue', 'stats', 'mail')).toMatchObject({ queue: 'mail', ready: 1, paused: true });
    expect((await warmPawl(['queue', 'resume', 'mail', ...at])).code).toBe(0);
    expect(await json('queue', 'stats', 'mail')).toMatchObject({ paused: false });
    const missing = await warmPawl(['queue', 'stats', 'mali', ...at]);
    expect(missing).toMatchObject({ code: 4, stdout: '' });
    expect(missing.stderr).toContain('did you mean "mail"?');
  });

  test('a batch is made with jobs, added to, sealed and shown', async () => {
    const queue = createQueue(engine, 'batches', { kinds: { send: {}, report: {} } });
    await queue.register();
    const callback = '{"kind":"report","payload":"all"}';
    const { stdout, stderr } = await warmPawl(['batch', 'make', 'batches', '--on-done', callback, '-q', ...at]);
    const id = stdout.trim();
    expect(id, stderr).toMatch(/^batches:\d+$/);
    const admin = createQueueAdmin(engine);
    const [job] = await admin.addToBatch(id, [{ kind: 'send', payload: 1 }]);
    expect(await json('batch', 'show', id)).toMatchObject({ id, queue: 'batches', total: 1, outstanding: 1 });
    await queue.cancel(job?.id.replace('batches:', '') ?? '');
    expect(await json('batch', 'seal', id)).toMatchObject({ total: 1, cancelled: 1, outstanding: 0 });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
    expect(await json('batch', 'list', 'batches')).toMatchObject([{ id, cancelled: 1, doneAt: expect.any(String) }]);
  });

  test('a graph of jobs is added as a whole', async () => {
    const queue = createQueue(engine, 'flows', { kinds: { send: {} } });
    await queue.register();
    const folder = await mkdtemp(join(tmpdir(), 'pawl-test-flow-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const file = join(folder, 'flow.json');
    const node = { queue: 'flows', kind: 'send' };
    await writeFile(
      file,
      JSON.stringify([
        { ...node, name: 'b', after: ['a'] },
        { ...node, name: 'a' },
      ]),
    );
    const ids = (await json('flow', 'add', file)) as readonly { name: string; id: string }[];
    expect(ids.map(({ name }) => name).toSorted()).toEqual(['a', 'b']);
    for (const { id } of ids) expect(id).toMatch(/^flows:\d+$/);
    expect(await queue.stats()).toMatchObject({ ready: 1, delayed: 1 });
  });

  test('a job is added, shown, cancelled and retried by its queue and id', async () => {
    await createQueue(engine, 'one:two', { kinds: { send: { attempts: 7 } } }).register();
    const { stdout } = await warmPawl(['job', 'add', 'one:two', 'send', '{"to":"ada"}', '--key', 'ada', '-q', ...at]);
    const id = stdout.trim();
    expect(id).toMatch(/^one:two:\d+$/);
    expect(await json('job', 'get', id)).toMatchObject({
      id,
      queue: 'one:two',
      kind: 'send',
      key: 'ada',
      status: 'new',
      attempts: 7,
      payload: { to: 'ada' },
      locks: [],
      explanation: { reasons: [{ code: 'no_worker' }] },
    });
    expect(await json('job', 'cancel', id, '--reason', 'sent twice')).toMatchObject([{ id, status: 'cancelled' }]);
    expect(await json('job', 'get', id)).toMatchObject({ status: 'cancelled', error: 'sent twice' });
    expect(await json('job', 'retry', id)).toMatchObject([{ id, status: 'new' }]);
    expect(await json('job', 'update', id, '--payload', '{"to":"bob"}')).toMatchObject({ id, status: 'new' });
    expect(await json('job', 'get', id)).toMatchObject({ payload: { to: 'bob' }, status: 'new' });
    expect(await json('job', 'list', '--queue', 'one:two', '--status', 'new')).toMatchObject([{ id, key: 'ada' }]);
    expect(await json('job', 'list', '--queue', 'one:two', '--kind', 'none')).toEqual([]);
  });

  test('what DynamoDB cannot do is refused with the reason', async () => {
    await createQueue(engine, 'mail', { kinds: { send: {}, sweep: { attempts: 3 } }, shards: 2 }).register();
    for (const words of [
      ['job', 'search', 'ada'],
      ['job', 'erase', 'mail:1', '--yes'],
      ['queue', 'pause', 'mail', '--kind', 'send'],
      ['queue', 'remove', 'mail', '--yes'],
    ]) {
      const { code, stdout, stderr } = await warmPawl([...words, ...at]);
      expect({ code, stdout }, words.join(' ')).toEqual({ code: 1, stdout: '' });
      expect(stderr, words.join(' ')).toContain('not on DynamoDB: ');
    }
    const other = await warmPawl(['job', 'get', '42', ...at]);
    expect(other).toMatchObject({ code: 2 });
    expect(other.stderr).toContain('named "queue:id"');
  });

  test('schedules are set, shown, run and removed', async () => {
    await createQueue(engine, 'reports', { kinds: { build: {} } }).register();
    const words = ['schedule', 'set', 'reports', 'nightly', '0 3 * * *', 'build'];
    expect(await warmPawl([...words, ...at])).toMatchObject({ code: 0 });
    expect(await json('schedule', 'list', 'reports')).toMatchObject([{ name: 'nightly', kind: 'build' }]);
    const id = (await warmPawl(['schedule', 'run', 'reports', 'nightly', '-q', ...at])).stdout.trim();
    expect(await json('schedule', 'runs', 'reports', 'nightly')).toMatchObject([{ job: id, status: 'new' }]);
    expect(await warmPawl(['schedule', 'remove', 'reports', 'nightly', '--yes', ...at])).toMatchObject({ code: 0 });
    expect(await json('schedule', 'list', 'reports')).toEqual([]);
  });

  test('a worker of a config file runs jobs, and who waits for one gets its result', async () => {
    const worker = startPawl(['worker', '--config', WORKERS, ...at]);
    await worker.said(/queue worker: it polls for work/);
    const id = (await warmPawl(['job', 'add', 'chores', 'slow', '-q', ...at])).stdout.trim();
    expect(await json('job', 'wait', id)).toMatchObject({ result: 'done' });
    expect(await json('doctor')).toContainEqual(
      expect.objectContaining({ check: 'queue chores', verdict: 'ok', detail: expect.stringContaining('1 workers') }),
    );
    worker.signal('SIGTERM');
    expect((await worker.ended).code).toBe(0);
    await warmPawl(['job', 'add', 'chores', 'paint', '{"colour":"red"}', ...at]);
    const once = await pawl(['worker', '--config', WORKERS, '--once', '-o', 'json', ...at]);
    expect(JSON.parse(once.stdout)).toMatchObject([{ queue: 'chores', complete: 1 }]);
  });

  test('the dashboard shows the queues of a table, and only the pages that it has', async () => {
    await createQueue(engine, 'shown', { kinds: { send: {} } }).register();
    const dashboard = startPawl(['dashboard', '--port', '0', ...at]);
    const { base, headers } = await doorOf(dashboard);
    const ask = async (path: string): Promise<unknown> => (await fetch(`${base}api/v1/${path}`, { headers })).json();
    expect(await ask('me')).toMatchObject({ parts: { queues: true, locks: false, history: false } });
    expect(await ask('queues?q=shown')).toMatchObject({ items: [{ name: 'shown', stats: { ready: 0 } }] });
    dashboard.signal('SIGINT');
    expect((await dashboard.ended).code).toBe(0);
  });

  test('doctor names the command that makes the table', async () => {
    const { code, stderr } = await warmPawl(['doctor', '--dynamodb', 'nowhere', '--endpoint', local.endpoint]);
    expect(code).toBe(1);
    expect(stderr).toContain('pawl migrate --dynamodb nowhere');
  });
});
