import { randomBytes } from 'node:crypto';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { buildChildren } from '../children/children.ts';
import { makeCluster, startTestServer } from './embedded.ts';
import { logInCheaply } from './login.ts';
import { TEMPLATE, warmTemplate } from './template.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Of the server that all test files share; its databases are made with `freshDatabase`. */
    serverUrl: string;
    /** Stands in the name of every database of this run, so that runs can share a server. */
    runId: string;
    /** Where the scripts stand that tests run as processes. */
    children: string;
  }
}

const SETTINGS = {
  // Tests kill processes, never the machine: what was written survives that without reaching the disk.
  fsync: 'off',
  full_page_writes: 'off',
  max_connections: '400',
  // It would look into each of some hundred databases, which are gone before there is anything to clean.
  autovacuum: 'off',
};

/** One server for the whole run: that of TEST_DATABASE_URL, else our own. And the scripts of child processes, built once. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const runId = randomBytes(4).toString('hex');
  project.provide('runId', runId);
  const children = await buildChildren();
  project.provide('children', children.folder);
  const given = process.env['TEST_DATABASE_URL'];
  if (given) {
    project.provide('serverUrl', given);
    project.provide('cluster', '');
    return async () => void (await Promise.all([dropDatabases(given, runId), children.remove()]));
  }
  const cluster = await makeCluster();
  project.provide('cluster', cluster.dataDir);
  const server = await startTestServer(SETTINGS, cluster.dataDir);
  await logInCheaply(server.url);
  await warmTemplate(server.url, TEMPLATE);
  project.provide('serverUrl', server.url);
  return async () => void (await Promise.all([server.stop(), cluster.remove(), children.remove()]));
}

/** A server that is not ours outlives the run; its databases must not. */
async function dropDatabases(url: string, runId: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ datname: string }>(
      'select datname from pg_database where starts_with(datname, $1)',
      [`pawl_${runId}_`],
    );
    for (const { datname } of rows) {
      await client.query(`alter database "${datname}" is_template false`);
      await client.query(`drop database if exists "${datname}" with (force)`);
    }
  } finally {
    await client.end();
  }
}
