import type { AnswerOptions, Session } from './session.ts';
import { type Statement, statement } from './sql.ts';

/** Who asks about connections on another one: the engine. */
export interface Asker {
  query<Row>(sql: Statement, values: unknown[], options: AnswerOptions): Promise<Row[]>;
}

/** The server's process behind a connection. */
export interface Backend {
  readonly pid: number;
  readonly startedAt: string;
}

/**
 * Has the server look after a connection on which a transaction stays open for long: when the network or this machine goes
 * away without a word, the transaction and its locks end after about `ms`, and not after the two hours of most kernels.
 * @returns undefined behind a pooler, whose connection to the server will be somebody else's
 */
export async function watchOver(session: Session, ms: number, options: AnswerOptions): Promise<Backend | undefined> {
  const [idle, interval] = [Math.ceil(ms / 2_000), Math.ceil(ms / 8_000)];
  const results = await session.run<{ pid: number; started_at: string }>(
    `set tcp_keepalives_idle = ${idle}; set tcp_keepalives_interval = ${interval}; set tcp_keepalives_count = 4; ` +
      `set tcp_user_timeout = ${Math.ceil(ms)}; ` +
      // Of the view pg_stat_activity, planning alone takes four times as long as this.
      'select pid, backend_start::text as started_at from pg_stat_get_activity(pg_backend_pid())',
    options,
  );
  const found = results.at(-1)?.rows[0];
  // A pooler gives its clients process ids of its own invention.
  if (found === undefined || Reflect.get(session.client, 'processID') !== found.pid) return undefined;
  return { pid: found.pid, startedAt: found.started_at };
}

/** Ends the process behind a connection that was lost: it may not know, and keep what it has locked. */
export async function endBackend(engine: Asker, backend: Backend, options: AnswerOptions): Promise<void> {
  await engine.query(END, [backend.pid, backend.startedAt], options);
}

/**
 * When each of these processes went to rest, by pid; those at work are left out, and those that are gone have rested for ever.
 */
export async function lastMoves(
  engine: Asker,
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
select u.pid, coalesce(a.state_change, '-infinity')::text as since
from unnest($1::int[], $2::timestamptz[]) u (pid, started_at)
left join pg_stat_activity a on a.pid = u.pid and a.backend_start = u.started_at
where a.pid is null or a.state like 'idle%'`,
);

const END = statement(
  'engine.end_backend',
  'select pg_terminate_backend(pid) from pg_stat_activity where pid = $1::int and backend_start = $2::timestamptz',
);
