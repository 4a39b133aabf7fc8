import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type QueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

let engine: PostgresEngine;
let admin: QueueAdmin;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 10 });
  admin = createQueueAdmin(engine);
});

afterAll(() => engine.stop());

const kinds = { job: {} } as const;

function newQueue(): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `runs ${nth}`, { kinds });
}

test('a schedule says which jobs its ticks enqueued, newest first, with what became of them', async () => {
  const queue = newQueue();
  await queue.schedule('often', { cron: '* * * * * *', kind: 'job' });
  const ticks: unknown[] = [];
  const worker = queue.work({
    job: ({ jobs: [job] }) => void ticks.unshift({ at: job?.schedule?.at, job: job?.id, status: 'complete' }),
  });
  await until('it has ticked twice', async () => (await admin.scheduleRuns(queue.name, 'often')).length >= 2);
  await admin.pauseSchedule(queue.name, 'often');
  await queue.drain();
  await worker.stop();
  expect(await admin.scheduleRuns(queue.name, 'often')).toEqual(ticks.slice(0, 10));
  expect(await admin.scheduleRuns(queue.name, 'often', { limit: 1 })).toEqual(ticks.slice(0, 1));
});

test('a run by hand is among them; the newest hundred are kept, and go with the schedule', async () => {
  const queue = newQueue();
  await queue.schedule('yearly', { cron: '@yearly', kind: 'job' });
  expect(await admin.scheduleRuns(queue.name, 'yearly')).toEqual([]);
  const ids: string[] = [];
  for (let n = 0; n < 103; n += 1) ids.unshift((await admin.runSchedule(queue.name, 'yearly')).id);
  const runs = await admin.scheduleRuns(queue.name, 'yearly', { limit: 100 });
  expect(runs.map(({ job }) => job)).toEqual(ids.slice(0, 100));
  expect(new Set(runs.map(({ status }) => status))).toEqual(new Set(['new']));
  const count = statement(
    'test.runs',
    'select count(*)::int as n from pawl.queue_schedule_run where queue = pawl.queue_id($1)',
  );
  expect(await engine.query(count, [queue.name])).toEqual([{ n: 100 }]);
  await admin.unschedule(queue.name, 'yearly');
  expect(await engine.query(count, [queue.name])).toEqual([{ n: 0 }]);
});

test('a job that was removed with the history of its queue stands there without a status', async () => {
  const queue = newQueue();
  await queue.schedule('hourly', { cron: '0 * * * *', kind: 'job' });
  const { id } = await admin.runSchedule(queue.name, 'hourly');
  // As the removal of history leaves it.
  await engine.query(statement('test.gone', 'delete from pawl.queue_job where id = $1'), [id]);
  expect(await admin.scheduleRuns(queue.name, 'hourly')).toMatchObject([{ job: id, status: null }]);
});

test('what is no schedule, or no limit, is refused', async () => {
  const queue = newQueue();
  await queue.schedule('nightly', { cron: '0 3 * * *', kind: 'job' });
  await expect(admin.scheduleRuns(queue.name, 'nigthly')).rejects.toThrow(/did you mean "nightly"/);
  await expect(admin.scheduleRuns('nowhere', 'nightly')).rejects.toThrow(NotFound);
  await expect(admin.scheduleRuns(queue.name, 'nightly', { limit: 0 })).rejects.toThrow(InvalidInput);
});
