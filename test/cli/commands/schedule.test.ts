import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { warmPawl } from '../warm-pawl.ts';

const KINDS = { daily: {} } as const;

async function declared(): Promise<{ url: string; queue: Queue<typeof KINDS> }> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'reports', { kinds: KINDS });
  await queue.schedule('nightly', { cron: '30 2 * * *', timezone: 'Europe/Berlin', kind: 'daily', payload: { a: 1 } });
  return { url, queue };
}

test('list and show report schedules, and show reports the ticks to come', async () => {
  const { url } = await declared();
  const asked = async (...words: string[]): Promise<string> => (await warmPawl(['schedule', ...words], { url })).stdout;
  expect(await asked('list')).toMatch(
    /^QUEUE +SCHEDULE[^\n]*\nreports +nightly +30 2 \* \* \* +Europe\/Berlin +daily /,
  );
  expect(await asked('list', 'reports', '-q')).toBe('nightly\n');
  expect(JSON.parse(await asked('list', '-o', 'json'))).toMatchObject([{ name: 'nightly', pausedAt: null }]);
  const shown = JSON.parse(await asked('show', 'reports', 'nightly', '-o', 'json'));
  expect(shown).toMatchObject({ queue: 'reports', kind: 'daily', payload: { a: 1 }, missed: 'last' });
  expect(shown.next).toHaveLength(5);
  expect(await asked('show', 'reports', 'nightly')).toMatch(/\nthen +\d{4}-\d\d-\d\dT[^]*\npayload +\{"a":1\}\n$/);
});

test('pause and resume do that; --dry-run does not', async () => {
  const { url, queue } = await declared();
  const paused = async (): Promise<boolean> => (await queue.schedules())[0]?.pausedAt !== null;
  const turn = (...words: string[]) => warmPawl(['schedule', ...words], { url });
  expect(await turn('pause', 'reports', 'nightly', '--dry-run')).toMatchObject({ code: 0, stdout: '' });
  expect(await paused()).toBe(false);
  expect(await turn('pause', 'reports', 'nightly', '--read-only')).toMatchObject({ code: 2 });
  expect(await turn('pause', 'reports', 'nightly')).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('pawl schedule resume reports nightly'),
  });
  expect(await paused()).toBe(true);
  expect(await turn('resume', 'reports', 'nightly', '-q')).toEqual({ code: 0, stdout: 'nightly\n', stderr: '' });
  expect(await paused()).toBe(false);
});

test('run enqueues a job now, and -q prints its id', async () => {
  const { url, queue } = await declared();
  expect((await warmPawl(['schedule', 'run', 'reports', 'nightly', '--dry-run'], { url })).stdout).toBe('');
  const { code, stdout } = await warmPawl(['schedule', 'run', 'reports', 'nightly', '-q'], { url });
  expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringMatching(/^\d+\n$/) });
  expect(await queue.get(stdout.trim())).toMatchObject({ kind: 'daily', schedule: { name: 'nightly' } });
  expect((await queue.stats()).ready).toBe(1);
  const job = await warmPawl(['job', 'get', stdout.trim()], { url });
  expect(job.stdout).toMatch(/\nschedule +nightly\ntick +\d{4}-/);
});

test('runs tells the jobs that it has enqueued, newest first', async () => {
  const { url } = await declared();
  expect(await warmPawl(['schedule', 'runs', 'reports', 'nightly'], { url })).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('it has enqueued nothing yet'),
  });
  const ids: string[] = [];
  for (let n = 0; n < 3; n += 1)
    ids.unshift((await warmPawl(['schedule', 'run', 'reports', 'nightly', '-q'], { url })).stdout.trim());
  const asked = async (...words: string[]): Promise<string> =>
    (await warmPawl(['schedule', 'runs', 'reports', 'nightly', ...words], { url })).stdout;
  expect(await asked('-q')).toBe(`${ids.join('\n')}\n`);
  expect(JSON.parse(await asked('--limit', '1', '-o', 'json'))).toMatchObject([{ job: ids[0], status: 'new' }]);
});

test('a queue or a schedule that is not there is 4, and the right one is named', async () => {
  const { url } = await declared();
  for (const verb of ['show', 'runs', 'pause', 'resume', 'run', 'remove']) {
    const slip = await warmPawl(['schedule', verb, 'reports', 'nihgtly'], { url });
    expect({ code: slip.code, stdout: slip.stdout }).toEqual({ code: 4, stdout: '' });
    expect(slip.stderr).toMatch(/did you mean "nightly"\?[^]*next: /);
    expect((await warmPawl(['schedule', verb, 'nope', 'nightly', '--dry-run'], { url })).code).toBe(4);
  }
  expect(await warmPawl(['schedule', 'list', 'nope'], { url })).toMatchObject({ code: 4, stdout: '' });
});

test('set makes a schedule or takes the place of one; --dry-run does neither', async () => {
  const { url, queue } = await declared();
  const set = (...words: string[]) => warmPawl(['schedule', 'set', 'reports', ...words], { url });
  const names = async (): Promise<string[]> => (await queue.schedules()).map(({ name }) => name);
  expect(await set('hourly', '@hourly', 'daily', '--dry-run')).toMatchObject({
    code: 0,
    stdout: '',
    stderr: expect.stringMatching(/would set schedule "hourly" of queue "reports": daily, next at \d{4}-/),
  });
  expect(await names()).toEqual(['nightly']);
  expect(await set('hourly', '@hourly', 'daily', '{"b":2}', '--missed', '1d', '--jitter', '5m', '-q')).toMatchObject({
    code: 0,
    stdout: 'hourly\n',
  });
  expect((await queue.schedules())[0]).toMatchObject({
    name: 'hourly',
    payload: { b: 2 },
    missed: 'all',
    missedForMs: 86_400_000,
    jitterMs: 300_000,
  });
  const record = JSON.parse((await set('hourly', '@hourly', 'daily', '--missed', 'skip', '-o', 'json')).stdout);
  expect(record).toMatchObject({ name: 'hourly', payload: null, missed: 'skip', jitterMs: null, ofSet: false });
});

test('set refuses what cannot be, by its exit code, and changes nothing', async () => {
  const { url, queue } = await declared();
  await queue.schedules({ weekly: { cron: '0 3 * * 1', kind: 'daily' } });
  const before = await queue.schedules();
  for (const [words, code, stderr] of [
    [['nightly', '0 3 * *', 'daily'], 2, /cron/],
    [['nightly', '0 3 * *', 'daily', '--dry-run'], 2, /cron/],
    [['nightly', '@daily', 'daily', '--overlap', 'no'], 2, /overlap/],
    [['nightly', '@daily', 'daily', '--missed', 'some'], 2, /missed/],
    [['nightly', '@daily', 'dayly'], 4, /it has daily/],
    [['weekly', '@daily', 'daily'], 5, /is of the set that a program declares/],
  ] as const) {
    const slip = await warmPawl(['schedule', 'set', 'reports', ...words], { url });
    expect({ words, code: slip.code, stdout: slip.stdout }).toEqual({ words, code, stdout: '' });
    expect(slip.stderr).toMatch(stderr);
  }
  expect(await queue.schedules()).toEqual(before);
});

test('remove asks first, and ends a schedule', async () => {
  const { url, queue } = await declared();
  const remove = (...words: string[]) => warmPawl(['schedule', 'remove', 'reports', 'nightly', ...words], { url });
  expect(await remove('--dry-run')).toMatchObject({ code: 0, stdout: '' });
  expect(await remove()).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
  expect(await queue.schedules()).toHaveLength(1);
  expect(await remove('--yes', '-q')).toMatchObject({ code: 0, stdout: 'nightly\n' });
  expect(await queue.schedules()).toEqual([]);
});

test('set takes the group of its jobs, and show says it', async () => {
  const { url, queue } = await declared();
  const limited = createQueue(queue.engine, 'limited', { kinds: KINDS, concurrency: { perGroup: 2 } });
  await limited.register();
  const set = (of: string) =>
    warmPawl(['schedule', 'set', of, 'weekly', '0 4 * * 1', 'daily', '--group', 'acme'], { url });
  expect(await set('limited')).toMatchObject({ code: 0 });
  expect((await warmPawl(['schedule', 'show', 'limited', 'weekly'], { url })).stdout).toMatch(/\ngroup +acme\n/);
  const ran = await warmPawl(['schedule', 'run', 'limited', 'weekly', '-q'], { url });
  expect(await limited.get(ran.stdout.trim())).toMatchObject({ group: 'acme' });
  expect(await set('reports')).toMatchObject({ code: 2, stderr: expect.stringContaining('perGroup') });
});
