import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { SqlSession } from '../sql-session.ts';

// A job is moved to a queue in which it is of another shard, and a job that comes after it is enqueued before the move is committed.

test('jobs after a job that moves to another shard meanwhile run when it has ended there', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url, { logger: recordLog() });
  const mover = await SqlSession.open(database.url);
  onTestFinished(async () => {
    await mover.end();
    await engine.stop();
    await database.drop();
  });
  const kinds = { job: {} } as const;
  const from = createQueue(engine, 'from', { kinds });
  const to = createQueue(engine, 'to', { kinds, shards: 8 });
  const later = createQueue(engine, 'later', { kinds });
  await to.register();
  const key = await mover.one<string>(
    'select k::text from generate_series(1, 100) k where pawl.queue_shard(k::text, 8::smallint) = 5 limit 1',
  );
  const stays = await from.enqueue('job', 'stays');
  const moves = await from.enqueue('job', 'moves', { key });
  await mover.begin();
  await mover.one('select pawl.move($1::jsonb)', [JSON.stringify({ id: moves.id, to: 'to' })]);
  const one = await later.enqueue('job', 'after one', { after: [moves.id] });
  const both = await later.enqueue('job', 'after both', { after: [stays.id, moves.id] });
  await mover.commit();
  const worker = later.work({ job: () => {} });
  const moved = 'select count(*)::int from pawl.queue_watch_part w where w.shard = 5';
  await eventually(async () => expect(await mover.one(moved)).toBe(2));
  await (await from.claim())[0]?.complete();
  for (const { id } of [one, both]) expect((await later.get(id)).status).toBe('new');
  const [unit] = await to.claim();
  await unit?.fail(new Error('it fails'), { final: true });
  await eventually(async () => {
    for (const { id } of [one, both]) expect((await later.get(id)).status).toBe('error');
  });
  await worker.stop();
  expect(await mover.one('select count(*)::int from pawl.queue_watch_part')).toBe(0);
});
