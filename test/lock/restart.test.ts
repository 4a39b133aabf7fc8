import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startEmbedded } from '../../src/engine/postgres/embedded.ts';
import { postgres, statement } from '../../src/engine/postgres/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { until } from '../support/eventually.ts';

test('a crash of the server forgets neither a grant nor a release, repeats no token, and only delays who waits', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-lock-restart-'));
  // The server may run under another account than the test.
  await chmod(folder, 0o755);
  const data = join(folder, 'data');
  const first = await startEmbedded({ data, settings: { wal_writer_delay: '10s' } });
  const quiet = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
  await makeLazy(first.url);
  const engine = postgres(first.url, { stopTimeoutMs: 300, connectTimeoutMs: 1000, logger: quiet });
  const [a, b] = [createLocks(engine), createLocks(engine)];
  const kept = await a.acquire('kept', { lease: '60s' });
  const freed = await a.acquire('freed');
  await freed.release();
  const waiting = b.acquire('kept', { wait: '60s' });
  await until('it waits', async () => (await a.query()).waiting.length === 1);
  process.kill(first.pid, 'SIGKILL');
  await until('the server is gone', () => !isAlive(first.pid));
  await first.stop();
  const second = await startEmbedded({ data, port: first.port });
  onTestFinished(async () => {
    await Promise.all([a.stop(), b.stop()]);
    await engine.stop();
    await second.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const again = await until('the server answers', () => a.tryAcquire('freed').catch(() => undefined), 30_000);
  expect(again.token).toBeGreaterThan(freed.token);
  expect(await a.tryAcquire('kept')).toBeUndefined();
  await until('it waits again', async () => (await a.query()).waiting.length === 1);
  kept.assertHeld();
  await kept.release();
  expect((await waiting).token).toBeGreaterThan(again.token);
}, 90_000);

/** A database whose commits are on disk some time later: locks, and their tokens, have to be there all the same. */
async function makeLazy(url: string): Promise<void> {
  const engine = postgres(url);
  await engine.migrate();
  await engine.query(statement('test.lazy', 'alter role current_user set synchronous_commit = off'));
  await engine.stop();
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
