import { describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActorAdmin, createActors } from '../../../src/actor/index.ts';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { type ActorScene, openScene } from '../scene.ts';

/** Counts up to its `last`, one a turn; then stays without a change, and fails once it is told to. */
function counter(name: string, fieldHistory?: '1h') {
  return actor(name, {
    initial: 'counting',
    semaphores: ['fail'],
    fieldHistory,
    states: (state) => ({
      counting: state({
        to: ['resting'],
        run: (a) => {
          const { n = 0, last } = a.fields;
          return n < last ? a.nap('1ms', { n: n + 1 }) : a.to('resting', { n });
        },
      }),
      resting: state({
        run: (a) => {
          if (a.take('fail')) throw new Error('as it was told');
          return a.hibernate();
        },
      }),
    }),
  });
}

const Kept = counter('kept', '1h');
const Plain = counter('plain');

async function work(scene: ActorScene, id: string, turns: number): Promise<void> {
  for (let n = 0; n < turns; n += 1) await scene.actors.work(id);
}

const rows = (scene: ActorScene): Promise<number> => scene.one('select count(*)::int from pawl.actor_snapshot');

describe('a type that declares fieldHistory', () => {
  test('keeps what each turn changed in the fields, and nothing of turns that changed nothing', async () => {
    const scene = await openScene([Kept]);
    const { id } = await scene.actors.create(Kept, { last: 2 });
    await work(scene, id, 4);
    await scene.actors.incr(id, 'fail');
    await work(scene, id, 1);
    const changes = await scene.actors.fieldHistory(id);
    expect(changes).toMatchObject([
      { state: 'counting', before: { last: 2, n: 1 }, after: { last: 2, n: 2 } },
      { state: 'counting', before: { last: 2 }, after: { last: 2, n: 1 } },
    ]);
    const moves = await scene.actors.history(id);
    expect(changes.every(({ epoch }) => epoch < (moves.find(({ to }) => to === 'resting')?.epoch ?? 0))).toBe(true);
    const [newest, ...older] = changes;
    expect(await scene.actors.fieldHistory(id, { limit: 1 })).toEqual([newest]);
    expect(await scene.actors.fieldHistory(id, { before: newest?.epoch })).toEqual(older);
    expect(await createActorAdmin(scene.engine).fieldHistory(id)).toEqual(changes);
    await expect(scene.actors.fieldHistory('999')).rejects.toThrow(NotFound);
    await expect(scene.actors.fieldHistory(id, { befor: 1 } as object)).rejects.toThrow(/did you mean "before"/);
  });

  test('keeps them in the batches of a dispatcher, next to types that keep none', async () => {
    const scene = await openScene([Kept, Plain]);
    const kept = await Promise.all(Array.from({ length: 5 }, () => scene.actors.create(Kept, { last: 3 })));
    const plain = await Promise.all(Array.from({ length: 5 }, () => scene.actors.create(Plain, { last: 3 })));
    await scene.run();
    await until('all rest', () =>
      scene.one(`select bool_and(state = 'resting' and worker is null and wake_at is null) from pawl.actor_instance`),
    );
    for (const { id } of kept)
      expect((await scene.actors.fieldHistory(id)).map(({ before }) => before)).toEqual([
        { last: 3, n: 2 },
        { last: 3, n: 1 },
        { last: 3 },
      ]);
    for (const { id } of plain) expect(await scene.actors.fieldHistory(id)).toEqual([]);
  });

  test('keeps nothing of a turn that is no longer current, or is refused', async () => {
    const scene = await openScene([Kept]);
    const { id } = await scene.actors.create(Kept, { last: 9 });
    const worker = await scene.one<string>(
      `insert into pawl.actor_worker (host, pid, concurrency, lease, expires_at, types, knows, wants_notify)
       values ('here', 1, 9, '1 h', clock_timestamp() + interval '1 h', '{}', '{}', false) returning id::text`,
    );
    await scene.query('update pawl.actor_instance set worker = $1, epoch = 5', [worker]);
    const commit = (kind: string, epoch: number): Promise<unknown> =>
      scene.one(
        `select pawl.actor_commit($1, array[$2::bigint], array[$3::bigint], array[$4], '{0}', '{counting}', null, null,
          array['{"n": 7}']::json[], null, null, null, null, null, null, '{true}')`,
        [worker, id, epoch, kind],
      );
    await commit('stay', 4);
    expect(await rows(scene)).toBe(0);
    const { id: child } = await scene.actors.create(Kept, { last: 1 });
    await scene.query('update pawl.actor_instance set parent = $1 where id = $2', [id, child]);
    expect(await commit('done', 5)).toMatch(new RegExp(`"refused":\\[${id}\\]`));
    expect(await rows(scene)).toBe(0);
    await scene.query('update pawl.actor_instance set worker = $1 where id = $2', [worker, id]);
    await commit('stay', 5);
    expect(await scene.actors.fieldHistory(id)).toMatchObject([{ epoch: 5, before: { last: 9 }, after: { n: 7 } }]);
  });

  test('loses them with their age, and with its actors; the newest diffs stay whole', async () => {
    const scene = await openScene([Kept]);
    const { id } = await scene.actors.create(Kept, { last: 3 });
    await work(scene, id, 3);
    await scene.query(
      `update pawl.actor_snapshot set at = at - interval '2 h' where epoch = (select min(epoch) from pawl.actor_snapshot)`,
    );
    await scene.one('select pawl.actor_prune(10)');
    expect(await scene.actors.fieldHistory(id)).toMatchObject([
      { before: { n: 2 }, after: { n: 3 } },
      { before: { n: 1 }, after: { n: 2 } },
    ]);
    await scene.query(`update pawl.actor_instance set finished_at = clock_timestamp() - interval '1 y'`);
    await scene.one('select pawl.actor_prune(10)');
    expect(await rows(scene)).toBe(0);
  });

  test('that declares it no longer keeps what it has for as long as its history', async () => {
    const scene = await openScene([Kept]);
    const { id } = await scene.actors.create(Kept, { last: 3 });
    await work(scene, id, 2);
    const Later = counter('kept');
    await createActors(scene.engine, [Later]).work(id);
    await scene.query(`update pawl.actor_snapshot set at = at - interval '2 h'`);
    await scene.one('select pawl.actor_prune(10)');
    // The turn without it left no row: what it changed shows in the row before.
    expect(await scene.actors.fieldHistory(id)).toMatchObject([
      { before: { n: 1 }, after: { n: 3 } },
      { before: { last: 3 }, after: { n: 1 } },
    ]);
    await scene.query(`update pawl.actor_snapshot set at = at - interval '91 days'`);
    await scene.one('select pawl.actor_prune(10)');
    expect(await rows(scene)).toBe(0);
  });
});

test('by default no older fields are kept: a turn writes nothing for them', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const scene = await openScene([Plain], { url: database.url });
  const { id } = await scene.actors.create(Plain, { last: 3 });
  await work(scene, id, 4);
  expect(await scene.actors.fieldHistory(id)).toEqual([]);
  expect(await scene.one(`select pg_relation_size('pawl.actor_snapshot')::int`)).toBe(0);
});

test('is refused when it is no duration, or longer than the history', () => {
  const declare = (options: object): unknown =>
    actor('thing', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }), ...options });
  expect(() => declare({ fieldHistory: 'long' })).toThrow(InvalidInput);
  expect(() => declare({ fieldHistory: '91d' })).toThrow(/fields for 91d, but its history for 90d only/);
  expect(() => declare({ fieldsHistory: '1d' })).toThrow(/did you mean "fieldHistory"/);
  expect(() => declare({ fieldHistory: '91d', history: 'forever' })).not.toThrow();
});
