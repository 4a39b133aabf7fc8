import { readFileSync } from 'node:fs';
import pg from 'pg';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createActorAdmin } from '../src/actor/index.ts';
import { NotSupported } from '../src/base/errors.ts';
import { type Capture, type CaptureOptions, createCapture, type Projection, sql } from '../src/capture/index.ts';
import { type PostgresEngine, postgres } from '../src/engine/postgres/index.ts';
import { createFileAdmin } from '../src/files/index.ts';
import { createHttp } from '../src/http/index.ts';
import { createLocks } from '../src/lock/index.ts';
import { createQueueAdmin } from '../src/queue/index.ts';
import { freshDatabase } from './support/database.ts';
import { until } from './support/eventually.ts';
import { recordLog } from './support/log.ts';
import { OPEN_DOOR } from './support/servers/open-door.ts';
import { type TestRole, testRole } from './support/servers/role.ts';
import { CAPABILITIES } from './support/strange/capabilities.ts';

/** What SECURITY.md grants to each role. */
const [MAKE_SCHEMA = '', OF_APP = '', OF_READER = '', OF_INSTALLER = ''] = Array.from(
  readFileSync(new URL('../SECURITY.md', import.meta.url), 'utf8').matchAll(/^```sql\n([^]*?)^```$/gm),
  ([, text]) => text,
);

interface Ground {
  readonly admin: pg.Client;
  readonly url: string;
  readonly owner: TestRole;
  readonly app: TestRole;
  readonly reader: TestRole;
  readonly installer: TestRole;
}

/** A database whose schema belongs to a role that is no superuser, and roles with what the document says. */
async function ground(atEnd: (end: () => Promise<void>) => void = onTestFinished): Promise<Ground> {
  const { url } = await freshDatabase({ migrated: false });
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  // A role that owns something cannot be dropped.
  const roles: Record<string, TestRole> = {};
  for (const name of ['owner', 'app', 'reader', 'installer']) roles[name] = await testRole(url, '', atEnd);
  atEnd(() => admin.end());
  const named = (text: string): string =>
    text.replaceAll(/\b(owner|app|reader|installer)\b/g, (name) => roles[name]?.name ?? name);
  await admin.query(named(MAKE_SCHEMA));
  await using(roles['owner'], (engine) => engine.migrate());
  await admin.query(named(OF_APP));
  await admin.query(named(OF_READER));
  const { rowCount } = await admin.query("select from pg_roles where rolname = 'pawl_capture'");
  const installing = named(OF_INSTALLER);
  await admin.query(rowCount === 0 ? installing : installing.replace(/^create role .*$/m, ''));
  return { admin, url, ...roles } as unknown as Ground;
}

/** An engine as that role, while `fn` runs. */
async function using<T>(role: TestRole | undefined, fn: (engine: PostgresEngine) => Promise<T>): Promise<T> {
  const engine = postgres(role?.url ?? '', { logger: recordLog(), max: 12 });
  try {
    return await fn(engine);
  } finally {
    await engine.stop();
  }
}

/** Each of these is refused to the role. */
async function refused(role: TestRole, texts: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: role.url });
  await client.connect();
  onTestFinished(() => client.end());
  for (const text of texts) {
    await expect(client.query(text), text).rejects.toThrow(
      /permission denied|must be owner|must be able to|cannot delete from view/,
    );
  }
}

/** Only for the owner. */
const OWNED = [
  'create table pawl.mine (id int)',
  'create function pawl.mine() returns int language sql as $$ select 1 $$',
  'alter table pawl.queue_job add column mine int',
  'create index on pawl.queue_job (kind)',
  'create trigger mine before insert on pawl.queue_job for each row execute function suppress_redundant_updates_trigger()',
  'truncate pawl.queue_job',
  'drop table pawl.queue_job',
  'drop function pawl.enqueue(jsonb)',
  'alter function pawl.enqueue(jsonb) reset all',
  'create or replace function pawl.queue_wake(p_queue smallint) returns void language sql as $$ select $$',
  'drop schema pawl cascade',
  'create schema mine',
  'create role mine',
  'select * from pg_authid',
];

const CAPTURE: CaptureOptions = {
  entity: 'ord',
  root: 'ord',
  via: { line: { column: 'ord' } },
  history: { ord: { rows: 'both', columns: ['s'] } },
};

function declare(engine: PostgresEngine): { capture: Capture; projection: Projection } {
  const capture = createCapture(engine, CAPTURE);
  const projection = capture.project({
    into: 'ord_search',
    columns: { s: 'text', n: 'bigint' },
    text: ['s'],
    build: sql`select o.id, o.s, (select count(*) from line l where l.ord = o.id) as n from ord o where o.id = any ($1::int[])`,
  });
  return { capture, projection };
}

async function installed({ admin, installer }: Ground): Promise<void> {
  await admin.query(`
    create table ord (id int primary key, s text);
    create table line (id int primary key, ord int not null references ord (id));
    insert into ord values (1, 'first'), (2, 'second');
    alter table ord owner to ${installer.name};
    alter table line owner to ${installer.name};
    grant create on schema public to ${installer.name}`);
  await using(installer, async (engine) => {
    const { capture } = declare(engine);
    capture.follow({ name: 'told', handler: async () => {} });
    expect((await capture.plan()).differences.length).toBeGreaterThan(0);
    await capture.apply();
    expect(await capture.verify()).toEqual([]);
  });
}

test('the owner of a schema that was made for it migrates, and needs no right to create others', async () => {
  const { owner } = await ground();
  await using(owner, async (engine) => {
    expect((await engine.migrate()).applied).toEqual([]);
    expect((await engine.status()).state).toBe('current');
  });
  await refused(owner, ['create schema mine', 'create role mine', 'select * from pg_authid']);
});

describe('an application does all of its work with the four grants', () => {
  const own = Object.entries(CAPABILITIES).filter(([name]) => name !== 'capture');
  let app: TestRole;
  beforeAll(async () => {
    const ends: (() => Promise<void>)[] = [];
    ({ app } = await ground((end) => ends.push(end)));
    return async () => {
      for (const end of ends.toReversed()) await end();
    };
  });

  test.for(own)('%s', ([, exercise]) => using(app, exercise));

  test('and is refused what is the owner’s', () => refused(app, OWNED));
});

test('a role that may not migrate is told what to grant', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const role = await testRole(url);
  await using(role, async (engine) => {
    const failure: unknown = await engine.migrate().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(NotSupported);
    const { advice = '' } = /"(?<advice>create schema [^"]*)"/.exec(String(failure))?.groups ?? {};
    expect(advice).toContain(role.name);
    const admin = new pg.Client({ connectionString: url });
    await admin.connect();
    await admin.query('create schema pawl');
    await expect(engine.migrate()).rejects.toThrow(/schema pawl belongs to postgres.*grant postgres to/);
    // What it says is enough.
    await admin.query(`drop schema pawl; ${advice}`);
    await engine.migrate();
    await admin.query('drop schema pawl cascade');
    await admin.end();
  });
});

test('a reader sees everything by SQL, by the library and over HTTP, and changes nothing', async () => {
  const here = await ground();
  await installed(here);
  const { admin, app, reader } = here;
  let jobId = '';
  await using(app, async (engine) => {
    const { createQueue } = await import('../src/queue/index.ts');
    const jobs = createQueue(engine, 'mail', { kinds: { send: {} } });
    jobId = (await jobs.enqueue('send', { to: 'a' })).id;
  });
  await admin.query(`grant select on ord_search to ${reader.name}; update ord set s = 'third' where id = 1`);
  const { rows } = await admin.query<{ name: string }>(
    `select format('pawl.%I', relname) as name from pg_class where relnamespace = 'pawl'::regnamespace and relkind in ('r', 'v', 'p') and not relispartition order by 1`,
  );
  expect(rows.length).toBeGreaterThan(40);
  await using(reader, async (engine) => {
    await engine.session(async (session) => {
      for (const { name } of rows) await session.run(`select count(*) from ${name}`);
    });
    const admin = createQueueAdmin(engine);
    expect((await admin.list()).map(({ name }) => name)).toEqual(['mail']);
    expect((await admin.get(jobId)).status).toBe('new');
    expect((await admin.explain(jobId)).reasons.map(({ code }) => code)).toEqual(['no_worker']);
    expect(await createLocks(engine).query()).toEqual({ held: [], waiting: [] });
    expect(await createFileAdmin(engine).stores()).toEqual([]);
    expect(await createActorAdmin(engine).pages()).toEqual([]);
    const { capture, projection } = declare(engine);
    expect((await capture.history({ key: 1 })).map(({ op }) => op)).toEqual(['update']);
    expect((await projection.search('third')).matches).toBe(0);
    const handler = createHttp(engine, { auth: OPEN_DOOR });
    onTestFinished(() => handler.stop());
    for (const path of [
      'queues',
      'jobs',
      `jobs/${jobId}`,
      'locks',
      'actors',
      'pages',
      'captures',
      'workers',
      'history',
    ]) {
      const response = await handler(new Request(`http://localhost/api/v1/${path}`), { remoteAddress: '127.0.0.1' });
      expect([path, response.status, response.ok ? '' : await response.text()]).toEqual([path, 200, '']);
    }
  });
  await refused(reader, [
    ...OWNED,
    ...rows.map(({ name }) => `delete from ${name}`),
    `select pawl.enqueue('{"queue": "mail", "kind": "send"}')`,
    `select pawl.queue_pause('mail')`,
    `select pawl.queue_cancel_job('mail', ${jobId}, null)`,
    `insert into pawl.queue_ready select * from pawl.queue_ready`,
    `update pawl.queue_job set priority = 1`,
    `select nextval('pawl.queue_job_id')`,
  ]);
});

test('a role with the rights of the owners installs captures, and takes them out', async () => {
  const here = await ground();
  await installed(here);
  await using(here.installer, async (engine) => {
    const { capture } = declare(engine);
    await here.admin.query('alter table ord disable trigger pawl_capture_ord_insert');
    expect(await capture.verify()).not.toEqual([]);
    await capture.apply();
    expect(await capture.verify()).toEqual([]);
    await capture.detach();
  });
  const { rows } = await here.admin.query("select from pg_trigger where tgname like 'pawl%'");
  expect(rows).toEqual([]);
  await refused(here.installer, ['create schema mine', 'create role mine', 'select * from pg_authid']);
});

test('an application works on projections and followers of tables that are not its own, and installs none', async () => {
  const here = await ground();
  await installed(here);
  const { admin, app } = here;
  await admin.query(`
    grant select on ord, line to ${app.name};
    grant select, insert, update, delete on ord_search to ${app.name}`);
  await using(app, async (engine) => {
    const { capture, projection } = declare(engine);
    const told: string[] = [];
    const follower = capture.follow({
      name: 'told',
      handler: async (changes) => void told.push(...changes.map(({ op, key }) => `${op} ${key}`)),
    });
    const workers = [projection.run({ poll: '20ms' }), follower.run({ poll: '20ms' })];
    for (const { started } of workers) await started;
    expect(await projection.backfill()).toMatchObject({ phase: 'done' });
    await admin.query("insert into ord values (3, 'third'); insert into line values (1, 3)");
    await projection.settled();
    await until('the follower has it', () => told.includes('insert 3'));
    expect((await projection.search('third')).rows.map(({ row }) => row)).toEqual([{ id: 3, s: 'third', n: 1 }]);
    expect(await projection.reconcile()).toMatchObject({ drifted: 0 });
    expect((await capture.history({ key: 3 })).map(({ op }) => op)).toContain('insert');
    for (const worker of workers) await worker.stop();
    await expect(capture.apply()).rejects.toThrow(/belongs to another role/);
    await expect(capture.plan()).rejects.toThrow(/belongs to another role/);
  });
  await refused(app, [...OWNED, 'update ord set s = null', 'delete from line', 'alter table ord disable trigger all']);
});
