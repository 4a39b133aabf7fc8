import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { warmPawl } from '../warm-pawl.ts';

test('status is 1 when behind and 0 after migrate, which says what it applied and is safe to repeat', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const before = await warmPawl(['migrate', 'status', '-o', 'json'], { url });
  expect(before.code).toBe(1);
  expect(JSON.parse(before.stdout)).toMatchObject({ state: 'behind', applied: [] });
  expect(before.stderr).toMatch(/next:.*pawl migrate/);

  const applied = await warmPawl(['migrate', '-o', 'json'], { url });
  expect(applied.code).toBe(0);
  const { pending, functions } = JSON.parse(before.stdout);
  expect(JSON.parse(applied.stdout)).toHaveLength(pending.length + functions.length);
  expect(applied.stderr).not.toContain(new URL(url).password);

  const again = await warmPawl(['migrate', 'up'], { url });
  expect(again).toMatchObject({ code: 0, stdout: '', stderr: expect.stringContaining('up to date') });
  expect((await warmPawl(['migrate', 'status', '-o', 'jsonl'], { url })).code).toBe(0);
});

test('status and plan show the line whose functions would be applied again', async () => {
  const { url } = await freshDatabase();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(
    "update pawl.migration_functions set checksum = 'another', retired = '{pawl.queue_id(text)}' where line = 'queue'",
  );
  const status = await warmPawl(['migrate', 'status'], { url });
  expect(status.code).toBe(1);
  expect(status.stdout).toMatch(/queue +functions +pending/);
  const plan = await warmPawl(['migrate', 'plan'], { url });
  for (const { stderr } of [status, plan]) {
    expect(stderr).toContain('pawl.queue_id(text) is kept for processes of an earlier version');
  }
  expect(plan.stdout).toContain('function pawl.queue_claim(');
  expect(plan.stdout).not.toContain('function pawl.lock_acquire(');
});

test('plan and --dry-run print SQL that psql could run, and change nothing', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const plan = await warmPawl(['migrate', 'plan'], { url });
  const dry = await warmPawl(['migrate', '--dry-run'], { url });
  expect(plan.code).toBe(0);
  expect(dry.stdout).toBe(plan.stdout);
  expect((await warmPawl(['migrate', 'status'], { url })).code).toBe(1);

  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  // Without this line psql would go on after a statement that failed, and end with 0.
  const [first, ...sql] = plan.stdout.split('\n');
  expect(first).toBe('\\set ON_ERROR_STOP on');
  await client.query(sql.join('\n'));
  expect((await warmPawl(['migrate', 'status'], { url })).code).toBe(0);
});

test('psql ends at the first statement of a plan that fails, and applies nothing behind it', async ({ skip }) => {
  skip(spawnSync('psql', ['--version']).error !== undefined, 'there is no psql');
  const { url } = await freshDatabase({ migrated: false });
  const { stdout } = await warmPawl(['migrate', 'plan'], { url });
  const broken = stdout.replace('create table pawl.lock_grant', 'create table pawl.lock_grant nonsense');
  const { status } = spawnSync('psql', [url, '-q'], { input: broken });
  expect(status).toBe(3);
});

test('--schema, PAWL_SCHEMA and the config file name another schema, in this order', async () => {
  const { url } = await freshDatabase({ migrated: false });
  expect((await warmPawl(['migrate', '--schema', 'jobs'], { url })).code).toBe(0);
  const state = async (args: string[], env: Record<string, string>): Promise<unknown> =>
    JSON.parse((await warmPawl(['migrate', 'status', '-o', 'json', ...args], { url, env })).stdout).state;
  expect(await state([], {})).toBe('behind');
  expect(await state([], { PAWL_SCHEMA: 'jobs' })).toBe('current');
  expect(await state(['--schema', 'pawl'], { PAWL_SCHEMA: 'jobs' })).toBe('behind');
  const folder = await mkdtemp(join(tmpdir(), 'pawl-schema-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const config = join(folder, 'pawl.config.json');
  await writeFile(config, JSON.stringify({ schema: 'jobs' }));
  expect(await state(['--config', config], {})).toBe('current');
  expect(await state(['--config', config], { PAWL_SCHEMA: 'pawl' })).toBe('behind');
  const refused = await warmPawl(['migrate', '--schema', 'public'], { url });
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('other roles may create') });
});

test('the directUrl of a config file is for the database of its url, and not for another one that --url names', async () => {
  const [own, other] = [await freshDatabase({ migrated: false }), await freshDatabase({ migrated: false })];
  const folder = await mkdtemp(join(tmpdir(), 'pawl-direct-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const config = join(folder, 'pawl.config.json');
  const stateOf = async (url: string): Promise<unknown> =>
    JSON.parse((await warmPawl(['migrate', 'status', '-o', 'json', '--url', url])).stdout).state;
  await writeFile(config, JSON.stringify({ url: own.url, directUrl: own.url }));
  expect((await warmPawl(['migrate', '--url', other.url, '--config', config])).code).toBe(0);
  expect(await stateOf(other.url)).toBe('current');
  expect(await stateOf(own.url)).toBe('behind');
  const named = async (...args: string[]): Promise<string> =>
    (await warmPawl(['doctor', '--url', other.url, '--config', config, ...args])).stdout;
  expect(await named()).not.toContain('directUrl');
  // Without a url of its own, the file is for any database.
  await writeFile(config, JSON.stringify({ directUrl: other.url }));
  expect(await named()).toContain('directUrl');
});

test('status is 1 when a person has changed the schema, and says what mends it; doctor does, too', async () => {
  const { url } = await freshDatabase();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('alter table pawl.queue_worker drop constraint queue_worker_pkey cascade');
  const status = await warmPawl(['migrate', 'status'], { url });
  expect(status.code).toBe(1);
  expect(status.stderr).toMatch(/constraint queue_worker\.queue_worker_pkey: it is missing/);
  const doctor = await warmPawl(['doctor', '-o', 'json'], { url });
  expect(doctor.code).toBe(1);
  const found = JSON.parse(doctor.stdout).filter(({ verdict }: { verdict: string }) => verdict === 'fail');
  expect(found.map(({ check }: { check: string }) => check)).toContain('constraint queue_worker.queue_worker_pkey');
  for (const { fix } of found) await client.query(fix);
  expect((await warmPawl(['migrate', 'status'], { url })).code).toBe(0);
});
