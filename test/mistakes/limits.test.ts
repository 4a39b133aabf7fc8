import { expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../src/actor/index.ts';
import { InvalidInput } from '../../src/base/errors.ts';
import { postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';

const MIB = 2 ** 20;
const of = (bytes: number): string => 'x'.repeat(bytes);
const TOO_LARGE = /has \d+ bytes.*the limit is \d+; store large data in a file/;

test('a payload, result or progress beyond its limit is refused at once, and the others run', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'q', { kinds: { job: { attempts: 1 }, small: { maxBytes: 1000, attempts: 1 } } });
  await expect(queue.enqueue('job', of(5 * MIB))).rejects.toThrow(TOO_LARGE);
  await expect(queue.enqueue('small', of(1001))).rejects.toThrow(/has 1003 bytes as JSON, and the limit is 1000/);
  await expect(
    queue.enqueueMany([
      { kind: 'job', payload: 1 },
      { kind: 'small', payload: of(1001) },
    ]),
  ).rejects.toThrow(/^jobs\[1\]\.payload has 1003 bytes/);
  // The limit counts bytes of UTF-8, not characters.
  await expect(queue.enqueue('small', '€'.repeat(400))).rejects.toBeInstanceOf(InvalidInput);
  await queue.enqueue('small', of(900));
  const sql = statement(
    'from_sql',
    `select pawl.enqueue(jsonb_build_object('queue', 'q', 'kind', 'job', 'payload', repeat('x', $1)))`,
  );
  await expect(engine.query(sql, [33 * MIB])).rejects.toThrow(TOO_LARGE);
  await engine.query(sql, [MIB]);
  const progress: unknown[] = [];
  const worker = queue.work({
    job: async (unit) => {
      await unit.progress(of(5 * MIB)).catch((error: unknown) => progress.push(error));
      return of(5 * MIB);
    },
    small: () => 'done',
  });
  onTestFinished(() => worker.stop());
  await queue.drain();
  expect(await queue.stats()).toMatchObject({ error: 1, new: 0 });
  expect(String(progress[0])).toMatch(TOO_LARGE);
  const [failed] = (await queue.search('status:error')).jobs;
  expect(failed?.error).toMatch(/the result has 5242882 bytes/);
});

test('fields of an actor beyond the limit are refused, from SQL too', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const Door = actor('door', { initial: 'shut', states: (state) => ({ shut: state({ run: (a) => a.stay() }) }) });
  const actors = createActors(engine, [Door]);
  await actors.register();
  await expect(actors.create(Door, { text: of(5 * MIB) } as never)).rejects.toThrow(TOO_LARGE);
});
