import { expect } from 'vitest';
import { until } from '../../support/eventually.ts';
import { type Child, spawnChild } from '../../support/process.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { type ActorScene, openScene, type SceneOptions } from '../scene.ts';
import { walker } from './walker.ts';

const { Walker, Companion } = walker(async () => {});

/** Walkers that wait for somebody to run them. */
export interface Walk extends ActorScene {
  /** A process that runs walkers; `child` waits until it does. */
  readonly spawn: (env?: NodeJS.ProcessEnv) => Child;
  readonly child: (env?: NodeJS.ProcessEnv) => Promise<Child>;
  /** Whether all have walked to their end. */
  readonly isOver: () => Promise<boolean>;
  readonly ids: readonly string[];
  /** So many more. */
  readonly create: (more: number) => Promise<void>;
}

export async function open(count: number, options?: SceneOptions): Promise<Walk> {
  const scene = await openScene([Walker, Companion], options);
  await scene.query(
    'create table test_turn (actor bigint, visit bigint, epoch bigint, pid int, at timestamptz default clock_timestamp())',
  );
  await scene.query('create table test_effect (actor bigint, visit bigint)');
  const ids: string[] = [];
  const create = async (more: number): Promise<void> => {
    for (let n = 0; n < more; n += 1) ids.push((await scene.actors.create(Walker, {})).id);
  };
  await create(count);
  const spawn = (env: NodeJS.ProcessEnv = {}): Child =>
    spawnChild('actor/worker.child.ts', [], { URL: scene.url, ...env });
  const child = async (env?: NodeJS.ProcessEnv): Promise<Child> => {
    const started = spawn(env);
    await started.message();
    return started;
  };
  const isOver = (): Promise<boolean> => scene.one(`select count(*)::int = 0 from pawl.actor where status <> 'final'`);
  return { ...scene, ids, create, spawn, child, isOver };
}

/** All have walked to their end, exactly once each step that counts; no step is left. */
export async function check({ actors, one, query, ids }: Walk): Promise<void> {
  for (const id of ids) {
    const { status, result } = await actors.get(id);
    expect(status).toBe('final');
    expect(result).toMatchObject({ children: 1, made: true });
    const moves = (await actors.history(id)).filter(({ from, to }) => from !== to).map(({ to }) => to);
    expect(moves).toEqual(['one', 'two', 'three', 'held', 'four']);
  }
  expect(await one('select count(*)::int from test_effect')).toBe(3 * ids.length);
  expect(await query('select actor from test_effect group by actor, visit having count(*) > 1')).toEqual([]);
  expect(await one(`select count(*)::int from pawl.actor where type = 'companion'`)).toBe(ids.length);
  expect(await one(`select count(*)::int from pawl.actor where status <> 'final'`)).toBe(0);
  // Each turn of an actor had an epoch of its own: no two were ever the current one.
  expect(await query('select actor from test_turn group by actor, epoch having count(*) > 1')).toEqual([]);
}

/** @returns how long that took */
export async function allFinal(walk: Walk, ms = 50_000): Promise<number> {
  const { isOver, ids } = walk;
  const begun = awakeMs();
  await until(`all ${ids.length} have walked to their end`, isOver, ms).catch(async (error: Error) => {
    throw new Error(`${error.message}; ${await whatIsLeft(walk)}`);
  });
  return awakeMs() - begun;
}

/** Which actors have not come to their end, who works, and who has a transaction open or waits for one. */
async function whatIsLeft({ query }: Walk): Promise<string> {
  const actors = await query(`
    select a.id, a.type, a.state, a.worker, a.tx_worker, a.epoch, a.attempt, a.children, a.wake_at - now() as wakes, a.error,
      (select count(*)::int from pawl.actor_inbox i where i.actor = a.id) as inbox
    from pawl.actor_instance a where a.finished_at is null order by a.id limit 10`);
  const workers = await query(
    'select id, pid, expires_at - now() as expires, wants_notify from pawl.actor_worker order by id',
  );
  const sessions = await query(`
    select pid, state, wait_event, now() - xact_start as open, now() - state_change as since, pg_blocking_pids(pid) as blocked_by,
      left(query, 60) as query
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and (xact_start is not null or state <> 'idle')`);
  return JSON.stringify({ actors, workers, sessions });
}
