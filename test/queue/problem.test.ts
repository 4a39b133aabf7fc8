import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { expectToSayProblems } from '../support/failing/outage.ts';
import { recordLog } from '../support/log.ts';
import { startProxy } from '../support/proxy.ts';

test.each(['lease', 'transaction'] as const)(
  "a worker with hold: '%s' says why it can claim nothing, and nothing while it can",
  async (hold) => {
    const { url } = await freshDatabase({ migrated: false });
    const proxy = await startProxy(url);
    const engine = postgres(proxy.url, { stopTimeoutMs: 500, logger: recordLog() });
    const queue = createQueue(engine, 'problems', { kinds: { job: {} } });
    const worker = queue.work({ job: () => {} }, { hold, concurrency: 2, lease: '6s', poll: '500ms' });
    onTestFinished(async () => {
      proxy.accept();
      await worker.stop({ timeout: 0 });
      await engine.stop();
      await proxy.stop();
    });
    worker.events.on('error', () => {});
    expect(worker.problem).toBe('it has not started yet');
    await until('the first try has failed', () => worker.problem?.includes('pawl migrate'));
    await engine.migrate();
    await worker.started;
    await expectToSayProblems(worker, proxy);
  },
);
