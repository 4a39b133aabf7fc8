import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const ENDED = statement(
  'http.sessions_ended',
  'select e.id from pawl.http_session_ended e where e.until > clock_timestamp()',
);

/** Ends a session; removes sessions whose cookies have ended, which need no look-up any more. */
const END = statement(
  'http.session_end',
  `
with gone as (delete from pawl.http_session_ended e where e.until < clock_timestamp())
insert into pawl.http_session_ended (id, until) values ($1, $2) on conflict (id) do nothing`,
);

/** Sessions of the dashboard that were ended before their time. */
export class SessionStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  async ended(): Promise<string[]> {
    return (await this.#reads.query<{ id: string }>(ENDED)).map(({ id }) => id);
  }

  async end(id: string, until: Date): Promise<void> {
    await this.#writes.query(END, [id, until]);
  }
}
