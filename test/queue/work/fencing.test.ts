import { expect, onTestFinished, test } from 'vitest';
import { LeaseLost } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { wallClock } from '../../support/time/wall-clock.ts';
import { gate } from '../contract/fixture.ts';
import { FAULTS, openScene, proxied } from '../faults.ts';
import { SqlSession } from '../sql-session.ts';

async function freshEngine(): Promise<PostgresEngine> {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 10 });
  onTestFinished(() => engine.stop());
  return engine;
}

const NOW = statement('now', 'select clock_timestamp() as now');

test('an attempt whose time is over can neither guard nor store its progress, even while other jobs of its batch are held', async () => {
  const engine = await freshEngine();
  const kinds = { slow: { attempts: 2 }, other: {} } as const;
  const queue = createQueue(engine, 'late', { kinds, retry: { backoff: { kind: 'fixed', min: '1h' } } });
  const over = gate();
  const told: unknown[] = [];
  const worker = queue.work(
    {
      slow: async (unit) => {
        // It ignores its signal, as a handler may.
        if (unit.attempt === 1) await over.opened;
        const guard = engine.transaction(async (tx) => {
          await tx.query(NOW);
          await unit.guard(tx);
        });
        told.push([unit.attempt, await guard.catch((error: unknown) => error)]);
        told.push([unit.attempt, await unit.progress('half').catch((error: unknown) => error)]);
      },
      other: () => until('the late attempt has its answer', () => told.length === 4),
    },
    { concurrency: 2 },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  const [slow = ''] = await queue.enqueueMany([
    { kind: 'slow', payload: null, timeout: '200ms' },
    { kind: 'other', payload: null },
  ]);
  await until('its time is over', async () => (await queue.explain(slow)).reasons[0]?.code === 'backing_off');
  // The second attempt has time for all that it does, also on a busy machine.
  await queue.update(slow, { timeout: '10m', delay: 0 });
  await until('the second attempt has its answer', () => told.length === 2);
  over.open();
  await until('the late attempt has its answer', () => told.length === 4);
  expect(told).toEqual([
    [2, undefined],
    [2, undefined],
    [1, expect.any(LeaseLost)],
    [1, expect.any(LeaseLost)],
  ]);
  await queue.drain();
});

test('finished jobs of a worker are written while one of its handlers keeps a transaction open that guards its unit', async () => {
  const engine = await freshEngine();
  const queue = createQueue(engine, 'guarded', { kinds: { slow: {}, quick: {} } });
  const guarded = gate();
  const release = gate();
  const worker = queue.work(
    {
      slow: (unit) =>
        engine.transaction(async (tx) => {
          await unit.guard(tx);
          guarded.open();
          await release.opened;
        }),
      quick: () => guarded.opened,
    },
    { concurrency: 10 },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  const quick = Array.from({ length: 6 }, () => ({ kind: 'quick', payload: null }) as const);
  const [slow] = await queue.enqueueMany([{ kind: 'slow', payload: null }, ...quick]);
  await until('the quick ones are complete', async () => (await queue.stats()).inProgress === 1);
  expect(await queue.get(slow ?? '')).toMatchObject({ status: 'in-progress' });
  release.open();
  await queue.drain();
});

/** A handler that ends while the transaction in which it has called guard() is still open. */
async function leaveOpen(engine: PostgresEngine, unit: Unit, release: Promise<void>, ended: () => void): Promise<void> {
  const guarded = gate();
  const write = async (tx: Transaction): Promise<void> => {
    await unit.guard(tx);
    guarded.open();
    await release;
  };
  void engine.transaction(write).then(ended);
  await guarded.opened;
}

test.each([
  ['returns', 'complete', undefined],
  ['fails for good', 'error', new Error('given up')],
])(
  'a unit whose handler %s is settled only after the transaction that guards it, and no job of its key runs before',
  async (_how, status, failure) => {
    const engine = await freshEngine();
    const queue = createQueue(engine, 'open', { kinds: { first: { attempts: 1 }, next: {} } });
    const release = gate();
    const order: string[] = [];
    const worker = queue.work({
      first: async (unit) => {
        await leaveOpen(engine, unit, release.opened, () => order.push('committed'));
        if (failure !== undefined) throw failure;
      },
      next: () => order.push('next'),
    });
    onTestFinished(() => worker.stop({ timeout: 0 }));
    const heldBack = probe.next('queue.put_off');
    const { id } = await queue.enqueue('first', null, { key: 'k' });
    await heldBack;
    await queue.enqueue('next', null, { key: 'k' });
    const { id: stranger } = await queue.enqueue('next', null, { key: 'other' });
    await until('the other key has run', async () => (await queue.get(stranger)).status === 'complete');
    expect(await queue.get(id)).toMatchObject({ status: 'in-progress' });
    order.length = 0;
    release.open();
    await queue.drain();
    expect(order).toEqual(['committed', 'next']);
    expect(await queue.get(id)).toMatchObject({ status });
  },
);

test('a process that was paused for longer than its lease begins no other job that it had claimed', async () => {
  const scene = await openScene();
  const paused = await scene.child('lease', { CONCURRENCY: '1', PREFETCH: '10', LEASE: '1s' });
  const ids = await scene.queue.enqueueMany(
    // The first handler pauses its process, and ends as soon as the process wakes: before any timer runs.
    [1, 2, 3, 4].map((nth) => ({ kind: 'job', payload: { stops: nth === 1 }, key: 'k' }) as const),
  );
  // On a busy machine its lease may be over before.
  const begun = await until('the first one runs', async () => {
    const said = await paused.message<{ run?: number }>();
    return said.run && said;
  });
  expect(begun).toEqual({ run: Number(ids[0]) });
  const living = 'select count(*)::int from pawl.queue_worker where expires_at > clock_timestamp()';
  await until('its lease has run out', async () => (await scene.one(living)) === 0);
  const claimed = Number(await scene.one('select max(id) from pawl.queue_running'));
  paused.resume();
  expect(await paused.message()).toEqual({ lost: true });
  paused.send('list the begun jobs');
  const { ran = [] } = await until('it lists the begun jobs', async () => {
    const said = await paused.message<{ ran?: number[] }>();
    return said.ran && said;
  });
  // By then it may have claimed anew: the first one, which was rescued, or the next ones, if that one's outcome came before the rescue.
  await until(
    'their runs are noted',
    async () => Number(await scene.one('select count(*) from test_run')) >= ran.length,
  );
  const old = 'select array(select id::int from test_run where id <> $1 and token <= $2 order by at)';
  expect(await scene.one(old, [ids[0], claimed])).toEqual([]);
});

test('a transaction that guards a unit on a silently dead connection ends within a lease, and the job runs again', async () => {
  const scene = await openScene();
  const { proxy, options } = await proxied(scene);
  const engine = postgres(options.url, { max: 6, logger: recordLog() });
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'faults', FAULTS);
  const worker = queue.work(
    {
      job: (unit) =>
        engine.transaction(async (tx) => {
          await unit.guard(tx);
          proxy.silence();
          await tx.query(NOW);
        }),
      fragile: () => {},
    },
    { lease: '1s', poll: '200ms' },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  await worker.started;
  await scene.queue.enqueue('job', null, { key: 'k' });
  await until('the unit is guarded on a dead connection', () => proxy.isSilent);
  await scene.worker('lease');
  await scene.drained();
});

test('a machine that was suspended between two jobs begins none that it had claimed before, even before a timer has run', async () => {
  const clock = wallClock();
  const engine = await freshEngine();
  const queue = createQueue(engine, 'asleep', { kinds: { job: {} } });
  await queue.enqueueMany(Array.from({ length: 3 }, () => ({ kind: 'job', payload: null })));
  const begun: Unit[] = [];
  const events: string[] = [];
  const handler = (unit: Unit): void => {
    begun.push(unit);
    events.push('begun');
    if (begun.length === 1) clock.suspend(60_000);
  };
  const worker = queue.work({ job: handler }, { concurrency: 1, prefetch: 10, lease: '5s' });
  onTestFinished(() => worker.stop({ timeout: 0 }));
  worker.events.on('claimed', ({ jobs }) => events.push(`claimed ${jobs}`));
  worker.events.on('lost', () => events.push('lost'));
  await until('the worker finds that its lease is over', () => events.includes('lost'));
  // All three were claimed together, one slot was free, and the first took no time.
  expect(events.slice(0, 3)).toEqual(['claimed 3', 'begun', 'lost']);
  await queue.drain();
  const [first, ...others] = begun.map(({ token }) => token);
  for (const token of others) expect(token).toBeGreaterThan(first ?? 0n);
});

test.each(['of one job', 'of a unit'])(
  'a settlement that comes too late leaves no result %s with a job that was given back meanwhile',
  async (what) => {
    const { url } = await freshDatabase();
    const [late, rescuer, writer] = [
      await SqlSession.open(url),
      await SqlSession.open(url),
      await SqlSession.open(url),
    ];
    onTestFinished(async () => void (await Promise.all([late, rescuer, writer].map((one) => one.end()))));
    const { queue, kinds } = await late.register('late result', [{ name: 'job' }]);
    const worker = await late.addWorker(queue);
    const ids = await late.add(queue, [{ kind: kinds['job'] ?? 0 }, { kind: kinds['job'] ?? 0 }]);
    const { jobs } = await late.claim(queue, worker);
    const claim = jobs[0]?.claim ?? 0;
    // Another write of the output of a job is under way, so the settlement waits in the middle.
    await writer.begin();
    await writer.client.query('insert into pawl.queue_output (id, shard, progress) values ($1, 0, $2)', [ids[0], '1']);
    const isShared = what === 'of a unit';
    const settled = late.one<string>(
      'select pawl.queue_settle($1::smallint, 0::smallint, $2, $3, null, null, $4, null, null, null, $5)',
      [
        queue,
        worker,
        [claim],
        isShared ? null : JSON.stringify(ids.map((id) => [id, claim, 'late'])),
        isShared ? JSON.stringify([['late', [[claim, ...ids]]]]) : null,
      ],
    );
    await until('it waits', () => rescuer.one<boolean>('select cardinality(pg_blocking_pids($1)) > 0', [late.pid]));
    await rescuer.expire(worker);
    await rescuer.rescue(queue);
    await writer.commit();
    const { stale } = JSON.parse(await settled) as { stale: number[] };
    const { rows } = await rescuer.client.query<{ status: string; result: string | null }>(
      'select j.status, j.result from pawl.job j where j.id = any ($1)',
      [ids],
    );
    // Either it was in time, or it has left nothing.
    const one = stale.length === 0 ? { status: 'complete', result: 'late' } : { status: 'new', result: null };
    expect(rows).toEqual([one, one]);
  },
);
