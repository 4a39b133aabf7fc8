import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { LeaseLost } from '../../../../src/base/errors.ts';
import { within } from '../../../../src/base/time/clock.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../../src/engine/postgres/index.ts';
import type { Lock, LockEngine } from '../../../../src/lock/index.ts';
import { block } from '../../block.ts';
import type { Writing } from '../plan.ts';

/** The store of the locks and of the protected values. */
export interface Ground {
  readonly engine: LockEngine;
  write(lock: Lock, name: string, how: Writing & { readonly op: string }): Promise<'committed' | 'refused' | 'unknown'>;
  stop(): Promise<void>;
}

// Transactions that a silent network leaves open end by timeouts, as operators configure them.
const [IDLE, ANSWER_MS] = [statement('faults.idle', "set local idle_in_transaction_session_timeout = '12s'"), 15_000];
const READ = statement('faults.read', 'select value from faults_value where name = $1');
const WRITE = statement(
  'faults.write',
  `with put as (
    insert into faults_value values ($1, $2) on conflict (name) do update set value = excluded.value
  ) insert into faults_written (name, value, token, op) values ($1, $2, $3, $4)`,
);
const GUARD = statement('faults.guard', 'select pawl.lock_guard($1::jsonb)');

export function postgresGround(url: string): Ground {
  const engine: PostgresEngine = postgres(url, { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
  const guard = async (tx: Transaction, lock: Lock, name: string, isUnaware: boolean): Promise<void> => {
    if (!isUnaware) return lock.guard(tx);
    const key = JSON.stringify({ space: '', names: [name], token: String(lock.token) });
    await tx.query(GUARD, [key]);
  };
  return {
    engine,
    stop: () => engine.stop(),
    write: async (lock, name, { op, pauseMs, lateMs, isUnaware, stands }) => {
      try {
        const writing = engine.transaction(async (tx) => {
          await tx.query(IDLE);
          const [row] = await tx.query<{ value: number }>(READ, [name]);
          await sleep(pauseMs);
          await tx.query(WRITE, [name, Number(row?.value ?? 0) + 1, String(lock.token), op]);
          if (stands?.when === 'before') block(stands.ms);
          await guard(tx, lock, name, isUnaware);
          if (stands?.when === 'after') block(stands.ms);
          await sleep(lateMs);
        });
        return (await within(ANSWER_MS, writing)) ? 'committed' : 'unknown';
      } catch (error) {
        return error instanceof LeaseLost ? 'refused' : 'unknown';
      }
    },
  };
}

/** The protected tables, and the records of decisions about locks: triggers within Pawl's functions, which see only names of Postgres. */
export const TABLES = `
create table faults_value (name text primary key, value int not null);
create table faults_written (name text not null, value int not null, token bigint not null, op text not null);
create table public.faults_decision (
  seq bigint generated always as identity, at timestamptz not null, what text not null, name text not null, nonce uuid not null,
  capacity int not null, ticket bigint, token bigint, expires_at timestamptz not null, transaction text not null
);
create function faults_note_place() returns trigger language plpgsql as $$
declare
  v record := coalesce(new, old);
begin
  insert into public.faults_decision (at, what, name, nonce, capacity, ticket, expires_at, transaction)
  values (clock_timestamp(), case tg_op when 'INSERT' then 'place' when 'UPDATE' then 'kept' else 'gone' end,
    v.name, v.nonce, v.capacity, v.ticket, v.expires_at, txid_current()::text);
  return null;
end $$;
create trigger faults_note after insert or update or delete on pawl.lock_waiter for each row execute function faults_note_place();
create function faults_note_grant() returns trigger language plpgsql as $$
begin
  insert into public.faults_decision (at, what, name, nonce, capacity, token, expires_at, transaction)
  values (clock_timestamp(), 'grant', new.name, new.nonce, new.capacity, new.token, new.expires_at, txid_current()::text);
  return null;
end $$;
create trigger faults_note_insert after insert on pawl.lock_grant for each row
  when (new.token is not null) execute function faults_note_grant();
create trigger faults_note_update after update on pawl.lock_grant for each row
  when (new.token is not null and (new.token is distinct from old.token or new.nonce <> old.nonce)) execute function faults_note_grant();
`;

export async function makeTables(eye: pg.Pool): Promise<void> {
  await eye.query(TABLES);
}
