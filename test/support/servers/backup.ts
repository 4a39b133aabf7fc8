import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { EmbeddedPostgres } from '../../../src/engine/postgres/embedded/index.ts';
import { until } from '../eventually.ts';
import { memoryFolder } from '../memory.ts';
import { startTestServer } from './embedded.ts';
import { ask, copyRunning } from './standby.ts';

const run = promisify(execFile);

/** From which another server can be made, as the first one was at a moment. */
export interface Backup extends AsyncDisposable {
  /** This is the moment. */
  mark(): Promise<void>;
  /** The first one may go on until then, and is not needed afterwards. */
  restore(): Promise<EmbeddedPostgres>;
}

/** A copy of the running server, and its log from then on up to the moment. */
export async function backUp(primary: EmbeddedPostgres, settings: Record<string, string>): Promise<Backup> {
  const folder = await makeFolder();
  const made = join(folder, 'data');
  await copyRunning(primary, made);
  let moment = '';
  return {
    mark: async () => {
      moment = String(await ask(primary, 'select pg_current_wal_flush_lsn()::text as n'));
    },
    restore: async () => {
      const recovery = [
        `restore_command = 'cp "${join(primary.dataDir, 'pg_wal')}/%f" "%p"'`,
        `recovery_target_lsn = '${moment}'`,
        "recovery_target_action = 'promote'",
      ];
      await writeFile(join(made, 'postgresql.auto.conf'), `${recovery.join('\n')}\n`, { mode: 0o644 });
      await writeFile(join(made, 'recovery.signal'), '', { mode: 0o644 });
      const server = await startTestServer(settings, made);
      await until('it has recovered', async () => (await ask(server, 'select pg_is_in_recovery() as n')) === false);
      return server;
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The data folder as it lies there at the moment, as a snapshot of the disk has it. Nothing may be written meanwhile. */
export async function copyFolder(primary: EmbeddedPostgres, settings: Record<string, string>): Promise<Backup> {
  const folder = await makeFolder();
  const made = join(folder, 'data');
  return {
    mark: async () => {
      await ask(primary, 'checkpoint');
      await run('cp', ['-a', primary.dataDir, made]);
      await rm(join(made, 'postmaster.pid'));
    },
    restore: () => startTestServer(settings, made),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(join(memoryFolder(), 'pawl-backup-'));
  // The server may run under another account than the tests.
  await chmod(folder, 0o755);
  return folder;
}
