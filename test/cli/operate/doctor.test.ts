import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { testRole } from '../../support/servers/role.ts';
import { warmPawl } from '../warm-pawl.ts';

interface Finding {
  readonly check: string;
  readonly verdict: string;
  readonly detail: string;
  readonly fix: string | null;
}

async function diagnose(
  url: string,
): Promise<{ code: number | null; of: (check: string) => Finding | undefined; findings: Finding[] }> {
  const { code, stdout } = await warmPawl(['doctor', '-o', 'json'], { url });
  const findings: Finding[] = JSON.parse(stdout);
  return { code, findings, of: (check) => findings.find((finding) => finding.check === check) };
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

test('a healthy database has no findings but good ones, and no password is shown', async () => {
  const { url } = await freshDatabase();
  // Postgres 14 lets everybody create there.
  await (await connect(url)).query('revoke create on schema public from public');
  const { code, findings, of } = await diagnose(url);
  expect(findings.filter(({ verdict }) => verdict !== 'ok')).toEqual([]);
  expect(code).toBe(0);
  expect(of('notify')?.detail).toBe('arrives');
  expect(of('server')?.detail).toMatch(/^Postgres \d+/);
  expect(JSON.stringify(findings)).not.toContain(new URL(url).password);
});

test('a role that lacks a right is told apart from a database that is away, with the grants', async () => {
  const { url } = await freshDatabase();
  const { of } = await diagnose((await testRole(url)).url);
  expect(of('connection')?.verdict).not.toBe('fail');
  expect(of('rights')).toMatchObject({
    verdict: 'fail',
    detail: expect.stringContaining('grant usage on schema pawl to ROLE'),
    fix: expect.stringContaining('the owner of the schema'),
  });
});

test('a missing schema is a problem, with the command that mends it', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const { code, of } = await diagnose(url);
  expect(code).toBe(1);
  expect(of('schema')).toMatchObject({ verdict: 'fail', fix: 'pawl migrate' });
});

test('a database that cannot be reached is a finding, and 3', async () => {
  const { code, of } = await diagnose('postgres://me:secret@127.0.0.1:1/app');
  expect(code).toBe(3);
  expect(of('url')?.detail).toBe('postgres://me:***@127.0.0.1:1/app from PAWL_URL');
  expect(of('connection')).toMatchObject({ verdict: 'fail', fix: expect.stringContaining('start the database') });
});

test('a lost worker with jobs in hand, a key held by no process and a paused queue are seen', async () => {
  const { url } = await freshDatabase();
  const client = await connect(url);
  await client.query(`
    select pawl.queue_register('{"name":"left","shards":1,"keyed":true,"attempts":5,"history":60,"kinds":[{"name":"a","unique":false,"coalesce":"none","after":[],"afterError":"run","attempts":null}]}');
    select pawl.enqueue('{"queue":"left","kind":"a","payload":{}}');
    insert into pawl.queue_worker (queue, pid, concurrency, lease, expires_at, hold, host)
      select id, 4711, 1, '20 s', clock_timestamp() - interval '1 minute', 'lease', 'gone' from pawl.queue_definition;
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids)
      select 1, w.id, clock_timestamp(), gen_random_uuid(), 0, w.queue, 1, false, int8multirange(int8range(1, 2)) from pawl.queue_worker w;
    delete from pawl.queue_ready;
    insert into pawl.queue_key (shard, queue, key, epoch, held) select 0, id, 'stuck', 1, true from pawl.queue_definition;
    update pawl.queue_definition set paused_at = clock_timestamp()`);
  const { code, of } = await diagnose(url);
  expect(code).toBe(1);
  expect(of('workers')).toMatchObject({
    verdict: 'fail',
    detail: expect.stringContaining('gone:4711 of left with 1 jobs'),
  });
  expect(of('keys')).toMatchObject({ verdict: 'fail', detail: expect.stringContaining('left/stuck') });
  expect(of('paused')).toMatchObject({ verdict: 'warn', fix: 'pawl queue resume left' });
});

test('others who may create functions in a schema of the search path are seen, and one that comes before pg_catalog', async () => {
  const { url, name } = await freshDatabase();
  const client = await connect(url);
  await client.query(
    'create schema shared; revoke create on schema public from public; grant create on schema shared to public',
  );
  await client.query(`alter database "${name}" set search_path = shared, public`);
  const { code, of } = await diagnose(url);
  expect([code, of('search path')]).toMatchObject([
    0,
    {
      verdict: 'warn',
      detail: expect.stringContaining('in shared: everybody'),
      fix: 'revoke create on schema shared from public;',
    },
  ]);
  await client.query(`alter database "${name}" set search_path = public, pg_catalog`);
  expect((await diagnose(url)).of('search path')).toMatchObject({
    verdict: 'warn',
    detail: expect.stringContaining('public comes before pg_catalog'),
  });
});

test('a database that takes no writes is a problem', async () => {
  const { url, name } = await freshDatabase();
  await (await connect(url)).query(`alter database "${name}" set default_transaction_read_only = on`);
  const { code, of } = await diagnose(url);
  expect(code).toBe(1);
  expect(of('writable')).toMatchObject({ verdict: 'fail' });
});
