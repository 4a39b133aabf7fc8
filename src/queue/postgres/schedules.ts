import { type AnswerOptions, instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { Due, ScheduleRecord, Tick } from '../operate/schedule.ts';
import { limited, type Runner } from './store.ts';

const NOW = statement(
  'queue.now',
  'select pg_catalog.to_json(extract(epoch from clock_timestamp()) * 1000::numeric) as now',
);
const SET = statement('queue.set_schedule', 'select pawl.queue_set_schedule($1::json)');
const REMOVE = statement(
  'queue.remove_schedule',
  'delete from pawl.queue_schedule where queue = pawl.queue_id($1::text) and name = $2::text returning name',
);
const LIST = statement(
  'queue.schedules',
  `
select q.name as queue, s.name, s.cron, s.timezone, k.name as kind, s.key, s.priority, s.payload, s.missed,
  ${instant("nullif(s.next_at, 'infinity')")} as "nextAt", ${instant('s.last_at')} as "lastAt"
from pawl.queue_schedule s
join pawl.queue_definition q on q.id = s.queue
join pawl.queue_kind k on k.id = s.kind
where $1::text is null or q.name = $1::text
order by q.name, s.name`,
);
const DUE = statement('queue.due', 'select pawl.queue_due($1::smallint[]) as answer');
const TICK = statement('queue.tick', 'select pawl.queue_tick($1::json) as jobs');

/** The statements of schedules. One round trip each. */
export class PostgresQueueSchedules {
  readonly #runner: Runner;

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    this.#runner = limited(engine, answer);
  }

  /** The database's clock, in ms. */
  async now(): Promise<number> {
    const [row] = await this.#runner.query<{ now: number }>(NOW);
    return only(row).now;
  }

  async set(schedule: object): Promise<void> {
    await this.#runner.query(SET, [JSON.stringify(schedule)]);
  }

  /** @returns whether there was one */
  async remove(queue: string, name: string): Promise<boolean> {
    return (await this.#runner.query(REMOVE, [queue, name])).length > 0;
  }

  list(queue: string | null): Promise<ScheduleRecord[]> {
    return this.#runner.query<ScheduleRecord>(LIST, [queue]);
  }

  async due(queues: readonly number[]): Promise<Due> {
    const [row] = await this.#runner.query<{ answer: Due }>(DUE, [queues]);
    return only(row).answer;
  }

  /** Enqueues and moves on, in one transaction. @returns how many jobs; null when somebody else was quicker */
  async tick(tick: Tick): Promise<number | null> {
    const [row] = await this.#runner.query<{ jobs: number | null }>(TICK, [JSON.stringify(tick)]);
    return only(row).jobs;
  }
}

function only<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('the database answered no row where one always comes');
  return row;
}
