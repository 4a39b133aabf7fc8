import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createActors } from '../../src/actor/index.ts';
import { startEmbedded } from '../../src/engine/postgres/embedded/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { copied, lastingPort } from '../support/servers/embedded.ts';
import { hasPooler, startPooler } from '../support/servers/pooler.ts';
import { allFinal, check, open } from './model/walk.ts';
import { walker } from './model/walker.ts';

const quiet = { debug() {}, info() {}, warn() {}, error() {} };

// Invariant A25.
test('the database is killed under load and started again: every step is taken once, and no process has to be restarted', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-actor-restart-'));
  // The server may run under another account than the test.
  await chmod(folder, 0o755);
  const data = join(folder, 'data');
  const first = await startEmbedded({ data, port: await lastingPort(), ...copied() });
  let stopSecond = (): Promise<void> => first.stop();
  onTestFinished(async () => {
    await stopSecond();
    await rm(folder, { recursive: true, force: true });
  });
  const engine = postgres(first.url);
  await engine.migrate();
  await engine.stop();
  const walk = await open(30, { url: first.url, connectTimeoutMs: 5000, stopTimeoutMs: 300, logger: quiet });
  await walk.run({ concurrency: 3, lease: '2s' });
  await until('a part is through', async () => (await walk.one<number>('select count(*)::int from test_effect')) > 10);
  process.kill(first.pid, 'SIGKILL');
  await until('the server is gone', () => !isAlive(first.pid));
  await first.stop();
  const second = await startEmbedded({ data, port: first.port });
  stopSecond = () => second.stop();
  await until('it answers', () =>
    walk.isOver().then(
      () => true,
      () => false,
    ),
  );
  await allFinal(walk, 50_000);
  await check(walk);
});

if (!hasPooler) console.warn('SKIPPED: pgbouncer is not installed; actors behind a pooler are not tested in this run');

describe.skipIf(!hasPooler)('behind a pooler in transaction mode, with fewer connections than clients', () => {
  // Invariants A10, A25.
  test('every step is taken once, bodies that hold a transaction included; without LISTEN it is said, and polled', async () => {
    const walk = await open(12);
    const pooler = await startPooler(walk.url, 4);
    onTestFinished(() => pooler.stop());
    const log = recordLog();
    for (const logger of [log, quiet]) {
      const engine = postgres(pooler.url, { prepare: false, max: 4, stopTimeoutMs: 500, logger });
      const { Walker, Companion } = walker(async () => {});
      const dispatcher = createActors(engine, [Walker, Companion]).run({ poll: '100ms', lease: '2s' });
      onTestFinished(async () => {
        await dispatcher.stop({ timeout: 0 });
        await engine.stop();
      });
    }
    await allFinal(walk);
    await check(walk);
    await until('it is said', () => log.count('warn', /LISTEN|notif/i) > 0).catch((error: unknown) => {
      throw new Error(JSON.stringify(log.lines), { cause: error });
    });
    expect(log.count('error', /./)).toBe(0);
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
