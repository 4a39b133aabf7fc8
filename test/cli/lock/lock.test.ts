import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { warmPawl } from '../warm-pawl.ts';

async function open(namespace = ''): Promise<{ url: string; locks: Locks }> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  const locks = createLocks(engine, { namespace });
  onTestFinished(async () => {
    await locks.stop();
    await engine.stop();
  });
  return { url, locks };
}

test('list shows the locks and waiters of one namespace', async () => {
  const { url, locks } = await open('shop');
  const lock = await locks.acquire('invoice:42');
  const ends = new AbortController();
  const waiting = locks.acquire('invoice:42', { mode: 'shared', signal: ends.signal }).catch(() => {});
  await until('it waits', async () => (await locks.query()).waiting.length > 0);
  const shop = ['--namespace', 'shop'];
  const json = await warmPawl(['lock', 'list', ...shop, '-o', 'json'], { url });
  expect(JSON.parse(json.stdout)).toMatchObject([
    { name: 'invoice:42', state: 'held', mode: 'exclusive', token: String(lock.token), pid: process.pid },
    { name: 'invoice:42', state: 'waiting', mode: 'shared' },
  ]);
  expect((await warmPawl(['lock', 'list', ...shop], { url })).stdout).toMatch(/^NAME +STATE[^\n]*\ninvoice:42 +held /);
  const none = await warmPawl(['lock', 'list', '-q'], { url });
  expect(none).toMatchObject({ code: 0, stdout: '' });
  expect((await warmPawl(['lock', 'list'], { url })).stderr).toContain('--namespace');
  ends.abort();
  await waiting;
});

test('show says who holds it, who waits, and what stands in their way', async () => {
  const { url, locks } = await open();
  const lock = await locks.acquire('inner');
  const nested = locks.request('outer', () => locks.request('inner', () => {}));
  await until('it waits', async () => (await locks.query()).waiting.length > 0);
  const inner = await warmPawl(['lock', 'show', 'inner'], { url });
  expect(inner.stdout).toMatch(/state +held[^]*holders\nTOKEN[^]*waiters, in order\nPLACE/);
  expect(inner.stdout).toContain(String(lock.token));
  const outer = JSON.parse((await warmPawl(['lock', 'show', 'outer', '-o', 'json'], { url })).stdout);
  expect(outer.blocking).toEqual([expect.stringMatching(/"outer" is held by .* waits for "inner"/)]);
  await lock.release();
  await nested;
  expect((await warmPawl(['lock', 'show', 'inner'], { url })).stdout).toMatch(/state +free/);
});

test('break asks, or needs --yes; --dry-run and --read-only take nothing away', async () => {
  const { url, locks } = await open();
  locks.startListening();
  const lock = await locks.acquire('nightly', { lease: '20s' });
  const args = ['lock', 'break', 'nightly', '--reason', 'the machine is gone'];
  expect(await warmPawl(args, { url })).toMatchObject({ code: 2, stderr: expect.stringMatching(/--yes/) });
  expect(await warmPawl([...args, '--dry-run'], { url })).toMatchObject({
    code: 0,
    stderr: expect.stringContaining(`token ${lock.token}`),
  });
  expect(await warmPawl([...args, '--yes', '--read-only'], { url })).toMatchObject({ code: 2 });
  lock.assertHeld();
  expect(await warmPawl([...args, '--yes', '-q'], { url })).toMatchObject({ code: 0, stdout: `${lock.token}\n` });
  await until('the holder knows', () => lock.signal.aborted);
  expect(String(lock.signal.reason)).toContain('the machine is gone');
  expect(await warmPawl([...args, '--yes'], { url })).toMatchObject({
    code: 4,
    stderr: expect.stringMatching(/no process/),
  });
  expect(await warmPawl(['lock', 'break', 'nightly'], { url })).toMatchObject({ code: 2 });
});

test('history tells how each hold ended', async () => {
  const { url, locks } = await open();
  await locks.request('first', () => {});
  const lock = await locks.acquire('second');
  await locks.break('second', { reason: 'by hand' });
  const all = await warmPawl(['lock', 'history', '-o', 'jsonl'], { url });
  expect(
    all.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toMatchObject([
    { name: 'second', outcome: 'broken', reason: 'by hand', token: String(lock.token) },
    { name: 'first', outcome: 'released' },
  ]);
  const one = await warmPawl(['lock', 'history', 'first'], { url });
  expect(one.stdout).toMatch(/^NAME[^\n]*\nfirst [^\n]*released[^\n]*\n$/);
  expect((await warmPawl(['lock', 'history', '--limit', '1', '-q'], { url })).stdout).toBe(`${lock.token}\n`);
});

test('a bad name is a wrong usage', async () => {
  const { url } = await open();
  const { code, stderr } = await warmPawl(['lock', 'show', 'x'.repeat(256)], { url });
  expect(code).toBe(2);
  expect(stderr).toMatch(/1 to 255 bytes/);
});
