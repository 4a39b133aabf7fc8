import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { Knex } from 'knex';
import type { Transaction as KyselyTransaction } from 'kysely';
import type pg from 'pg';
import type postgresJs from 'postgres';
import * as v from 'valibot';
import type { StandardSchemaV1 } from '../../src/base/options/schema.ts';
import type { OpenTransaction, Transaction } from '../../src/engine/postgres/index.ts';
import type { Files } from '../../src/files/index.ts';
import type { Locks } from '../../src/lock/index.ts';
import { createQueue, type Queue, type Unit } from '../../src/queue/index.ts';

// Mistakes that the compiler finds: `npm run types` checks this file, and nothing runs it.

type Kinds = {
  readonly mail: { readonly payload: StandardSchemaV1<{ to: string }> };
  readonly any: object;
};

type Drizzle = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0];

export function transactions(queue: Queue<Kinds>, unit: Unit, files: Files): void {
  const of = (tx: OpenTransaction): void => {
    void queue.enqueue('mail', { to: 'a' }, { tx });
    void queue.enqueueMany([{ kind: 'mail', payload: { to: 'a' } }], { tx });
    void unit.guard(tx);
    void files.remove('a', { tx });
  };
  of({} as Transaction);
  of({} as pg.PoolClient);
  of({} as pg.Client);
  of({} as postgresJs.TransactionSql);
  of({} as KyselyTransaction<unknown>);
  of({} as Drizzle);
  of({} as Knex.Transaction);
  // @ts-expect-error: a number is no transaction
  void queue.enqueue('mail', { to: 'a' }, { tx: 42 });
  // @ts-expect-error: a URL is no transaction
  void queue.enqueue('mail', { to: 'a' }, { tx: 'postgres://localhost' });
  // @ts-expect-error: this object cannot run a statement
  void queue.enqueue('mail', { to: 'a' }, { tx: {} });
}

export function durations(locks: Locks, queue: Queue<Kinds>): void {
  void locks.acquire('a', { wait: '3s', lease: '1.5m' });
  void locks.acquire('a', { wait: 500, lease: '90 s' });
  void locks.acquire('a', { wait: 'Infinity' });
  // @ts-expect-error: there is no such unit
  void locks.acquire('a', { wait: '5 parsecs' });
  // @ts-expect-error: not a duration
  void queue.drain({ timeout: 'forever' });
}

export function schedules(queue: Queue<Kinds>): void {
  void queue.schedule('nightly', { cron: '0 2 * * *', kind: 'mail', payload: { to: 'a' } });
  void queue.schedule('nightly', { cron: '0 2 * * *', kind: 'any', payload: 1 });
  // @ts-expect-error: not the payload of the kind
  void queue.schedule('nightly', { cron: '0 2 * * *', kind: 'mail', payload: { nope: 1 } });
  // @ts-expect-error: no such kind
  void queue.schedule('nightly', { cron: '0 2 * * *', kind: 'mial' });
}

export function engines(): void {
  // @ts-expect-error: a URL is no engine
  createQueue('postgres://localhost/app', 'q', { kinds: { a: { payload: v.string() } } });
}
