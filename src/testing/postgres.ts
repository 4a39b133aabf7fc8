import { moment, sleep, waitedFor } from '../base/time/clock.ts';
import { only, type PostgresEngine, statement } from '../engine/postgres/index.ts';

const CLEAR = statement(
  'world.clear',
  // No truncate, because it makes thirty new files: a scenario leaves few rows, and runs many times.
  `
with inbox as (delete from pawl.actor_inbox), message as (delete from pawl.actor_message),
  question as (delete from pawl.actor_question), field as (delete from pawl.actor_field), effect as (delete from pawl.actor_effect),
  transition as (delete from pawl.actor_transition), worker as (delete from pawl.actor_worker), page as (delete from pawl.actor_page),
  snapshot as (delete from pawl.actor_snapshot), paused as (delete from pawl.actor_paused_state)
delete from pawl.actor_instance`,
  { prepare: false },
);
const SHIFT = statement(
  'world.shift',
  `
with time as (
  select $1::double precision as ms, $1::double precision * interval '1 millisecond' as gone
), message as (
  update pawl.actor_message m set at = m.at - t.gone
  from time t
), actors as (
  update pawl.actor_instance a set
    wake_at = a.wake_at - t.gone, retry_at = a.retry_at - t.gone, floor_at = a.floor_at - t.gone,
    deadline_at = a.deadline_at - t.gone, entered_at = a.entered_at - t.gone, created_at = a.created_at - t.gone,
    timers = (
      select pg_catalog.jsonb_object_agg(e.key, pg_catalog.jsonb_build_array((e.value ->> 0)::double precision - t.ms, (e.value ->> 1)::double precision - t.ms))
      from pg_catalog.jsonb_each(a.timers) e)
  from time t
)
update pawl.actor_notice n set next_at = n.next_at - t.gone
from time t
where n.done_at is null`,
);
const RESTLESS = statement(
  'world.restless',
  `
with lost as (
  update pawl.actor_instance a set wake_at = clock_timestamp()
  where a.error = 'the worker was lost during the turn' and a.wake_at > clock_timestamp() returning a.id
)
select coalesce(
  (select 'the worker of actor ' || l.id::text || ' was lost' from lost l limit 1),
  (select 'actor ' || v.id::text || ' is ' || v.status || ' in "' || v.state || '"' || coalesce(': ' || a.error, '')
    from pawl.actor v join pawl.actor_instance a on a.id = v.id where v.status in ('running', 'due') order by v.id limit 1),
  (select 'something waits in the inbox of actor ' || i.actor::text from pawl.actor_inbox i order by i.id limit 1),
  (select 'the deadline of actor ' || d.id::text || ' has passed' from pawl.actor_instance d where d.deadline_at < clock_timestamp() limit 1)
) as what`,
);
const EXPIRE = statement(
  'world.expire',
  `update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`,
);
const RESCUE = statement('world.rescue', 'select pawl.actor_rescue()');
// Databases of dead processes: no session holds their locks.
const FREE = statement(
  'world.free',
  'update pawl.actor_instance a set wake_at = clock_timestamp() where a.tx_worker is not null',
);
const WORKERS = statement('world.workers', 'select count(*)::int as n from pawl.actor_worker');
const ACTORS = statement(
  'world.actors',
  `
select a.id::text, a.parent::text, t.name as type, a.state, a.key, a.fields, a.result, a.finished_at is not null as final,
  a.semaphores, (select count(*)::int from pawl.actor_message m where m.actor = a.id) as messages,
  array(select p.tag from pawl.actor_page p where p.actor = a.id and p.resolved_at is null order by p.tag) as pages
from pawl.actor_instance a join pawl.actor_type t on t.id = a.type
order by a.id`,
);

const LOOK_MS = 2;

/** The part of an actor that has to be the same after every crash. */
export interface WorldActor {
  readonly id: string;
  readonly parent: string | null;
  readonly type: string;
  readonly state: string;
  readonly key: string | null;
  readonly fields: unknown;
  readonly result: unknown;
  readonly final: boolean;
  readonly semaphores: unknown;
  readonly messages: number;
  readonly pages: readonly string[];
}

/** The database of a world. */
export class PostgresWorld {
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** Removes every actor. Call it only if a {@link Claim} says that the actors are the world's. */
  async clear(): Promise<void> {
    await this.#engine.query(CLEAR);
  }

  /** Moves all times in the future closer by this duration. */
  async shift(ms: number): Promise<void> {
    await this.#engine.query(SHIFT, [ms]);
  }

  /** The remaining work, in words. Turns that a process lost are retried now: their backoff is no part of the scenario. */
  async restless(): Promise<string | undefined> {
    const [row] = await this.#engine.query<{ what: string | null }>(RESTLESS);
    return row?.what ?? undefined;
  }

  /** Rescues the actors of processes that are dead; their leases end. */
  async rescue(patienceMs: number): Promise<void> {
    const begun = moment();
    // Rows that a dying connection still locks are skipped, and the row of its worker stays until then; its heartbeat may hold
    // that lock.
    for (let left = Infinity; left > 0 && waitedFor(begun) < patienceMs; await sleep(LOOK_MS)) {
      await this.#engine.query(EXPIRE);
      await this.#engine.query(RESCUE);
      left = only(await this.#engine.query<{ n: number }>(WORKERS)).n;
    }
    await this.#engine.query(FREE);
  }

  actors(): Promise<WorldActor[]> {
    return this.#engine.query<WorldActor & Record<string, unknown>>(ACTORS);
  }
}
