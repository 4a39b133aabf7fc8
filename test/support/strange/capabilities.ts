import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { actor, createActors } from '../../../src/actor/index.ts';
import { createCapture, createCaptureAdmin, sql } from '../../../src/capture/index.ts';
import { type PostgresEngine, statement } from '../../../src/engine/postgres/index.ts';
import { createFileAdmin, createFiles, disk } from '../../../src/files/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { createQueue, createQueueAdmin } from '../../../src/queue/index.ts';
import { until } from '../eventually.ts';
import { OPEN_DOOR } from '../servers/open-door.ts';

/**
 * Once through what a capability writes and reads, on a database with only the migrations in it. Rejects where something is not as
 * it should be: whatever settings the sessions have, and whatever parsers the program has set.
 */
export type Exercise = (engine: PostgresEngine) => Promise<void>;

export const CAPABILITIES: Readonly<Record<string, Exercise>> = {
  'queue (lease)': (engine) => queue(engine, 'lease'),
  'queue (transaction)': (engine) => queue(engine, 'transaction'),
  locks,
  actors,
  capture,
  files,
};

/** With braces, quotes, a key in snake case, and numbers that nothing may round. */
const PAYLOAD = { some_key: `it's "\\" {x,NULL}`, big: 1234567, part: 0.1, yes: true, nothing: null };

const META = { some_key: `it's "\\" {x,NULL}` };

async function queue(engine: PostgresEngine, hold: 'lease' | 'transaction'): Promise<void> {
  const name = `q-${hold}`;
  const jobs = createQueue(engine, name, {
    kinds: { job: {}, once: { unique: 'key' }, all: { coalesce: 'all' } },
    retry: { backoff: { kind: 'fixed', min: '50ms' } },
  });
  const ran: string[] = [];
  const note = (...what: unknown[]): void => void ran.push(JSON.stringify(what));
  const worker = jobs.work(
    {
      job: (unit) => {
        note(unit.kind, unit.key, unit.payload);
        aboutNow(unit.job.enqueuedAt);
        if (unit.payload === 'fail' && unit.attempt === 1) throw new Error('once');
        return { some_key: 1 };
      },
      once: (unit) => note(unit.kind, unit.key, unit.payload),
      all: (unit) => note(unit.kind, unit.key, ...unit.jobs.map((each) => each.payload)),
    },
    { hold, concurrency: 3, poll: '200ms', lease: '3s' },
  );
  const errors: unknown[] = [];
  worker.events.on('error', ({ error }) => errors.push(error));
  await worker.started;
  const later = new Date(Date.now() + 700);
  const one = await jobs.enqueue('job', PAYLOAD, { key: `k'\\"ü` });
  const { id: failing } = await jobs.enqueue('job', 'fail');
  const { id: delayed } = await jobs.enqueue('job', 'later', { runAt: later });
  const ids = await jobs.enqueueMany([
    { kind: 'job', payload: 1 },
    { kind: 'job', payload: 2, key: 'NULL' },
    { kind: 'job', payload: 3, key: 'x', runAt: later, priority: -1 },
  ]);
  assert.ok(ids.every((id) => /^\d+$/.test(id)));
  const first = await jobs.enqueue('once', 'o', { key: 'u' });
  const again = await jobs.enqueue('once', 'o', { key: 'u' });
  assert.deepEqual([first.duplicate, again.duplicate, again.id], [false, true, first.id]);
  await engine.transaction(async (tx) => {
    assert.equal((await jobs.enqueue('once', 'o', { key: 'u', tx })).duplicate, true);
    await jobs.enqueueMany(
      [
        { kind: 'job', payload: 'many', key: 'y', runAt: later },
        { kind: 'job', payload: 'many too' },
      ],
      { tx },
    );
  });
  await jobs.schedule('tick', { cron: '* * * * * *', kind: 'job', payload: 'tick' });
  await until('the schedule has had a tick', () => ran.includes('["job",null,"tick"]'));
  const [plan] = await jobs.schedules();
  aboutNow(plan?.nextAt);
  aboutNow(plan?.lastAt);
  assert.equal(await jobs.unschedule('tick'), true);
  await jobs.drain({ delayed: true, timeout: '30s' });
  const seen = [...new Set(ran)].sort();
  assert.deepEqual(
    seen,
    [
      ['job', `k'\\"ü`, PAYLOAD],
      ['job', null, 'fail'],
      ['job', null, 'later'],
      ['job', null, 1],
      ['job', 'NULL', 2],
      ['job', 'x', 3],
      ['once', 'u', 'o'],
      ['job', 'y', 'many'],
      ['job', null, 'many too'],
      ['job', null, 'tick'],
    ]
      .map((what) => JSON.stringify(what))
      .sort(),
  );
  const done = await jobs.get(one.id);
  assert.deepEqual([done.payload, done.result, done.status, done.attempt], [PAYLOAD, { some_key: 1 }, 'complete', 1]);
  for (const at of [done.enqueuedAt, done.claimedAt, done.settledAt]) aboutNow(at);
  assert.equal((await jobs.get(delayed)).runAt?.getTime(), later.getTime());
  const { attempt, status } = await jobs.get(failing);
  assert.deepEqual([attempt, status], [2, 'complete']);
  const moves = await jobs.history(failing);
  assert.ok(moves.some(({ reason, attempt: nth }) => reason === 'failed' && nth === 1));
  for (const { at } of moves) aboutNow(at);
  const stats = await jobs.stats();
  assert.deepEqual([stats.ready, stats.paused, stats.pausedAt], [0, false, null]);
  assert.equal((await jobs.explain(one.id)).status, 'complete');
  const { jobs: found } = await jobs.search('some_key', { limit: 10 });
  assert.deepEqual(
    found.map(({ id, payload }) => [id, payload]),
    [[one.id, PAYLOAD]],
  );
  const { id: kept } = await jobs.enqueue('job', 'never', { runAt: new Date(Date.now() + 3_600_000), key: 'c' });
  assert.equal(await jobs.cancel(kept), 'cancelled');
  assert.equal(await jobs.retry(kept), 'new');
  assert.equal(await jobs.cancel(kept), 'cancelled');
  const admin = createQueueAdmin(engine);
  const [live] = await admin.workers(name);
  aboutNow(live?.startedAt);
  aboutNow(live?.beatAt);
  assert.deepEqual([live?.isLive, live?.concurrency, live?.hold], [true, 3, hold]);
  const record = (await admin.list()).find((each) => each.name === name);
  aboutNow(record?.createdAt);
  assert.deepEqual(record?.kinds, ['all', 'job', 'once']);
  assert.equal(record.historyMs, 90 * 24 * 3_600_000);
  await worker.stop({ timeout: '5s' });
  assert.deepEqual(errors, []);
  await overHttp(engine, [
    ['/jobs?limit=5', (body) => assert.equal(list(body).length, 5)],
    [`/jobs/${one.id}`, (body) => ['enqueuedAt', 'settledAt'].forEach((name) => isoTime(body[name]))],
    [`/queues`, (body) => assert.ok(list(body).some((each) => each['name'] === name))],
    [`/queues/${name}/series?points=5`],
    [`/history?part=job`],
    ['/workers'],
    ['/live'],
  ]);
}

async function locks(engine: PostgresEngine): Promise<void> {
  const own = createLocks(engine, { namespace: 'settings' });
  const lock = await own.acquire('a', { lease: '4s' });
  const waiting = own.request('a', { wait: '30s' }, (held) => held.token);
  await until('somebody waits', async () => (await own.query()).waiting.length === 1);
  const granted = (await own.query()).held[0]?.lastHeartbeatAt?.getTime() ?? 0;
  await until('it was renewed', async () => {
    const beat = (await own.query()).held[0]?.lastHeartbeatAt;
    return (beat?.getTime() ?? 0) > granted;
  });
  assert.equal(lock.isHeld, true);
  const { held, waiting: line } = await own.query();
  aboutNow(held[0]?.since);
  aboutNow(held[0]?.expiresAt);
  aboutNow(held[0]?.lastHeartbeatAt);
  aboutNow(line[0]?.since);
  assert.ok((line[0]?.waitedMs ?? 0) > 0 && (held[0]?.leaseLeftMs ?? 0) > 0);
  await overHttp(engine, [
    ['/locks?namespace=settings', (body) => isoTime(list(body)[0]?.['since'])],
    ['/locks/graph'],
    ['/locks/hottest'],
  ]);
  await engine.transaction((tx) => lock.guard(tx));
  await lock.release();
  assert.equal(typeof (await waiting), 'bigint');
  const [past] = await own.history({ name: 'a' });
  aboutNow(past?.grantedAt);
  aboutNow(past?.endedAt);
  assert.equal((await own.explain('a')).name, 'a');
  assert.equal((await own.oncePer('b', '1m', () => 1)).ran, true);
  assert.equal((await own.oncePer('b', '1m', () => 1)).ran, false);
  assert.equal(await own.semaphore('s', { permits: 2 }).request(() => 7), 7);
  await own.stop();
}

async function actors(engine: PostgresEngine): Promise<void> {
  const heard: unknown[] = [];
  const Thing = actor('thing', {
    semaphores: ['go'],
    initial: 'first',
    backoff: { min: 10, max: 20 },
    states: (state) => ({
      first: state({ to: ['second'], run: (a) => (a.pos('go') ? a.to('second', { part: 0.1 }) : a.hibernate()) }),
      second: state({
        deadline: '1h',
        run: async (a) => {
          if (a.attempt === 1) throw new Error(`once {x,NULL}`);
          for (const { name, payload, at } of await a.receive()) {
            heard.push([name, payload]);
            aboutNow(at);
          }
          aboutNow(a.enteredAt);
          return a.done({ some_key: a.fields['part'] });
        },
      }),
    }),
  });
  const all = createActors(engine, [Thing]);
  const dispatcher = all.run({ poll: '200ms', lease: '3s', concurrency: 4 });
  const errors: unknown[] = [];
  dispatcher.events.on('error', ({ error }) => errors.push(error));
  await dispatcher.started;
  const made = await Promise.all(Array.from({ length: 6 }, (_, n) => all.create(Thing, { n, name: 'NULL' })));
  await all.send(made[0] ?? '', 'hello', PAYLOAD);
  await engine.transaction(async (tx) => {
    assert.equal(await all.send(made[1] ?? '', 'hello', PAYLOAD, { tx }), true);
  });
  for (const each of made) assert.equal(await all.incr(each, 'go'), true);
  for (const each of made) assert.deepEqual((await all.waitFor(each)).result, { some_key: 0.1 });
  assert.deepEqual(heard, [
    ['hello', PAYLOAD],
    ['hello', PAYLOAD],
  ]);
  const moves = await all.history(made[0] ?? '');
  for (const { at } of moves) aboutNow(at);
  assert.deepEqual(moves.map(({ from, to, reason }) => [from, to, reason]).slice(-3), [
    ['first', 'second', 'to'],
    ['second', 'second', 'failed'],
    ['second', 'second', 'done'],
  ]);
  await all.page({ tag: 'disk', summary: 'full', severity: 'warning' });
  aboutNow((await all.pages())[0]?.openedAt);
  assert.equal(await all.resolvePage({ tag: 'disk' }), true);
  await overHttp(engine, [
    ['/pages?status=all', (body) => isoTime(list(body)[0]?.['openedAt'])],
    ['/actors?type=thing'],
    ['/workers'],
  ]);
  await dispatcher.stop({ timeout: '5s' });
  assert.deepEqual(errors, []);
}

async function capture(engine: PostgresEngine): Promise<void> {
  const run = async (text: string): Promise<void> =>
    void (await engine.query(statement('test', text, { prepare: false })));
  await run(
    `create table public.thing (id bigint primary key, name text, part float8, at timestamptz, took interval, bytes bytea)`,
  );
  const own = createCapture(engine, {
    entity: 'thing',
    root: 'public.thing',
    history: { 'public.thing': { rows: 'both', columns: ['name', 'part', 'at', 'took', 'bytes'] } },
  });
  const projection = own.project({
    into: 'public.thing_copy',
    columns: { name: 'text', part: 'float8' },
    build: sql`select t.id, t.name, t.part from public.thing t where t.id = any ($1::bigint[])`,
  });
  await own.apply();
  const worker = own.run({ poll: '100ms' });
  await worker.started;
  await run(
    `insert into public.thing values (1, 'NULL', 0.1234567890123, '2026-02-01 03:04:05.678+00', '1 day -2 hours', decode('00ff', 'hex'))`,
  );
  await projection.settled();
  const [copied] = await engine.query<{ same: boolean }>(
    statement(
      'test',
      `select (t.name, t.part) = (c.name, c.part) as same from public.thing t join public.thing_copy c using (id)`,
    ),
  );
  assert.equal(copied?.same, true);
  const [change] = await own.history({ key: 1 });
  aboutNow(change?.at);
  const { at, ...after } = change?.after ?? {};
  assert.equal(
    new Date(`${String(at).replace(' ', 'T')}:00`.replace(/(:\d\d):00$/, '$1')).getTime(),
    Date.UTC(2026, 1, 1, 3, 4, 5, 678),
  );
  assert.deepEqual(after, { name: 'NULL', part: '0.1234567890123', took: '1 day -02:00:00', bytes: '\\x00ff' });
  const [line] = await createCaptureAdmin(engine).status('thing');
  assert.equal(line?.oldestMs ?? null, null);
  assert.deepEqual(await createCaptureAdmin(engine).verify('thing'), []);
  await overHttp(engine, [['/captures']]);
  await worker.stop();
}

async function files(engine: PostgresEngine): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'pawl-test-settings-'));
  const own = createFiles(engine, { content: disk(dir), namespace: 'settings' });
  try {
    for (const text of ['the first', 'the second']) {
      await own.write('doc', text, { author: 'NULL', meta: META });
    }
    await engine.transaction((tx) => own.write('other', 'in a transaction', { tx }));
    const { version, stream } = await own.read('doc');
    assert.equal(Buffer.concat(await stream.toArray()).toString(), 'the second');
    assert.deepEqual([version.version, version.author, version.meta], [2, 'NULL', META]);
    aboutNow(version.writtenAt);
    const [last, before] = await own.history('doc');
    aboutNow(last?.writtenAt);
    aboutNow(before?.retiredAt);
    await own.sweep();
    const [store] = await createFileAdmin(engine).stores();
    aboutNow(store?.attachedAt);
    assert.deepEqual([store?.pass, store?.haltedAt], [1, null]);
    await own.remove('doc');
  } finally {
    await own.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

type Body = Readonly<Record<string, unknown>>;

/** Every answer is a good one, and some are looked at. */
async function overHttp(
  engine: PostgresEngine,
  asked: readonly (readonly [path: string, look?: (body: Body) => void])[],
): Promise<void> {
  const handler = createHttp(engine, { auth: OPEN_DOOR, rate: { burst: 1_000 } });
  try {
    for (const [path, look] of asked) {
      const response = await handler(new Request(`http://localhost/api/v1${path}`), { remoteAddress: '127.0.0.1' });
      const text = await response.text();
      assert.equal(response.status, 200, `${path}: ${text}`);
      look?.(JSON.parse(text) as Body);
    }
  } finally {
    await handler.stop();
  }
}

function list(body: Body): Body[] {
  return body['items'] as Body[];
}

/** Of this test, by a clock that is about ours: no other time zone, and no other order of day and month. */
function aboutNow(at: unknown): void {
  assert.ok(at instanceof Date, `not a Date: ${String(at)}`);
  assert.ok(Math.abs(Date.now() - at.getTime()) < 60_000, `not about now: ${String(at)}`);
}

function isoTime(text: unknown): void {
  assert.match(String(text), /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/);
  aboutNow(new Date(String(text)));
}
