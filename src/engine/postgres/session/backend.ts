import { type Statement, statement } from '../sql.ts';
import type { AnswerOptions, Session } from './session.ts';

/** Runs queries about connections over another connection: the engine. */
export interface BackendQueries {
  query<Row>(sql: Statement, values: unknown[], options: AnswerOptions): Promise<Row[]>;
}

/** The server's process behind a connection. */
export interface Backend {
  readonly pid: number;
  readonly startedAt: string;
}

/**
 * Makes the server watch a connection on which a transaction stays open for long. If the network or this machine fails
 * silently, the transaction and its locks end after about `ms`, and not after the two hours of most kernels. Time limits that a
 * provider has set for sessions and transactions do not apply to this connection. It must not go back to a pool.
 * @returns undefined behind a pooler: its connection to the server will serve other clients, and keeps its time limits
 */
export async function limitSilence(session: Session, ms: number, options: AnswerOptions): Promise<Backend | undefined> {
  const [idle, interval] = [Math.ceil(ms / 2_000), Math.ceil(ms / 8_000)];
  // A pooler gives its clients process ids that it has invented.
  const told: unknown = Reflect.get(session.client, 'processID');
  const own = typeof told === 'number' ? told : -1;
  const results = await session.run<{ pid: number; started_at: string }>(
    `set tcp_keepalives_idle = ${idle}; set tcp_keepalives_interval = ${interval}; set tcp_keepalives_count = 4; ` +
      `set tcp_user_timeout = ${Math.ceil(ms)}; ` +
      `select ${withoutLimits(false)} where pg_backend_pid() = ${own}; ` +
      // Planning alone takes four times as long as this for the view pg_stat_activity.
      'select pid, extract(epoch from backend_start)::text as started_at from pg_stat_get_activity(pg_backend_pid())',
    options,
  );
  const found = results.at(-1)?.rows[0];
  return found === undefined || found.pid !== own ? undefined : { pid: found.pid, startedAt: found.started_at };
}

/**
 * A list of expressions that lift the time limits of a transaction that stays open: for this transaction, or for the session.
 */
export function withoutLimits(isLocal: boolean): string {
  const limits = [
    'idle_in_transaction_session_timeout',
    'transaction_timeout',
    ...(isLocal ? [] : ['idle_session_timeout']),
  ];
  // transaction_timeout came with Postgres 17.
  return limits
    .map(
      (name) =>
        `case when current_setting('${name}', true) is not null then set_config('${name}', '0', ${isLocal}) end`,
    )
    .join(', ');
}

/** Ends the process behind a lost connection. It may not notice the loss, and keep its locks. */
export async function endBackend(engine: BackendQueries, backend: Backend, options: AnswerOptions): Promise<void> {
  await engine.query(END, [backend.pid, backend.startedAt], options);
}

/**
 * The time from which each of these processes has been idle, by pid. Busy processes are left out. A process that is gone counts
 * as idle for ever.
 */
export async function idleSince(
  engine: BackendQueries,
  backends: readonly Backend[],
  options: AnswerOptions,
): Promise<Map<number, string>> {
  const values = [backends.map(({ pid }) => pid), backends.map(({ startedAt }) => startedAt)];
  const rows = await engine.query<{ pid: number; since: string }>(LAST_MOVES, values, options);
  return new Map(rows.map(({ pid, since }) => [pid, since]));
}

const LAST_MOVES = statement(
  'engine.last_moves',
  `
select u.pid, coalesce(extract(epoch from a.state_change)::text, '') as since
from unnest($1::int[], $2::text[]) u (pid, started_at)
left join pg_stat_activity a on a.pid = u.pid and extract(epoch from a.backend_start)::text = u.started_at
where a.pid is null or a.state like 'idle%'`,
);

const END = statement(
  'engine.end_backend',
  'select pg_terminate_backend(pid) from pg_stat_activity where pid = $1::int and extract(epoch from backend_start)::text = $2',
);
