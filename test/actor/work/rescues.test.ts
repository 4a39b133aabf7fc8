import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../../src/actor/index.ts';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { COMMIT, startProxy } from '../../support/proxy.ts';
import { type ActorScene, openScene } from '../scene.ts';

const Child = actor('child', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.hibernate() }) }) });

/** A worker that exists only as a row. */
function addWorker(scene: ActorScene): Promise<number> {
  return scene.one(
    `insert into pawl.actor_worker (pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
     values (1, 1, '20 s', clock_timestamp() + interval '20 s', false, 'test', '{1}', '{}') returning id::int`,
  );
}

describe('an actor whose worker is lost', () => {
  // Invariant A28.
  test("in a body with hold: 'transaction' is free, though a client has given it a child meanwhile", async () => {
    const scene = await openScene([Child]);
    const one = await scene.actors.create(Child, {});
    const worker = await addWorker(scene);
    await scene.one('select pawl.actor_claim($1, array[1]::smallint[], 1)', [worker]);
    const turn = { actor: Number(one.id), epoch: 1, worker };
    await scene.one('select pawl.actor_run_in_transaction($1)', [JSON.stringify(turn)]);
    // The connection of a process that stands still.
    const still = new pg.Client({ connectionString: scene.url });
    const ended = new Promise<void>((resolve) => still.on('error', () => resolve()));
    await still.connect();
    onTestFinished(() => still.end().catch(() => {}));
    await still.query('begin');
    await still.query('select pawl.actor_guard($1)', [JSON.stringify({ ...turn, nowait: true })]);
    await scene.one('select pawl.actor_create($1)', [JSON.stringify({ type: 'child', parent: one.id })]);
    await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
    await scene.one('select pawl.actor_rescue()');
    await ended;
    const free = 'select count(*)::int from (select from pawl.actor_instance where id = $1 for update skip locked) x';
    await until('its row is free', async () => (await scene.one(free, [one.id])) === 1);
  });

  // Invariants A26, A28.
  test('after the clock of the database was set back is free, and due no later than by its back-off', async () => {
    const scene = await openScene([Child]);
    const one = await scene.actors.create(Child, {});
    const worker = await addWorker(scene);
    await scene.one('select pawl.actor_claim($1, array[1]::smallint[], 1)', [worker]);
    // As the clock left it that was an hour ahead at the claim.
    await scene.query(`update pawl.actor_instance set wake_at = wake_at + interval '1 h', claimed_at = claimed_at + interval '1 h',
      retry_at = retry_at + interval '1 h'`);
    await scene.query(`update pawl.actor_worker set expires_at = expires_at + interval '1 h'`);
    await scene.one('select pawl.actor_beat(array[$1]::bigint[], array[true])', [worker]);
    await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
    expect(await scene.one('select pawl.actor_rescue()')).toBe(1);
    await scene.run();
    await scene.actors.waitFor(one, { status: 'hibernating' });
  });
});

describe('a turn by hand', () => {
  const Plain = actor('plain', {
    initial: 'first',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      first: state({
        to: ['second'],
        run: (a) => {
          a.page({ tag: 'seen', summary: 'seen' });
          return a.to('second');
        },
      }),
      second: state({ run: (a) => a.hibernate() }),
    }),
  });

  // Invariant A4.
  test('whose commit is not answered never says that nothing was written', async () => {
    const scene = await openScene([Plain]);
    const proxy = await startProxy(scene.url);
    const engine = postgres(proxy.url, { max: 4, logger: { debug() {}, info() {}, warn() {}, error() {} } });
    onTestFinished(async () => {
      await engine.stop();
      await proxy.stop();
    });
    const one = await scene.actors.create(Plain, {});
    proxy.loseAnswerTo(COMMIT);
    const error = await createActors(engine, [Plain])
      .work(one)
      .catch((thrown: unknown) => thrown);
    expect(proxy.lost).toBe(1);
    expect(error).toBeInstanceOf(ConnectionFailed);
    expect(error).toMatchObject({ outcome: 'unknown' });
    expect(await scene.actors.get(one)).toMatchObject({ state: 'second' });
  });

  test('whose commit does not come through is committed again, and not charged', async () => {
    const disarm = faults.arm(
      'actor.before_commit',
      () => {
        throw new ConnectionFailed('the connection is gone', { outcome: 'nothing_written' });
      },
      { occurrence: 1 },
    );
    onTestFinished(disarm);
    const scene = await openScene([Plain]);
    const one = await scene.actors.create(Plain, {});
    expect(await scene.actors.work(one)).toMatchObject({ kind: 'to', to: 'second' });
    expect((await scene.actors.history(one)).map(({ reason }) => reason)).toEqual(['created', 'to']);
  });
});

test("a turn with hold: 'transaction' whose commit is refused has failed before its row is free", async () => {
  const Refused = actor('refused', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      only: state({
        hold: 'transaction',
        run: async (a) => {
          await a.tx.client.query({ text: 'insert into note values (1)', values: [] });
          a.enqueue({ queue: 'there is none', kind: 'such' });
          return a.hibernate();
        },
      }),
    }),
  });
  const scene = await openScene([Refused]);
  await scene.query('create table note (id bigint)');
  const one = await scene.actors.create(Refused, {});
  const free: unknown[] = [];
  const disarm = faults.arm('actor.before_commit', async () => {
    free.push(
      await scene.one('select count(*)::int from (select from pawl.actor_instance for no key update skip locked) x'),
    );
  });
  onTestFinished(disarm);
  await scene.run();
  await until('it has failed', async () => (await scene.actors.get(one)).status === 'backing off');
  expect(await scene.actors.get(one)).toMatchObject({ attempt: 1, error: expect.stringContaining('there is none') });
  expect(free).toEqual([0, 0]);
  expect(await scene.one('select count(*)::int from note')).toBe(0);
});
