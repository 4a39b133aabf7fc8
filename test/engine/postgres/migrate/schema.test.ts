import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { actor, createActors } from '../../../../src/actor/index.ts';
import { InvalidInput, NotSupported, SchemaMismatch } from '../../../../src/base/errors.ts';
import { probe } from '../../../../src/base/probe.ts';
import { createCapture, sql } from '../../../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { captureRows, createLocks, lockKey, lockRows, settle } from '../../../../src/lock/index.ts';
import { createQueue, createQueueAdmin } from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { CAPABILITIES } from '../../../support/strange/capabilities.ts';

let database: Awaited<ReturnType<typeof freshDatabase>>;
let client: pg.Client;
let jobs: PostgresEngine;
let billing: PostgresEngine;

function mail(engine: PostgresEngine) {
  return createQueue(engine, 'mail', { kinds: { send: {} } });
}

async function open(): Promise<void> {
  database = await freshDatabase({ migrated: false });
  client = new pg.Client({ connectionString: database.url });
  await client.connect();
  [jobs, billing] = [postgres(database.url, { schema: 'jobs' }), postgres(database.url, { schema: 'billing' })];
}

async function close(): Promise<void> {
  await Promise.all([jobs.stop(), billing.stop(), client.end()]);
  await database.drop();
}

describe('an own schema', () => {
  beforeEach(open);
  afterEach(close);

  test('has everything, and makes nothing elsewhere', async () => {
    await jobs.migrate();
    await CAPABILITIES['capture']?.(jobs);
    const { rows } = await client.query(
      `select (select count(*)::int from pg_namespace where nspname = 'pawl') as schemas,
        (select count(*)::int from pg_proc p join pg_namespace n on n.oid = p.pronamespace
          where n.nspname <> 'information_schema' and p.prosrc ~ '\\mpawl\\.' and p.prosrc !~ 'current_setting') as functions`,
    );
    expect(rows).toEqual([{ schemas: 0, functions: 0 }]);
  });

  test('is made by migrate(), compared by status(), and written out by a dry run', async () => {
    expect((await jobs.status()).state).toBe('behind');
    const { sql: script } = await jobs.migrate({ dryRun: true });
    await client.query(script ?? '');
    expect((await jobs.status()).state).toBe('current');
    expect((await jobs.migrate()).applied).toEqual([]);
    expect((await billing.status()).state).toBe('behind');
    expect((await jobs.describe()).schema).toBe('jobs');
  });

  test('is named by the errors about what is missing', async () => {
    const queue = mail(jobs);
    const failure: unknown = await queue.register().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(SchemaMismatch);
    expect(String(failure)).toMatch(/"?jobs\b/);
  });
});

describe('two schemas in one database', () => {
  beforeAll(async () => {
    await open();
    await Promise.all([jobs.migrate(), billing.migrate()]);
  });
  afterAll(close);

  test.for(Object.entries(CAPABILITIES).filter(([name]) => name !== 'capture'))(
    '%s: each works as if it were alone',
    async ([, exercise]) => {
      await Promise.all([exercise(jobs), exercise(billing)]);
    },
  );

  test('a pool of the program’s may be shared by both', async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 }).on('error', () => {});
    const both = ['jobs', 'billing'].map((schema) => postgres(pool, { schema }));
    for (const engine of [...both, ...both]) {
      const queue = createQueue(engine, 'shared', { kinds: { send: {} } });
      await queue.enqueue('send', {});
    }
    for (const engine of both) {
      expect((await createQueueAdmin(engine).stats('shared')).new).toBe(2);
      await engine.stop();
    }
    await pool.end();
  });

  test('a job, its key and the NOTIFY for it are of one of them', async () => {
    const [mine, theirs] = [mail(jobs), mail(billing)];
    await mine.register();
    await theirs.register();
    let open: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      open = resolve;
    });
    const ran: string[] = [];
    const workers = [
      mine.work({ send: async () => held.then(() => void ran.push('jobs')) }, { poll: '1m' }),
      theirs.work({ send: () => void ran.push('billing') }, { poll: '1m' }),
    ];
    await Promise.all(workers.map((worker) => worker.started));
    await mine.enqueue('send', {}, { key: 'k' });
    await theirs.enqueue('send', {}, { key: 'k' });
    await until('one has run', async () => ran.length === 1);
    expect(ran).toEqual(['billing']);
    open();
    await until('both have run', async () => ran.length === 2);
    await Promise.all(workers.map((worker) => worker.stop()));
  });

  test('a job and an actor are handed to a process that sleeps', async () => {
    const offers = (capability: string): Promise<unknown> =>
      until(`a worker of ${capability} has made its offer`, async () => {
        const { rows } = await client.query(`select count(*)::int as n from jobs.${capability}_offer`);
        return rows[0]?.n > 0;
      });
    const queue = createQueue(jobs, 'handed', { kinds: { send: {} } });
    const worker = queue.work({ send: () => {} }, { poll: '60s' });
    await offers('queue');
    using job = probe.watch('queue.handed');
    const { id } = await queue.enqueue('send', {});
    await queue.waitFor(id, { timeout: '30s' });
    expect(job.hits).toHaveLength(1);
    await worker.stop();

    const Thing = actor('handed', {
      semaphores: ['go'],
      initial: 'only',
      states: (state) => ({ only: state({ to: [], run: async (a) => (a.take('go') ? a.done() : a.hibernate()) }) }),
    });
    const actors = createActors(jobs, [Thing]);
    const thing = await actors.create(Thing, {});
    const dispatcher = actors.run({ poll: '60s', lease: '20s' });
    await until('it hibernates', async () => (await actors.get(thing.id)).status === 'hibernating');
    await offers('actor');
    using turn = probe.watch('actor.handed');
    await actors.incr(thing.id, 'go');
    await actors.waitFor(thing.id, { timeout: '30s' });
    expect(turn.hits).toHaveLength(1);
    await dispatcher.stop();
  });

  test('a lock of one excludes no holder in the other', async () => {
    const [mine, theirs] = [createLocks(jobs), createLocks(billing)];
    await using held = await mine.acquire('nightly', { lease: '30s' });
    expect(await mine.tryAcquire('nightly')).toBeUndefined();
    await using other = await theirs.acquire('nightly', { wait: '5s' });
    expect([held.isHeld, other.isHeld]).toEqual([true, true]);
    expect((await theirs.query()).held).toHaveLength(1);
  });

  test('a table that both capture has the triggers of both, and each log has each change', async () => {
    await client.query('create table orders (id int primary key, n int)');
    const captures = [jobs, billing].map((engine) => createCapture(engine, { entity: 'orders', root: 'orders' }));
    captures.forEach((capture, index) =>
      capture.project({
        into: `orders_${index}`,
        columns: { n: 'int' },
        build: sql`select o.id, o.n from orders o where o.id = any ($1::int[]) and 'pawl.x' <> 'y'`,
      }),
    );
    for (const capture of captures) await capture.apply();
    for (const capture of captures) expect(await capture.verify()).toEqual([]);
    await client.query('insert into orders values (1, 7)');
    const workers = captures.map((capture) => capture.run());
    for (const index of [0, 1]) {
      await until(
        'it is projected',
        async () => (await client.query(`select from orders_${index} where n = 7`)).rowCount === 1,
      );
    }
    await Promise.all(workers.map((worker) => worker.stop()));
    const { rows } = await client.query(
      `select distinct substring(tgname, '^\\w+_capture') as role, r.rolname as owner from pg_trigger t
        join pg_proc p on p.oid = t.tgfoid join pg_roles r on r.oid = p.proowner where tgrelid = 'orders'::regclass order by 1`,
    );
    expect(rows).toEqual([
      { role: 'billing_capture', owner: 'billing_capture' },
      { role: 'jobs_capture', owner: 'jobs_capture' },
    ]);
    await captures[0]?.detach();
    expect(await captures[1]?.verify()).toEqual([]);
  });

  test('rows and names are locked by a transaction of Pawl’s, or of another library that says which schema', async () => {
    await client.query("create table task (id int primary key, status text); insert into task values (1, 'new')");
    await jobs.transaction(async (tx) => {
      expect(await lockKey(tx, 'a')).toBe(true);
      expect((await lockRows(tx, 'task', [1])).locked).toEqual([1]);
      await billing.transaction(async (other) => {
        expect(await lockKey(other, 'a', { ifLocked: 'skip' })).toBe(true);
        expect(await lockKey(other, 'a', { ifLocked: 'skip', namespace: 'jobs' })).toBe(false);
      });
    });
    await client.query('begin');
    const options = { status: { from: 'new', to: 'taken' }, limit: 1 };
    await expect(captureRows(client, 'task', options)).rejects.toThrow(/pawl/);
    await client.query('rollback; begin');
    const rows = await captureRows(client, 'task', { ...options, pawlSchema: 'billing' });
    expect(rows.map(({ claim }) => claim.pawlSchema)).toEqual(['billing']);
    expect((await settle(client, 'task', rows, 'done')).stale).toEqual([]);
    await client.query('commit');
  });

  test('names are hashed to other numbers, by which transactions lock', async () => {
    const { rows } = await client.query(
      "select jobs.hashtextextended('a', 7) as mine, billing.hashtextextended('a', 7) as theirs, hashtextextended('a', 7) as plain",
    );
    expect(new Set(Object.values(rows[0])).size).toBe(3);
    const text = 'select pg_advisory_lock_shared(1885435757, 1), pg_advisory_xact_lock(1885435756, 1)';
    const sent = [jobs, billing].map(({ schema }) => schema.text(text).match(/\d{3,}/g));
    expect(new Set([...sent.flat(), '1885435756', '1885435757']).size).toBe(6);
  });

  test('a statement of the program’s is sent as it is', async () => {
    const said = statement('test.said', "select 'pawl.x' || 'pawl' as said", { isOwn: false });
    expect(await jobs.query(said)).toEqual([{ said: 'pawl.xpawl' }]);
  });

  test('a payload that looks like SQL stays as it is', async () => {
    const payload = `pawl.queue_job 'pawl' schema pawl pawl_capture hashtextextended( 1885435757 \\' \\\\`;
    for (const hold of ['lease', 'transaction'] as const) {
      const queue = createQueue(jobs, `echo ${hold}`, { kinds: { echo: {} } });
      const { id } = await queue.enqueue('echo', payload);
      await using worker = queue.work({ echo: (unit) => unit.payload }, { hold, concurrency: 2 });
      await worker.started;
      await until('it is complete', async () => (await createQueueAdmin(jobs).get(id)).status === 'complete');
      expect((await createQueueAdmin(jobs).get(id)).result).toBe(payload);
    }
  });

  test('a role that has only the rights of one sees nothing of the other', async () => {
    await client.query('drop role if exists only_jobs; create role only_jobs login password $$x$$');
    await client.query(`grant usage on schema jobs to only_jobs; grant select, insert, update, delete on all tables in schema jobs to only_jobs;
      grant usage, select on all sequences in schema jobs to only_jobs; grant execute on all functions in schema jobs to only_jobs`);
    const url = new URL(database.url);
    [url.username, url.password] = ['only_jobs', 'x'];
    const limited = [postgres(url.href, { schema: 'jobs' }), postgres(url.href, { schema: 'billing' })];
    const [own, other] = limited.map(mail);
    await own?.enqueue('send', {});
    await expect(other?.enqueue('send', {})).rejects.toThrow(/grant usage on schema billing to ROLE/);
    await expect(limited[1]?.migrate()).rejects.toThrow(NotSupported);
    await Promise.all(limited.map((engine) => engine.stop()));
    await client.query('drop owned by only_jobs; drop role only_jobs');
  });
});

test.for([
  ['public', /other roles may create/],
  ['pg_jobs', /Postgres keeps/],
  ['information_schema', /catalog|15/],
  ['select', /key word/],
  ['Jobs', /lower-case/],
  ['jobs;drop', /lower-case/],
  ['', /lower-case/],
  ['a234567890123456', /1 to 15/],
] as const)('the name "%s" is refused', ([schema, reason]) => {
  const open = (): unknown => postgres('postgres://localhost/x', { schema });
  expect(open).toThrow(InvalidInput);
  expect(open).toThrow(reason);
});
