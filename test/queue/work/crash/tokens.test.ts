import { expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';
import { aborted, until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';
import { startMigratedServer } from '../../../support/servers/embedded.ts';

async function freshServer(): Promise<{ engine: PostgresEngine; crash: () => Promise<void> }> {
  const server = await startMigratedServer({ fsync: 'off' });
  onTestFinished(() => server.stop());
  const engine = postgres(server.url, { max: 8, logger: recordLog() });
  onTestFinished(() => engine.stop());
  return { engine, crash: () => server.restart('immediate') };
}

test.each(['lease', 'transaction'] as const)(
  'tokens rise through a crash of the server in an open transaction whose token is known; the next claim has hold: %s',
  async (next) => {
    const { engine, crash } = await freshServer();
    const queue = createQueue(engine, 'tokens', { kinds: { work: { attempts: 20 } } });
    const { id } = await queue.enqueue('work', null, { key: 'k' });
    for (let round = 0; round < 2; round += 1) {
      const told: bigint[] = [];
      const end = new AbortController();
      const run = async ({ token }: { token: bigint }): Promise<void> => {
        told.push(token);
        await aborted(end.signal);
      };
      const first = queue.work({ work: run }, { hold: 'transaction', concurrency: 1, lease: '2s', poll: '200ms' });
      await until('its token is known', () => told.length > 0);
      const stopping = first.stop({ timeout: 0 });
      await crash();
      end.abort();
      await stopping;
      const again: bigint[] = [];
      const second = queue.work(
        {
          work: ({ token }) => {
            again.push(token);
            throw new Error('once more');
          },
        },
        { hold: next, concurrency: 1, lease: '2s', poll: '200ms' },
      );
      await until('its next token is known', () => again.length > 0);
      await second.stop();
      expect(again[0]).toBeGreaterThan(told.at(-1) ?? 0n);
      await until('it waits for its retry', async () => (await queue.get(id)).status === 'new');
      await engine.query(statement('test.due', 'update pawl.queue_delayed set run_at = clock_timestamp()'));
    }
  },
);
