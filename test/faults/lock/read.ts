import type pg from 'pg';
import type { Decision, HoldEnd, Written } from './history.ts';

/** Milliseconds of the clock of the processes. */
const time = (column: string): string => `(extract(epoch from ${column}) * 1000)::float8 - $1`;

/** The writes, in the order of their commits. */
export async function readPostgresWritten(eye: pg.Pool, offset: number): Promise<Written[]> {
  const { rows } = await eye.query<Written>(
    `select name, value, token::text, op, ${time('pg_xact_commit_timestamp(xmin)')} as "committedAt"
     from faults_written order by pg_xact_commit_timestamp(xmin)`,
    [offset],
  );
  return rows;
}

export async function readDecisions(eye: pg.Pool, offset: number): Promise<Decision[]> {
  const { rows } = await eye.query<Decision>(
    `select ${time('at')} as at, what, name, nonce::text, capacity, ticket::int, token::text,
       least(${time('expires_at')}, 1e300) as "expiresAt", transaction
     from faults_decision order by seq`,
    [offset],
  );
  return rows;
}

/** The holds that have ended, also expired ones that were not evicted yet. */
export async function readEnded(eye: pg.Pool, offset: number): Promise<HoldEnd[]> {
  const { rows } = await eye.query<HoldEnd>(
    `select name, token::text, ${time('ended_at')} as at, outcome from pawl.lock_past
     union all
     select name, token::text, ${time('expires_at')}, coalesce(outcome, 'expired') from pawl.lock_grant
     where token is not null and expires_at > '-infinity'`,
    [offset],
  );
  return rows;
}
