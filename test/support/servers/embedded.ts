import { randomInt } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { inject } from 'vitest';
import { type EmbeddedPostgres, startEmbedded } from '../../../src/engine/postgres/embedded/index.ts';
import { memoryFolder } from '../memory.ts';
import { enterTemplate, makeTemplate, migrate, TEMPLATE } from './template.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The data folder of this run that is copied, or empty. */
    cluster: string;
  }
}

/** The Postgres of the folder TEST_POSTGRES (with bin/, lib/ and share/), else the one that is found. */
const tree = process.env['TEST_POSTGRES'];
const binaries: { tree?: string } = tree ? { tree } : {};

/** A data folder as initdb makes it, with a migrated template, of a server that was stopped. */
export interface MadeCluster {
  readonly dataDir: string;
  remove(): Promise<void>;
}

/** For servers of tests that are not about initdb, which takes 0.7 s of the processor, as migrating does; to copy what both made, 0.05 s. */
export async function makeCluster(): Promise<MadeCluster> {
  const folder = await mkdtemp(join(memoryFolder(), 'pawl-cluster-'));
  // The server may run under another account than the tests.
  await chmod(folder, 0o755);
  const dataDir = join(folder, 'data');
  const server = await startEmbedded({ data: dataDir, ...binaries });
  try {
    await makeTemplate(server.url, TEMPLATE);
  } finally {
    await server.stop();
  }
  return { dataDir, remove: () => rm(folder, { recursive: true, force: true }) };
}

/** A server of a test's own, in memory where there is room. */
export async function startTestServer(
  settings: Record<string, string>,
  made: string | undefined = inject('cluster') || undefined,
): Promise<EmbeddedPostgres> {
  const port = await lastingPort();
  return startEmbedded({ temp: memoryFolder(), port, settings, ...binaries, ...(made ? { made } : {}) });
}

/** The first that a system gives to those who connect is higher, usually 32768. */
const PORTS = { from: 15_000, to: 32_000 };

/**
 * A free port for a server that is stopped and started again on it. One of those that the system chooses from may be a client's by
 * then: of some other connection on this machine, for as long as that lasts.
 */
export async function lastingPort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

/** The same, and the database of its URL is migrated. */
export async function startMigratedServer(settings: Record<string, string>): Promise<EmbeddedPostgres> {
  const server = await startTestServer(settings);
  await migrateCopied(server.url, inject('cluster') !== '');
  return server;
}

/** @param isCopied  whether the server's folder is a copy: to take its template is half a second of the processor less than to migrate */
export async function migrateCopied(url: string, isCopied: boolean): Promise<void> {
  if (isCopied) await enterTemplate(url);
  else await migrate(url, 'postgres');
}

/** The option for a server of the Postgres that is found. Without it, initdb is run. */
export function copied(): { made?: string } {
  const made = inject('cluster');
  return made && tree === undefined ? { made } : {};
}
