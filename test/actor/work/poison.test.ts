import { describe, expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { until } from '../../support/eventually.ts';
import { type Child, spawnChild } from '../../support/process.ts';
import { type ActorScene, openScene } from '../scene.ts';
import { poison } from './poison.ts';

const [Poison, Good] = poison({ poison() {}, async good() {} });

/** Turns that somebody else runs, as far as the database knows. */
const Thing = actor('thing', {
  semaphores: ['go'],
  initial: 'only',
  backoff: { kind: 'fixed', min: '1ms', jitter: 0 },
  states: (state) => ({ only: state({ to: ['only'], run: (a) => a.done() }) }),
});

/** Workers that exist only as rows: the test claims, loses and commits for them. */
class Rows {
  readonly #scene: ActorScene;

  constructor(scene: ActorScene) {
    this.#scene = scene;
  }

  worker(): Promise<number> {
    return this.#scene.one(
      `insert into pawl.actor_worker (pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
       values (1, 1, '1 h', clock_timestamp() + interval '1 h', false, 'test', '{}', '{}') returning id::int`,
    );
  }

  /** @returns ids and epochs of what it claimed */
  async claim(worker: number, how: 'due' | 'alone' | 'alone, if long' = 'due'): Promise<Map<string, number>> {
    await until('what a rescue put off is due', () =>
      this.#scene.one(`select count(*) = 0 from pawl.actor_instance where wake_at > clock_timestamp()`),
    );
    const call =
      how === 'due'
        ? 'claim($1, array[1]::smallint[], 100)'
        : `claim_alone($1, array[1]::smallint[], ${how === 'alone'})`;
    const { rows } = JSON.parse(await this.#scene.one<string>(`select pawl.actor_${call}`, [worker])) as {
      rows: [number, number, string, number, number][];
    };
    return new Map(rows.map(([id, , , , epoch]) => [String(id), epoch]));
  }

  /** Loses all that is due twice in a row. */
  async loseTwice(): Promise<void> {
    for (let n = 0; n < 2; n += 1) {
      const worker = await this.worker();
      await this.claim(worker);
      await this.lose(worker);
    }
  }

  async lose(worker: number): Promise<void> {
    await this.#scene.query(
      `update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s' where id = $1`,
      [worker],
    );
    await this.#scene.one('select pawl.actor_rescue()');
  }

  async commit(worker: number, [id, epoch]: readonly [string, number], kind: string): Promise<void> {
    await this.#scene.one(
      `select pawl.actor_commit($1, array[$2::bigint], array[$3::bigint], array[$4], array[0], array['only'], array['only'],
        null, null, null, null, null, null, null, null)`,
      [worker, id, epoch, kind],
    );
  }

  async losses(): Promise<Record<string, [lost: number, attempt: number]>> {
    return this.#scene.one('select json_object_agg(id, array[lost, attempt]) from pawl.actor_instance');
  }
}

async function open(): Promise<{ scene: ActorScene; rows: Rows; ids: string[] }> {
  const scene = await openScene([Thing]);
  const ids = [];
  for (let n = 0; n < 3; n += 1) ids.push((await scene.actors.create(Thing, {})).id);
  return { scene, rows: new Rows(scene), ids };
}

describe('an actor that is lost with its process', () => {
  test('once, is claimed like any other; its neighbours are charged that once only, and any commit begins anew', async () => {
    const { rows, ids, scene } = await open();
    const [one = '', two = '', three = ''] = ids;
    const first = await rows.worker();
    expect([...(await rows.claim(first)).keys()].sort()).toEqual(ids);
    await rows.lose(first);
    expect(await rows.losses()).toEqual({ [one]: [1, 1], [two]: [1, 1], [three]: [1, 1] });
    const second = await rows.worker();
    const claimed = await rows.claim(second);
    for (const id of [two, three]) await rows.commit(second, [id, claimed.get(id) ?? 0], 'to');
    await rows.claim(second);
    await rows.lose(second);
    expect(await rows.losses()).toEqual({ [one]: [2, 2], [two]: [0, 0], [three]: [0, 0] });
    expect(await scene.actors.get(two)).toMatchObject({ status: 'due' });
  });

  test('twice in a row, is claimed only by a worker that runs nothing else, or by any after a minute; what is given back stays so', async () => {
    const { rows, ids, scene } = await open();
    await rows.loseTwice();
    const worker = await rows.worker();
    expect([...(await rows.claim(worker)).keys()]).toEqual([]);
    expect([...(await rows.claim(worker, 'alone, if long')).keys()]).toEqual([]);
    expect(await scene.actors.get(ids[0] ?? '')).toMatchObject({ status: 'due', lost: 2 });
    expect((await scene.actors.explain(ids[0] ?? '')).reasons.join()).toMatch(/runs alone/);
    expect((await scene.actors.health()).held).toEqual([]);
    const [claimed] = await rows.claim(worker, 'alone');
    if (claimed === undefined) throw new Error('nothing was claimed');
    await rows.commit(worker, claimed, 'released');
    expect([...(await rows.claim(worker)).keys()]).toEqual([]);
    await scene.one(`select pawl.actor_give_back_except($1, '{}')`, [worker]);
    await scene.query(`update pawl.actor_instance set wake_at = wake_at - interval '1 minute'`);
    const [late] = await rows.claim(worker, 'alone, if long');
    if (late === undefined) throw new Error('nothing was claimed');
    await scene.one(`select pawl.actor_give_back_except($1, '{}')`, [worker]);
    expect([...(await rows.claim(worker)).keys()]).toEqual([]);
    const [again] = await rows.claim(worker, 'alone');
    if (again === undefined) throw new Error('nothing was claimed');
    await rows.commit(worker, again, 'failed');
    expect(await rows.losses()).toMatchObject({ [again[0]]: [0, 1 + 2] });
    expect([...(await rows.claim(worker)).keys()]).toEqual([again[0]]);
  });

  // Invariant A10.
  test('twice in a row, begins with what was raised and has not been read', async () => {
    const { rows, ids, scene } = await open();
    await rows.loseTwice();
    for (const id of ids) await scene.actors.incr(id, 'go', { n: 3 });
    const worker = await rows.worker();
    const [claimed] = await rows.claim(worker, 'alone');
    expect(await scene.one('select semaphores from pawl.actor_instance where id = $1', [claimed?.[0]])).toEqual({
      go: 3,
    });
  });

  test('three times in a row, is held, with a page, until somebody resumes it or runs it by hand', async () => {
    const { rows, ids, scene } = await open();
    await rows.loseTwice();
    for (let n = 0; n < 3; n += 1) {
      const worker = await rows.worker();
      expect((await rows.claim(worker, 'alone')).size).toBe(1);
      await rows.lose(worker);
    }
    const worker = await rows.worker();
    expect((await rows.claim(worker, 'alone')).size).toBe(0);
    const why = 'its process died or was suspended three times in a row';
    const shown = await Promise.all(ids.map((id) => scene.actors.get(id)));
    for (const one of shown) expect(one).toMatchObject({ status: 'held', held: why, lost: 3 });
    const pages = await scene.actors.pages();
    expect(pages.map(({ tag }) => tag).sort()).toEqual(ids.map((id) => `actor-lost:${id}`));
    expect(pages[0]?.summary).toMatch(new RegExp(`thing \\d+ is held in "only": ${why}`));
    expect((await scene.actors.history(ids[0] ?? '')).map(({ reason }) => reason)).toEqual([
      'created',
      'worker lost',
      'worker lost',
      'worker lost',
      'held',
    ]);
    expect((await scene.actors.explain(ids[0] ?? '')).advice.join()).toMatch(/pawl actor resume/);
    // A program that knows its state is no reason to try it again.
    await scene.run();
    const [resumed = '', byHand = '', left = ''] = ids;
    await scene.actors.resume(resumed);
    await scene.actors.waitFor(resumed);
    expect(await scene.actors.work(byHand)).toMatchObject({ kind: 'done' });
    expect((await scene.actors.pages()).map(({ tag }) => tag)).toEqual([`actor-lost:${left}`]);
    expect(await scene.actors.get(left)).toMatchObject({ status: 'held' });
  });

  test("with hold: 'transaction', is counted as well, though no lease has to end", async () => {
    const { rows, ids, scene } = await open();
    const worker = await rows.worker();
    const lend = async (actor: string, epoch: number): Promise<void> => {
      await scene.one('select pawl.actor_run_in_transaction($1)', [
        JSON.stringify({ actor: Number(actor), epoch, worker }),
      ]);
      await scene.query(`update pawl.actor_instance set wake_at = clock_timestamp() where id = $1`, [actor]);
    };
    for (const lost of [1, 2]) {
      for (const [actor, epoch] of await rows.claim(worker)) await lend(actor, epoch);
      expect((await rows.claim(worker)).size).toBe(lost === 1 ? 3 : 0);
      expect(Object.values(await rows.losses()).map(([n]) => n)).toEqual([lost, lost, lost]);
      if (lost === 1) await scene.one(`select pawl.actor_give_back_except($1, '{}')`, [worker]);
    }
    // A turn that was not begun is no try.
    expect(await scene.query('select distinct attempt, error from pawl.actor_instance')).toEqual([
      { attempt: 2, error: 'the worker was lost during the turn' },
    ]);
    const [alone] = await rows.claim(worker, 'alone');
    if (alone === undefined) throw new Error('nothing was claimed');
    expect(ids).toContain(alone[0]);
    const told = await scene.actors.history(alone[0]);
    expect(told.map(({ reason, attempt }) => `${reason} ${attempt}`)).toEqual([
      'created 0',
      'worker lost 1',
      'worker lost 2',
    ]);
    expect((await scene.actors.get(alone[0])).attempt).toBe(3);
  });
});

describe('an actor that ruins its process', () => {
  test.each([
    ['kills it', 'kill'],
    ['never gives the event loop back, and a watchdog ends it', 'loop'],
  ])(
    '%s: it is held after three, with a page, while supervisors restart processes; the others go on',
    async (_how, kind) => {
      const scene = await openScene([Poison, Good]);
      let isOver = false;
      let died = 0;
      const processes = new Set<Child>();
      const supervise = async (): Promise<void> => {
        while (!isOver) {
          const child = spawnChild('actor/work/poison.child.ts', [], { URL: scene.url, KIND: kind, BLOCKED: 'exit' });
          processes.add(child);
          const { signal } = await child.exited;
          processes.delete(child);
          if (!isOver && signal === 'SIGKILL') died += 1;
        }
      };
      const supervisors = [supervise(), supervise()];
      try {
        const good = [];
        for (let n = 0; n < 8; n += 1) good.push(await scene.actors.create(Good, {}));
        const bad = await scene.actors.create(Poison, {});
        await until('it is held', async () => (await scene.actors.get(bad)).status === 'held', 60_000);
        for (const one of good) await scene.actors.waitFor(one, { timeout: '60s' });
        // The last one may be rescued before it is dead.
        await until('three have died', () => died >= 3);
        expect((await scene.actors.pages()).map(({ tag }) => tag)).toEqual([`actor-lost:${bad.id}`]);
      } finally {
        isOver = true;
        for (const child of processes) void child.kill();
        await Promise.all(supervisors);
      }
    },
    120_000,
  );
});
