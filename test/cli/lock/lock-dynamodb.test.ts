import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { pawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const TABLE = 'cli-locks';
let local: SharedDynamo;
let at: string[];

beforeAll(async () => {
  local = await sharedDynamo();
  at = ['--dynamodb', TABLE, '--endpoint', local.endpoint];
  await dynamodb(dynamoClient(local.endpoint), { table: TABLE }).migrate();
});

function open(namespace: string): Locks {
  const client = dynamoClient(local.endpoint);
  const locks = createLocks(dynamodb(client, { table: TABLE }), { namespace });
  onTestFinished(async () => {
    await locks.stop();
    client.destroy();
  });
  return locks;
}

test('list, show and history show the locks that are held, their waiters, and how each ended', async () => {
  const locks = open('seen');
  const here = ['--namespace', 'seen', ...at];
  const lock = await locks.acquire('invoice:42');
  const ends = new AbortController();
  const waiting = locks.acquire('invoice:42', { mode: 'shared', signal: ends.signal }).catch(() => {});
  await until('it waits', async () => (await locks.query()).waiting.length > 0);
  const [list, show] = await Promise.all([
    warmPawl(['lock', 'list', ...here, '-o', 'json']),
    warmPawl(['lock', 'show', 'invoice:42', ...here]),
  ]);
  expect(JSON.parse(list.stdout)).toMatchObject([
    { name: 'invoice:42', state: 'held', token: String(lock.token), pid: process.pid },
    { name: 'invoice:42', state: 'waiting', mode: 'shared' },
  ]);
  expect(show.stdout).toMatch(/state +held[^]*holders\nTOKEN[^]*waiters, in order\nPLACE/);
  ends.abort();
  await waiting;
  await lock.release();
  const history = await warmPawl(['lock', 'history', ...here, '-o', 'json']);
  expect(JSON.parse(history.stdout)).toMatchObject([{ outcome: 'released', token: String(lock.token) }]);
});

test('break takes a lock away, and says what helps when no process has it', async () => {
  const locks = open('');
  const lock = await locks.acquire('nightly', { lease: '15s' });
  const args = ['lock', 'break', 'nightly', '--reason', 'the machine is gone', '--yes', '-q', ...at];
  expect(await warmPawl(args)).toMatchObject({ code: 0, stdout: `${lock.token}\n` });
  await until('the holder knows', () => lock.signal.aborted);
  expect(String(lock.signal.reason)).toContain('the machine is gone');
  expect(await warmPawl(args)).toMatchObject({
    code: 4,
    stderr: expect.stringContaining(`pawl lock list --dynamodb ${TABLE} --endpoint ${local.endpoint}`),
  });
});

test('run holds the lock while the command runs, and is 5 when it is not had', async () => {
  const locks = open('');
  const say = ['--', 'sh', '-c', 'echo "$PAWL_LOCK_TOKEN"; exit 7'];
  const ran = await pawl(['lock', 'run', 'script', ...at, ...say]);
  const [past] = await locks.history({ name: 'script' });
  expect(ran).toMatchObject({ code: 7, stdout: `${past?.token}\n` });
  await using held = await locks.acquire('script');
  const late = await pawl(['lock', 'run', held.name, '--wait', '0', ...at, ...say]);
  expect(late).toMatchObject({ code: 5, stdout: '', stderr: expect.stringContaining(`"script" --dynamodb ${TABLE}`) });
});

test('a table that is not there, two databases at once, and an endpoint without a table are refused', async () => {
  const here = ['--endpoint', local.endpoint];
  expect(await warmPawl(['lock', 'list', '--dynamodb', 'missing', ...here])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`next:  pawl migrate --dynamodb missing --endpoint ${local.endpoint}`),
  });
  const both = ['--url', 'postgres://me@127.0.0.1:1/app', ...at];
  expect(await warmPawl(['lock', 'list', ...both])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/exclude/),
  });
  expect(await warmPawl(['lock', 'list', ...here])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/add --dyna/),
  });
  expect(await warmPawl(['migrate', ...here])).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/add --dynamodb/),
  });
});
