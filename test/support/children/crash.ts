import pg from 'pg';
import { until } from '../eventually.ts';

/** From now on commits are not flushed: what is committed without waiting for the disk is lost when the server crashes. */
export interface WalHold {
  /** Kills a process of the server's, which then begins anew with what it had written; its postmaster goes on. */
  crash(): Promise<void>;
}

/** @param url  of a superuser, on a server of the test's own with `synchronous_commit = off` */
export async function holdBackWal(url: string): Promise<WalHold> {
  const pid = Number(await ask(url, "select pid as n from pg_stat_activity where backend_type = 'walwriter'"));
  process.kill(pid, 'SIGSTOP');
  return {
    crash: async () => {
      process.kill(pid, 'SIGKILL');
      const isAnother = "select count(*)::int as n from pg_stat_activity where backend_type = 'walwriter' and pid <> ";
      await until('the server answers again', () => ask(url, isAnother + pid).catch(() => undefined));
    },
  };
}

async function ask(url: string, text: string): Promise<unknown> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    const { rows } = await client.query<{ n: unknown }>(text);
    return rows[0]?.n;
  } finally {
    await client.end();
  }
}
