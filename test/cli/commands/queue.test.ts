import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { warmPawl } from '../warm-pawl.ts';

const KINDS = { send: {} } as const;

async function declared(): Promise<{ url: string; queue: Queue<typeof KINDS> }> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'emails', { kinds: KINDS });
  await queue.register();
  return { url, queue };
}

test('list and stats show queues and where their jobs are', async () => {
  const { url, queue } = await declared();
  await queue.enqueue('send', { to: 'ada' });
  expect(JSON.parse((await warmPawl(['queue', 'list', '-o', 'json'], { url })).stdout)).toMatchObject([
    { name: 'emails', kinds: ['send'] },
  ]);
  expect((await warmPawl(['queue', 'list', '-q'], { url })).stdout).toBe('emails\n');
  expect(JSON.parse((await warmPawl(['queue', 'stats', 'emails', '-o', 'json'], { url })).stdout)).toMatchObject({
    queue: 'emails',
    ready: 1,
  });
  const table = await warmPawl(['queue', 'stats'], { url });
  expect(table.stdout).toMatch(/^QUEUE +READY[^\n]*\nemails +1 /);
});

test('pause and resume do that; --dry-run does not', async () => {
  const { url, queue } = await declared();
  expect((await warmPawl(['queue', 'pause', 'emails', '--dry-run'], { url })).code).toBe(0);
  expect((await queue.stats()).paused).toBe(false);
  expect(await warmPawl(['queue', 'pause', 'emails', '-q'], { url })).toMatchObject({
    code: 0,
    stdout: 'emails\n',
    stderr: '',
  });
  expect((await queue.stats()).paused).toBe(true);
  expect((await warmPawl(['queue', 'resume', 'emails'], { url })).code).toBe(0);
  expect((await queue.stats()).paused).toBe(false);
});

test('a queue that is not there is 4', async () => {
  const { url } = await declared();
  for (const verb of ['stats', 'pause', 'resume']) {
    const { code, stdout, stderr } = await warmPawl(['queue', verb, 'nope'], { url });
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toMatch(/"nope"[^]*next:/);
  }
});

test('a database without a schema says which command to run', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const { code, stderr } = await warmPawl(['queue', 'list'], { url });
  expect(code).toBe(1);
  expect(stderr).toMatch(/next:.*pawl migrate/);
});

test('a part of a queue is paused and resumed by the same options', async () => {
  const { url, queue } = await declared();
  const part = ['--kind', 'send', '--tag', 'acme'];
  const paused = await warmPawl(['queue', 'pause', 'emails', ...part], { url });
  expect(paused.stderr).toContain('kind "send", tag "acme" of queue "emails" is paused');
  expect(paused.stderr).toContain('pawl queue resume emails --kind send --tag acme ends that');
  expect(await queue.stats()).toMatchObject({ paused: false, pausedParts: [{ kind: 'send', key: null, tag: 'acme' }] });
  expect((await warmPawl(['queue', 'stats', 'emails'], { url })).stdout).toContain('kind "send", tag "acme"');
  await warmPawl(['queue', 'resume', 'emails', ...part], { url });
  expect((await queue.stats()).pausedParts).toEqual([]);
  expect((await warmPawl(['queue', 'pause', 'emails', '--kind', 'sned'], { url })).code).not.toBe(0);
});
