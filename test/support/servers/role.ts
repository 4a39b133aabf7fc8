import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { onTestFinished } from 'vitest';

/** A role of a test's own, and a URL of the same database as that role. Roles are the server's: it is dropped when the test is over. */
export interface TestRole {
  readonly name: string;
  readonly url: string;
}

/**
 * @param attributes  in addition to LOGIN; nothing is granted to it
 * @param atEnd  is told how to drop it. Default: the end of the test
 */
export async function testRole(
  databaseUrl: string,
  attributes = '',
  atEnd: (end: () => Promise<void>) => void = onTestFinished,
): Promise<TestRole> {
  const name = `pawl_test_${randomBytes(6).toString('hex')}`;
  await asAdmin(databaseUrl, `create role ${name} login password 'modest' ${attributes}`);
  atEnd(() =>
    asAdmin(databaseUrl, `reassign owned by ${name} to current_user; drop owned by ${name}; drop role ${name}`),
  );
  const url = new URL(databaseUrl);
  url.username = name;
  url.password = 'modest';
  return { name, url: url.href };
}

async function asAdmin(url: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(text);
  await client.end();
}
