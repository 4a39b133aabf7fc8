import { expect, onTestFinished, test } from 'vitest';
import { faults } from '../../../../src/base/fault.ts';
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { gate } from '../../contract/fixture.ts';

test.each([
  ['has time', '15s'],
  ['has none', 0],
] as const)(
  'a job that a lane claims while its worker stops does not begin, and is new at once: the stop %s',
  async (_what, timeout) => {
    const { url } = await freshDatabase();
    const engine = postgres(url);
    onTestFinished(() => engine.stop());
    const queue = createQueue(engine, 'stops', { kinds: { work: { attempts: 1 } } });
    const { id } = await queue.enqueue('work', 'only');
    const [claimed, late] = [gate(), gate()];
    const hold = async (): Promise<void> => {
      claimed.open();
      await late.opened;
    };
    onTestFinished(faults.arm('queue.after_claim', hold, { occurrence: 1 }));
    const begun: unknown[] = [];
    const work = ({ payload }: { readonly payload: unknown }): void => void begun.push(payload);
    const worker = queue.work({ work }, { hold: 'transaction', concurrency: 1 });
    await claimed.opened;
    const stopped = worker.stop({ timeout });
    late.open();
    await stopped;
    expect(begun).toEqual([]);
    expect(await queue.get(id)).toMatchObject({ status: 'new', attempt: 0 });
    expect(await queue.work({ work }, { hold: 'transaction', concurrency: 1 }).once()).toMatchObject({ complete: 1 });
  },
);
