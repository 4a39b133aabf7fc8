import { describe, expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { most, rarely } from '../../../support/long.ts';
import { type Hold, Scene } from '../../faults.ts';

/** Lease 1 s, a search for lost workers at least every 0.6 s, a poll of 0.2 s; the rest is for a busy machine. */
const BOUND_MS = 1000 + 625 + 200 + 15_000;

async function open(): Promise<Scene> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  return Scene.open(database.url);
}

const STEPS: Readonly<Record<Hold, readonly string[]>> = {
  lease: [
    'queue.after_register',
    'queue.after_claim',
    'queue.before_settle',
    'queue.after_settle',
    'queue.before_beat',
  ],
  transaction: ['queue.after_claim', 'queue.before_settle', 'queue.after_settle'],
};

describe.each(['lease', 'transaction'] as const)('hold: %s, a worker is killed', (hold) => {
  // Invariant P2.
  test.for(hold === 'lease' ? STEPS[hold] : most(STEPS[hold], 'queue.before_settle'))(
    'at %s: its jobs run elsewhere, in order, and none is lost',
    async (point) => {
      const scene = await open();
      const nth = point === 'queue.after_register' || point === 'queue.before_beat' ? '' : '#2';
      await scene.enqueue(20, point === 'queue.before_beat' ? { ms: 30 } : {});
      // A child that is killed before it is ready rejects; that is fine here.
      const victim = await scene.child(hold, { PAWL_FAULT: `${point}:kill${nth}` }).catch(() => undefined);
      await victim?.exited;
      const worker = await scene.worker(hold);
      expect(await scene.drained()).toBeLessThan(BOUND_MS);
      expect(await scene.breaches()).toEqual([]);
      expect(await scene.disorder()).toEqual([]);
      if (hold === 'transaction') {
        expect(await scene.one('select count(*)::int from test_effect')).toBe(40);
        expect(await scene.one('select count(distinct id)::int from test_effect')).toBe(40);
      }
      await until(
        'the dead worker is gone',
        async () => (await scene.one('select count(*)::int from pawl.queue_worker')) === 1,
      );
      await worker.stop();
      expect(await scene.one('select count(*)::int from pawl.queue_worker')).toBe(0);
    },
  );

  test('while a handler runs: the attempt is counted, once the lease is over', async () => {
    const scene = await open();
    const [id = ''] = await scene.enqueue(1, { ms: 600_000 });
    const victim = await scene.child(hold);
    await scene.begins(id);
    await victim.kill();
    await until(
      'the dead worker is gone',
      async () => (await scene.one('select jobs from pawl.queue_rescue(1::smallint)')) !== 0,
    );
    await scene.worker(hold);
    await scene.drained();
    expect(await scene.runs(id)).toMatchObject({ attempts: [1, 2], reasons: ['worker lost'] });
  });

  (hold === 'lease' ? test : rarely)(
    'by the same job again and again: the job ends in error after its attempts, and the next job of its key runs',
    async () => {
      const scene = await open();
      const poison = await scene.queue.enqueue('fragile', { ms: 400, dies: true }, { key: 'k' });
      const next = await scene.queue.enqueue('fragile', {}, { key: 'k' });
      let alive = 0;
      // Each new worker starts at once, as under a supervisor, long before the lease of the last one is over.
      for (let victims = 0; victims < 12 && alive === 0; victims += 1) {
        const child = await scene.child(hold);
        await Promise.race([
          child.exited,
          until('the next job has run', async () => (await scene.runs(next.id)).attempts.length > 0, 20_000).then(
            () => {
              alive = child.pid;
            },
          ),
        ]);
      }
      expect(alive).toBeGreaterThan(0);
      expect(await scene.one('select status from pawl.queue_dead where id = $1', [poison.id])).toBe('error');
      expect((await scene.runs(poison.id)).attempts.at(-1)).toBeLessThanOrEqual(2);
      // It has two attempts; the claim that finds them spent does not count.
      expect(await scene.one('select attempt from pawl.queue_dead where id = $1', [poison.id])).toBe(2);
      // Charged at most once: it was claimed together with a job that no worker had tried yet.
      expect((await scene.runs(next.id)).attempts[0]).toBeLessThanOrEqual(2);
      expect(await scene.breaches()).toEqual([]);
    },
  );
});

test('hold: transaction: a job that kills its process within a moment ends in error, too', {
  timeout: 120_000,
}, async () => {
  const scene = await open();
  const { id } = await scene.queue.enqueue('fragile', { ms: 20, dies: true }, { key: 'k' });
  const next = await scene.queue.enqueue('fragile', {}, { key: 'k' });
  let deaths = 0;
  const ended = async (): Promise<boolean> => (await scene.runs(next.id)).attempts.length > 0;
  // Each worker starts at once, as under a supervisor, long before the lease of the last one is over.
  while (!(await ended())) {
    const child = await scene.child('transaction', { CONCURRENCY: '1' }).catch(() => undefined);
    await Promise.race([child?.exited, until('the next job has run', ended, 20_000)]);
    deaths += 1;
    // The workers that found the first one dead, and the attempts; half of that may be under way at the same time.
    expect(deaths).toBeLessThan(20);
  }
  expect(await scene.one('select status from pawl.queue_dead where id = $1', [id])).toBe('error');
});

test('a job with one attempt is not lost because the job before it killed their worker', async () => {
  const scene = await open();
  const { id } = await scene.queue.enqueue('fragile', { dies: true }, { key: 'k' });
  const next = await scene.queue.enqueue('fragile', {}, { key: 'k' });
  await (await scene.child('lease', { FRAGILE: '1' })).exited;
  await scene.child('lease', { FRAGILE: '1' });
  await until('the next job has run', async () => (await scene.runs(next.id)).attempts.length > 0);
  expect(await scene.runs(next.id)).toMatchObject({ attempts: [1], reasons: [] });
  expect(await scene.runs(id)).toMatchObject({ attempts: [1], reasons: ['worker lost'] });
});

describe('a worker is paused for longer than its lease', () => {
  // Invariant P4.
  test('hold: lease: its late outcome changes nothing, its signal is aborted, and its guard fails', async () => {
    const scene = await open();
    const { id } = await scene.queue.enqueue('job', { stops: true, guards: true }, { key: 'k' });
    const paused = await scene.child('lease');
    expect(await paused.message()).toEqual({ run: Number(id) });
    const other = await scene.worker('lease');
    await scene.drained();
    const receipt = await scene.one('select to_json(r) from pawl.queue_receipt r');
    paused.resume();
    // On a busy machine it loses more than this lease.
    const told: object[] = [];
    const isTold = (word: string): boolean => told.some((message) => word in message);
    while (!isTold('guard') || !(isTold('lost') || isTold('stale'))) told.push(await paused.message<object>());
    expect(told).toContainEqual({ guard: 'LeaseLost' });
    expect(await scene.one('select count(*)::int from test_effect')).toBe(0);
    expect(await scene.one('select to_json(r) from pawl.queue_receipt r')).toEqual(receipt);
    expect((await scene.runs(id)).attempts).toEqual([1, 2]);
    expect(await scene.one('select max(token) = (select token from test_run where attempt = 2) from test_run')).toBe(
      true,
    );
    // It works again.
    await other.stop();
    const { id: second } = await scene.queue.enqueue('job', {});
    await until('the paused worker runs the next job', async () => (await scene.runs(second)).attempts.length > 0);
    expect(await scene.breaches()).toEqual([]);
  });

  // Invariant P4.
  test('hold: transaction: its transaction is ended, its job runs elsewhere, and it learns of this when it wakes', async () => {
    const scene = await open();
    const { id } = await scene.queue.enqueue('job', { ms: 600_000 }, { key: 'k' });
    const paused = await scene.child('transaction');
    expect(await paused.message()).toEqual({ run: Number(id) });
    await scene.begins(id);
    paused.pause();
    await scene.worker('transaction');
    expect(await scene.drained()).toBeLessThan(BOUND_MS);
    paused.resume();
    expect(await paused.message()).toEqual({ lost: true });
    expect(await scene.runs(id)).toMatchObject({ effects: 1 });
    // It works again.
    await scene.enqueue(20);
    await scene.drained();
    expect(await scene.breaches()).toEqual([]);
  });

  // Invariant P4.
  test('hold: transaction: it does not rescue itself when it wakes between a heartbeat and a rescue', async () => {
    const scene = await open();
    const { id } = await scene.queue.enqueue('job', { ms: 4000 }, { key: 'k' });
    const paused = await scene.child('transaction', { PAWL_FAULT: 'queue.before_rescue:stop#3' });
    expect(await paused.message()).toEqual({ run: Number(id) });
    const over = 'select count(*)::int from pawl.queue_worker where expires_at < clock_timestamp()';
    await until('its lease is over', async () => (await scene.one(over)) === 1);
    paused.resume();
    await scene.drained();
    expect(await scene.runs(id)).toMatchObject({ attempts: [1], reasons: [] });
  });

  test('hold: transaction: it finishes its job if no other worker has found it dead', async () => {
    const scene = await open();
    const { id } = await scene.queue.enqueue('job', { ms: 300 }, { key: 'k' });
    const paused = await scene.child('transaction');
    expect(await paused.message()).toEqual({ run: Number(id) });
    paused.pause();
    const worker = await scene.one('select max(id) from pawl.queue_worker');
    const over = 'select count(*)::int from pawl.queue_worker where expires_at < clock_timestamp()';
    await until('its lease is over', async () => (await scene.one(over)) === 1);
    paused.resume();
    await scene.drained();
    expect(await scene.runs(id)).toMatchObject({ attempts: [1], effects: 1, reasons: [] });
    expect(await scene.one('select max(id) from pawl.queue_worker')).toBe(worker);
  });
});

test('a new worker with the name of a dead one does not keep its jobs from being rescued', async () => {
  const scene = await open();
  const { queue } = await scene.row();
  const [id = ''] = await scene.enqueue(1);
  const dead = await scene.eye.addWorker(queue, 300);
  expect((await scene.eye.claim(queue, dead)).jobs).toHaveLength(2);
  await scene.worker('lease', { lease: '15s' });
  const host = await scene.one(`select host from pawl.queue_worker where id <> $1`, [dead]);
  await scene.eye.client.query('update pawl.queue_worker set host = $2, pid = $3 where id = $1', [
    dead,
    host,
    process.pid,
  ]);
  expect(await scene.drained()).toBeLessThan(BOUND_MS + 3000);
  expect(await scene.runs(id)).toMatchObject({ attempts: [2], reasons: ['worker lost'] });
});
