import pg from 'pg';
import { until } from './eventually.ts';

/** Defaults of a database under which a statement that waits does not see what others commit meanwhile. */
export const SNAPSHOT_DEFAULTS = ['repeatable read', 'serializable'] as const;

/** From now on, new connections to the database have this default. */
export async function setDefaultIsolation(url: string, isolation: (typeof SNAPSHOT_DEFAULTS)[number]): Promise<void> {
  await onClient(url, (client) =>
    client.query(
      `do $$ begin execute format('alter database %I set default_transaction_isolation to %L', current_database(), '${isolation}'); end $$`,
    ),
  );
}

/** The result of `call`, which begins while another transaction has made `change`. That commits once the call waits for it, or is over. */
export async function meanwhile<T>(url: string, change: string, call: () => Promise<T>): Promise<T> {
  return onClient(url, async (client) => {
    await client.query(`begin isolation level read committed; ${change}`);
    let isOver = false;
    const called = call().finally(() => {
      isOver = true;
    });
    called.catch(() => {});
    await until('the call waits, or is over', async () => {
      if (isOver) return true;
      const { rows } = await client.query(
        'select from pg_locks l where not l.granted and pg_backend_pid() = any (pg_blocking_pids(l.pid))',
      );
      return rows.length > 0;
    });
    await client.query('commit');
    return called;
  });
}

async function onClient<T>(url: string, fn: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await fn(client);
  } finally {
    await client.end();
  }
}
