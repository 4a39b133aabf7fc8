import { describe, expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { meanwhile, SNAPSHOT_DEFAULTS, setDefaultIsolation } from '../../support/meanwhile.ts';

const KINDS = { send: {}, once: { unique: { while: 'waiting' } } } as const;
const QUEUES = 'update pawl.queue_definition set name = name';
const SCHEDULES = 'update pawl.queue_schedule set name = name';

interface Scene {
  readonly queue: Queue<typeof KINDS>;
  readonly url: string;
}

/** A queue in a database with this default. */
async function open(isolation: (typeof SNAPSHOT_DEFAULTS)[number]): Promise<Scene> {
  const database = await freshDatabase();
  await setDefaultIsolation(database.url, isolation);
  const engine = postgres(database.url, { max: 4 });
  onTestFinished(async () => {
    await engine.stop();
    await database.drop();
  });
  const queue = createQueue(engine, 'mail', { kinds: KINDS });
  await queue.register();
  return { queue, url: database.url };
}

for (const isolation of SNAPSHOT_DEFAULTS) {
  describe(`with ${isolation} as the default of the database, what a transaction that ends meanwhile has changed stops no`, () => {
    test('pause and resume of a queue, nor of a part of it', async () => {
      const { queue, url } = await open(isolation);
      await meanwhile(url, QUEUES, () => queue.pause());
      expect((await queue.stats()).paused).toBe(true);
      await meanwhile(url, QUEUES, () => queue.resume());
      expect((await queue.stats()).paused).toBe(false);
      await meanwhile(url, QUEUES, () => queue.pause({ kind: 'send' }));
      await meanwhile(url, QUEUES, () => queue.resume({ kind: 'send' }));
      expect((await queue.stats()).pausedParts).toEqual([]);
    });

    test('declaration of a queue', async () => {
      const { url } = await open(isolation);
      const engine = postgres(url, { max: 1 });
      onTestFinished(() => engine.stop());
      const other = createQueue(engine, 'mail', { kinds: { send: {}, print: {} } });
      await meanwhile(url, `${QUEUES}; update pawl.queue_kind set name = name`, () => other.register());
      await other.enqueue('print', 1);
    });

    test('enqueue of a unique job', async () => {
      const { queue, url } = await open(isolation);
      const asking = `select pawl.enqueue('{"queue":"mail","kind":"once","payload":1,"key":"a"}'::jsonb)`;
      const { duplicate } = await meanwhile(url, asking, () => queue.enqueue('once', 1, { key: 'a' }));
      expect(duplicate).toBe(true);
    });

    test('cancel, retry and erase of a job', async () => {
      const { queue, url } = await open(isolation);
      const { id } = await queue.enqueue('send', 1, { delay: '1h' });
      const rows = 'update pawl.queue_job set kind = kind; update pawl.queue_delayed set run_at = run_at';
      await meanwhile(url, rows, () => queue.cancel(id, { reason: 'for a test' }));
      await meanwhile(url, 'update pawl.queue_job set kind = kind; update pawl.queue_dead set kind = kind', () =>
        queue.retry(id),
      );
      await meanwhile(url, 'update pawl.queue_job set kind = kind', () => queue.erase(id));
    });

    test('change of a schedule', async () => {
      const { queue, url } = await open(isolation);
      const admin = createQueueAdmin(queue.engine);
      const daily = { kind: 'send', cron: '0 3 * * *', payload: 1 } as const;
      await queue.schedule('daily', daily);
      await meanwhile(url, SCHEDULES, () => queue.schedule('daily', { ...daily, cron: '0 4 * * *' }));
      await meanwhile(url, SCHEDULES, () => admin.pauseSchedule('mail', 'daily'));
      await meanwhile(url, SCHEDULES, () => admin.resumeSchedule('mail', 'daily'));
      await meanwhile(url, SCHEDULES, () => admin.runSchedule('mail', 'daily'));
      expect(await meanwhile(url, SCHEDULES, () => queue.unschedule('daily'))).toBe(true);
    });
  });
}
