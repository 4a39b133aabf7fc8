import { expect, test } from 'vitest';
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { eventually } from '../../../support/eventually.ts';
import { spawnChild } from '../../../support/process.ts';

test.each(['lease', 'transaction'])(
  'hold %s: a worker whose handler blocks the event loop for ever ends itself with SIGKILL, and names the job',
  async (hold) => {
    const database = await freshDatabase();
    const engine = postgres(database.url);
    try {
      const queue = createQueue(engine, 'blocked', { kinds: { loop: { attempts: 2 } } });
      const { id } = await queue.enqueue('loop', null);
      const child = spawnChild('queue/work/crash/blocked.child.ts', [], { URL: database.url, HOLD: hold });
      expect(await child.exited).toEqual({ code: null, signal: 'SIGKILL' });
      // What it wrote may be read after its end was told.
      const words = `Running, the last first: job ${id} of queue "blocked", kind "loop"\n`;
      await eventually(() => expect(child.stderr()).toMatch(words));
    } finally {
      await engine.stop();
      await database.drop();
    }
  },
);
