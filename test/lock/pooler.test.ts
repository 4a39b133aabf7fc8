import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../src/lock/index.ts';
import { freshDatabase } from '../support/database.ts';
import { hasPooler, startPooler } from '../support/servers/pooler.ts';

if (!hasPooler) console.warn('SKIPPED: pgbouncer is not installed; locks behind a pooler are not tested in this run');

test.skipIf(!hasPooler)(
  'locks hold behind a pooler in transaction mode, with fewer connections than clients',
  async () => {
    const database = await freshDatabase();
    const pooler = await startPooler(database.url, 2);
    onTestFinished(() => pooler.stop());
    const quiet = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
    const ours = (): Locks => {
      const engine = postgres(pooler.url, { prepare: false, max: 3, stopTimeoutMs: 500, logger: quiet });
      onTestFinished(() => engine.stop());
      return createLocks(engine);
    };
    const parties = [ours(), ours(), ours()];
    let count = 0;
    const add = async (locks: Locks): Promise<void> => {
      for (let i = 0; i < 5; i++) {
        await locks.request('pooled', { wait: '30s', lease: '3s' }, async (lock) => {
          const read = count;
          await sleep(2);
          lock.assertHeld();
          count = read + 1;
        });
      }
    };
    await Promise.all([...parties, ...parties].map(add));
    expect(count).toBe(30);
    const lock = await parties[0]?.acquire('long', { lease: '3s' });
    await sleep(4000);
    expect(lock?.isHeld).toBe(true);
    expect(await parties[1]?.tryAcquire('long')).toBeUndefined();
    await lock?.release();
    const { held, waiting } = (await parties[2]?.query()) ?? { held: [], waiting: [] };
    expect([...held, ...waiting]).toEqual([]);
  },
);
