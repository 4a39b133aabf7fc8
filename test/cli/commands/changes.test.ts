import { expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createTopic, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { warmPawl } from '../warm-pawl.ts';

const kinds = { send: {}, other: {} } as const;

interface Stage {
  readonly url: string;
  readonly engine: PostgresEngine;
  readonly queue: Queue<typeof kinds>;
  /** Runs `pawl` with these words and gives what it printed as JSON. */
  readonly json: (...words: string[]) => Promise<unknown>;
}

async function declared(): Promise<Stage> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'emails', { kinds });
  await queue.register();
  const json = async (...words: string[]): Promise<unknown> => {
    const { code, stdout, stderr } = await warmPawl([...words, '-o', 'json'], { url });
    expect({ words, code, stderr }).toEqual({ words, code: 0, stderr: '' });
    return JSON.parse(stdout);
  };
  return { url, engine, queue, json };
}

test('update changes a job that waits, --after has it wait for others, and wait prints its result', async () => {
  const { url, queue, json } = await declared();
  const { id } = await queue.enqueue('send', 1);
  const child = (await json('job', 'add', 'emails', 'other', '--after', id)) as { id: string };
  expect((await queue.stats()).delayed).toBe(1);
  const changed = ['job', 'update', id, '--payload', '{"to":"bob"}', '--priority', '5', '--tag', 'blue'];
  expect((await warmPawl([...changed, '--dry-run'], { url })).code).toBe(0);
  expect(await queue.get(id)).toMatchObject({ payload: 1 });
  expect(await json(...changed)).toEqual({ id, status: 'new' });
  expect(await queue.get(id)).toMatchObject({ payload: { to: 'bob' }, priority: 5, tags: ['blue'] });
  expect((await warmPawl(['job', 'update', id], { url })).code).toBe(2);
  expect((await warmPawl(['job', 'wait', id, '--for', '1ms'], { url })).code).toBe(6);
  const worker = queue.work({ send: () => ({ sent: true }), other: () => 1 });
  expect(await json('job', 'wait', id)).toEqual({ id, result: { sent: true } });
  expect(await json('job', 'wait', child.id)).toEqual({ id: child.id, result: 1 });
  await worker.stop();
  expect((await warmPawl(['job', 'update', id, '--priority', '1'], { url })).code).toBe(5);
  expect((await warmPawl(['job', 'wait', '999999'], { url })).code).toBe(4);
});

test('erase, purge, retry-all, cancel-all, finish and move change what they say, and ask before unless --yes is given', async () => {
  const { url, engine, queue, json } = await declared();
  const slow = createQueue(engine, 'slow', { kinds });
  await slow.register();
  const ids = await queue.enqueueMany([1, 2, 3, 4].map((payload) => ({ kind: 'send', payload }) as const));
  const asked = await warmPawl(['job', 'erase', ids[0] ?? ''], { url });
  expect(asked).toMatchObject({ code: 2, stdout: '' });
  expect(asked.stderr).toMatch(/--yes/);
  expect(await json('job', 'erase', ids[0] ?? '', '--yes')).toEqual([{ id: ids[0], status: 'erased' }]);
  await queue.cancel(ids[1] ?? '');
  expect((await warmPawl(['job', 'retry-all', 'emails', 'status:cancelled', '--dry-run'], { url })).stderr).toContain(
    'would retry 1 jobs of queue "emails"',
  );
  expect(await json('job', 'retry-all', 'emails', 'status:cancelled', '--yes')).toEqual({ done: 1, left: 0 });
  expect(await json('job', 'move', 'emails', 'slow', '2', '--to-kind', 'other', '--yes')).toEqual({ done: 1, left: 0 });
  expect(await slow.get(ids[1] ?? '')).toMatchObject({ kind: 'other', status: 'new' });
  expect(await json('job', 'cancel-all', 'emails', '3', '--reason', 'enough', '--yes')).toEqual({ done: 1, left: 0 });
  expect(await queue.get(ids[2] ?? '')).toMatchObject({ status: 'cancelled', error: 'enough' });
  expect(await json('job', 'finish', ids[2] ?? '', '--result', '{"by":"hand"}')).toEqual([
    { id: ids[2], status: 'complete' },
  ]);
  expect(await queue.get(ids[2] ?? '')).toMatchObject({ result: { by: 'hand' } });
  expect(await json('job', 'purge', 'emails', '', '--yes')).toEqual({ done: 2, left: 0 });
  expect((await queue.search('')).jobs).toEqual([]);
  expect((await warmPawl(['job', 'purge', 'emals', 'status:new', '--yes'], { url })).stderr).toMatch(
    /"emals"[^]*emails/,
  );
  expect((await warmPawl(['job', 'move', 'emails', 'nowhere', 'x', '--yes'], { url })).code).toBe(4);
  expect((await warmPawl(['job', 'purge', 'emails', 'status:nwe', '--yes'], { url })).code).toBe(2);
  expect((await warmPawl(['job', 'purge', 'emails', 'x', '--read-only'], { url })).code).toBe(2);
  expect((await warmPawl(['job', 'prge', 'emails'], { url })).stderr).toContain('Did you mean purge?');
});

test('queue remove removes a queue, refuses one in use, and counts what is gone', async () => {
  const { url, queue, json } = await declared();
  await queue.enqueue('send', 1);
  const dry = await warmPawl(['queue', 'remove', 'emails', '--dry-run'], { url });
  expect(dry.stderr).toContain('would remove queue "emails": 1 jobs wait, 0 are in progress, 0 workers live');
  expect((await warmPawl(['queue', 'remove', 'emails', '--yes'], { url })).code).toBe(5);
  expect(await json('queue', 'remove', 'emails', '--force', '--yes')).toMatchObject({ jobs: 1, cancelled: 1 });
  expect((await warmPawl(['queue', 'remove', 'emails', '--yes'], { url })).code).toBe(4);
  expect((await warmPawl(['queue', 'list', '-q'], { url })).stdout).toBe('');
});

test('topics are listed and published to; batches are shown and sealed', async () => {
  const { url, engine, queue, json } = await declared();
  await createTopic(engine, 'orders').subscribe('emails', 'send');
  expect(await json('topic', 'list')).toEqual([{ name: 'orders', subscriptions: [{ queue: 'emails', kind: 'send' }] }]);
  expect((await warmPawl(['topic', 'publish', 'orders', '1', '--dry-run'], { url })).stderr).toContain('to 1 queues');
  expect(await json('topic', 'publish', 'orders', '{"id":1}', '--key', 'k')).toMatchObject([
    { queue: 'emails', kind: 'send', duplicate: false },
  ]);
  expect(await queue.get({ key: 'k' })).toMatchObject({ payload: { id: 1 } });
  expect((await warmPawl(['topic', 'publish', 'ordres', '1'], { url })).stderr).toContain('no queue is subscribed');
  const batch = await queue.batch();
  await batch.enqueue({ kind: 'send', payload: 1 });
  expect(await json('batch', 'show', batch.id)).toMatchObject({ total: 1, outstanding: 1, sealedAt: null });
  for (let n = 0; n < 2; n += 1)
    expect(await json('batch', 'seal', batch.id)).toMatchObject({ sealedAt: expect.any(String) as string });
  expect((await warmPawl(['batch', 'show', '999999'], { url })).code).toBe(4);
});
