import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createCapture, createCaptureAdmin, sql } from '../../../src/capture/index.ts';
import { examine } from '../../../src/cli/doctor/checks.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createFileAdmin, createFiles, disk } from '../../../src/files/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { captureRows, extendRows, lockKey, lockRows, settle } from '../../../src/lock/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../database.ts';
import { until } from '../eventually.ts';
import { OPEN_DOOR } from '../servers/open-door.ts';
import type { Exercise } from './capabilities.ts';

/** As {@link CAPABILITIES}: what is done with users' tables, by operators, and now and then. */
export const BY_HAND: Readonly<Record<string, Exercise>> = {
  'rows of tables': rows,
  'projections and copies': projections,
  'operators of files and queues': operators,
};

/** None of these types has operators of its own: they are compared by those of text and of all enums. */
const TASKS = `
create type public.progress as enum ('new', 'at work', 'done');
create table public.task (id varchar(20) primary key, status public.progress not null default 'new', who varchar(20), tries smallint not null default 3, token bigint, until timestamptz);
insert into public.task (id, who) values ('a', 'x'), ('b', 'y'), ('c', null)`;

async function rows(engine: Parameters<Exercise>[0]): Promise<void> {
  const run = async <Row>(text: string): Promise<Row[]> =>
    engine.query<Row>(statement('test', text, { prepare: false }));
  for (const text of TASKS.split(';\n')) await run(text);
  await engine.transaction(async (tx) => {
    const { locked, missing } = await lockRows(tx, 'task', ['b', 'a', 'z'], { timeout: '5s' });
    assert.deepEqual([locked, missing], [['b', 'a'], ['z']]);
    assert.deepEqual((await lockRows(tx, 'public.task', ['c'], { ifLocked: 'skip' })).locked, ['c']);
    await lockKey(tx, 'a name', { timeout: '5s' });
  });
  await assert.rejects(
    engine.transaction((tx) => lockRows(tx, 'tusk', ['a'])),
    /did you mean "task"/,
  );
  for (const kept of [{}, { token: 'token', lease: { column: 'until', for: '1m' } } as const]) {
    const options = {
      status: { from: 'new', to: 'at work' },
      limit: 2,
      where: { who: { not: 'y' } },
      orderBy: { column: 'who', desc: true },
      retries: 'tries',
      ...('token' in kept ? kept : { lease: '1m' as const }),
    } as const;
    const taken = await captureRows(engine, 'task', options);
    assert.deepEqual(taken.map(({ row }) => String(row['id'])).toSorted(), ['a', 'c']);
    assert.equal((await extendRows(engine, 'task', taken, '2m')).settled.length, 2);
    assert.equal((await settle(engine, 'task', taken, 'new', { set: { who: 'x' } })).settled.length, 2);
  }
  const some = await captureRows(engine, 'task', {
    status: { from: ['new', 'done'], to: 'at work' },
    limit: 5,
    where: { who: { in: ['x', 'y'] }, tries: { gte: 1, lt: 4 } },
  });
  assert.equal(some.length, 3);
}

async function projections(engine: Parameters<Exercise>[0]): Promise<void> {
  const run = async <Row>(text: string): Promise<Row[]> =>
    engine.query<Row>(statement('test', text, { prepare: false }));
  const elsewhere = await freshDatabase();
  const to = postgres(elsewhere.url);
  try {
    await run("create type public.shade as enum ('light', 'dark')");
    await to.query(statement('test', "create type public.shade as enum ('light', 'dark')"));
    await run('create table public.maker (name varchar(20) primary key, country text)');
    await run(
      'create table public.lamp (id varchar(20) primary key, maker varchar(20) not null, shade public.shade, price numeric(8, 2), about varchar(200))',
    );
    const own = createCapture(engine, {
      entity: 'lamp',
      root: 'public.lamp',
      via: { 'public.maker': { column: 'name', to: 'public.lamp.maker' } },
      history: { 'public.lamp': { rows: 'both', columns: ['price'] } },
    });
    const columns = { maker: 'varchar(20)', shade: 'public.shade', price: 'numeric(8, 2)', about: 'varchar(200)' };
    const shown = { columns, text: ['about'], order: 'maker', language: 'english' };
    // What is given is of the program's path, so that it is exact here.
    const build = sql`select l.id, l.maker, l.shade, l.price, l.about from public.lamp l where l.id::text = any ($1::text[])`;
    const here = own.project({ ...shown, into: 'public.lamp_here', build });
    const there = own.project({ ...shown, into: 'public.lamp_there', build, to });
    const told: string[] = [];
    own.follow({ name: 'told', handler: async (changes) => void told.push(...changes.map(({ op }) => op)) });
    await run("insert into public.lamp values ('l0', 'm1', 'dark', 1.5, 'an old lamp')");
    await own.apply();
    const worker = own.run({ poll: '50ms' });
    const errors: unknown[] = [];
    for (const projection of [here, there]) {
      projection.events.on('error', ({ error }) => errors.push(error));
      projection.events.on('failed', ({ error }) => errors.push(error));
    }
    await worker.started;
    await run("insert into public.maker values ('m1', 'dk'), ('m2', 'se')");
    await run(
      "insert into public.lamp select 'l' || i::text, 'm2', 'light', i::numeric, 'a lamp of glass' from generate_series(1, 30) i",
    );
    await run("update public.lamp set maker = 'm1', price = 7 where id::text = 'l3'");
    await run("update public.maker set country = 'no' where name::text = 'm1'");
    await run("delete from public.lamp where id::text = 'l4'");
    for (const projection of [here, there]) {
      assert.equal((await projection.backfill()).phase, 'done');
      await projection.settled();
      assert.equal((await projection.reconcile()).drifted, 0);
      const first = await projection.search('lamp "of glass" -wood', { limit: 10, filter: { shade: 'light' } });
      assert.equal(first.rows.length, 10);
      const second = await projection.search('lamp "of glass" -wood', {
        limit: 10,
        filter: { shade: 'light' },
        cursor: first.next,
      });
      assert.equal(second.rows.length, 10);
    }
    await until('the follower has been told', () => told.includes('delete'));
    assert.equal((await own.history({ key: 'l3' })).length > 0, true);
    assert.deepEqual(await own.prune(), []);
    const admin = createCaptureAdmin(engine);
    assert.equal((await admin.status('lamp')).length, 3);
    await admin.culprits(1);
    assert.deepEqual(await admin.replay('lamp', { into: here.name }), [here.name]);
    await here.settled();
    assert.deepEqual([...(await own.verify()), ...(await admin.verify('lamp'))], []);
    await worker.stop();
    assert.deepEqual(errors, []);
    await own.detach();
  } finally {
    await to.stop();
    await elsewhere.drop();
  }
}

async function operators(engine: Parameters<Exercise>[0]): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'pawl-test-hand-'));
  const files = createFiles(engine, { content: disk(dir), namespace: 'hand' });
  const handler = createHttp(engine, { auth: OPEN_DOOR, rate: { burst: 1_000 } });
  const ask = async (method: string, path: string, body?: object): Promise<unknown> => {
    const init = { method, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const headers = { 'content-type': 'application/json', traceparent: `00-${'ab'.repeat(16)}-${'cd'.repeat(8)}-01` };
    const request = new Request(`http://localhost/api/v1${path}`, { ...init, headers });
    const response = await handler(request, { remoteAddress: '127.0.0.1' });
    const text = await response.text();
    assert.ok(response.status < 300, `${method} ${path}: ${response.status} ${text}`);
    return text === '' ? undefined : JSON.parse(text);
  };
  try {
    await files.write('a', 'one');
    await files.write('a', 'two');
    await files.restore('a', 1);
    await files.copy('a', 'b');
    assert.deepEqual(
      (await files.list()).map(({ id }) => id),
      ['a', 'b'],
    );
    await files.explain('a');
    await files.sweep();
    await files.reconcile();
    await createFileAdmin(engine).reloads('hand');
    const jobs = createQueue(engine, 'hand', { kinds: { job: {} } });
    await jobs.register();
    await ask('POST', '/queues/hand/jobs', { kind: 'job', payload: { a: 1 }, key: 'k' });
    await jobs.schedule('later', { cron: '0 0 1 1 *', kind: 'job', payload: 1 });
    await ask('POST', '/schedules/hand/later/run');
    const { id } = (await ask('POST', '/bulk', { action: 'cancel', query: 'status:new', queue: 'hand' })) as {
      id: string;
    };
    await until('the bulk action has ended', async () => {
      const { items } = (await ask('GET', '/bulk')) as { items: { id: string; status: string }[] };
      return items.find((one) => one.id === id)?.status === 'done';
    });
    await ask('GET', `/bulk/${id}/results`);
    await ask('GET', '/audit');
    assert.deepEqual(
      (await examine(engine)).filter(({ verdict }) => verdict === 'fail'),
      [],
    );
  } finally {
    await handler.stop();
    await files.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
