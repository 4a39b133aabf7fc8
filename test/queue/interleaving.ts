import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { SqlSession } from './sql-session.ts';

/** One of several concurrent sessions: its steps in order. */
export interface Actor {
  readonly name: string;
  readonly session: SqlSession;
  readonly steps: readonly (() => Promise<unknown>)[];
}

/** Every order in which the steps of actors with so many steps each can follow one another: `[[0, 0, 1], [0, 1, 0], …]`. */
export function interleavings(counts: readonly number[]): number[][] {
  if (counts.every((count) => count === 0)) return [[]];
  return counts.flatMap((count, actor) =>
    count === 0
      ? []
      : interleavings(counts.map((other, index) => (index === actor ? other - 1 : other))).map((rest) => [
          actor,
          ...rest,
        ]),
  );
}

/**
 * Runs the actors' steps in the given order on real sessions. While a step waits for a lock, the steps of other actors
 * continue; the later steps of its own actor follow after it. Resolves when all steps have run.
 */
export async function interleave(
  monitor: SqlSession,
  actors: readonly Actor[],
  order: readonly number[],
): Promise<void> {
  const lanes = actors.map((actor) => ({ actor, next: 0, pending: undefined as Promise<void> | undefined }));
  const failures: unknown[] = [];
  const advance = async (lane: (typeof lanes)[number]): Promise<void> => {
    const step = lane.actor.steps[lane.next];
    if (step === undefined || lane.pending !== undefined) return;
    lane.next += 1;
    const running = step().then(
      () => {},
      (error: unknown) => void failures.push(error),
    );
    lane.pending = running.then(() => {
      lane.pending = undefined;
    });
    await doneOrBlocked(monitor, lane.actor.session.pid, lane.pending);
  };
  for (const index of order) {
    const lane = lanes[index];
    if (lane !== undefined) await advance(lane);
  }
  while (lanes.some((lane) => lane.pending !== undefined || lane.next < lane.actor.steps.length)) {
    for (const lane of lanes) await advance(lane);
    await Promise.race([sleep(1), ...lanes.flatMap((lane) => lane.pending ?? [])]);
  }
  if (failures.length > 0) throw failures[0];
}

/**
 * Has the functions of a database that give up after half a second wait for a lock as long as a busy machine may take for the step that
 * frees it.
 */
export async function makePatient(client: pg.ClientBase): Promise<void> {
  await client.query(`
    do $$
    declare
      v_function text;
    begin
      for v_function in select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'pawl'::regnamespace and 'lock_timeout=500ms' = any (p.proconfig)
      loop
        execute format('alter function %s set lock_timeout = ''40s''', v_function);
      end loop;
    end $$`);
}

async function doneOrBlocked(monitor: SqlSession, pid: number, step: Promise<void>): Promise<void> {
  let isDone = false;
  const done = step.then(() => {
    isDone = true;
  });
  for (;;) {
    await Promise.race([done, sleep(4)]);
    if (isDone) return;
    const blockers = await monitor.one<number[]>('select pg_blocking_pids($1)', [pid]);
    if (blockers.length > 0) return;
  }
}
