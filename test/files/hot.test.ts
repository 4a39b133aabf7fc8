import { spawn } from 'node:child_process';
import { mkdtemp, open, readdir, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotFound, StoreUnavailable, TimedOut } from '../../src/base/errors.ts';
import { faults } from '../../src/base/fault.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import {
  createFiles,
  disk,
  type Files,
  type FileVersion,
  type HotFiles,
  type HotOptions,
} from '../../src/files/index.ts';
import type { FaultyStore } from '../../src/testing/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { spawnChild } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { bucketStore, diskStore, randomFile, readAll, type TestStore } from './world.ts';

const MIB = 1 << 20;
let database: FreshDatabase;
let engine: PostgresEngine;
let store: TestStore & { readonly server: FaultyStore };
let files: Files;
let ids = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 6 });
  store = await bucketStore();
  files = createFiles(engine, { content: store.content });
});

afterAll(async () => {
  await files.stop();
  await engine.stop();
  await store.stop();
});

async function folder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'pawl-test-hot-'));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

async function hotFiles(options: Omit<HotOptions, 'dir'> = {}): Promise<{ hot: HotFiles; dir: string }> {
  const dir = await folder();
  return { hot: files.hot({ dir, ...options }), dir };
}

const gets = (): number =>
  store.server.log.filter((each) => each.operation === 'GetObject' && each.key.includes('objects/')).length;
const fresh = (): string => `doc-${(ids += 1)}`;

test('a copy that another process removes right after it was made is fetched again', async () => {
  const { hot, dir } = await hotFiles();
  const id = fresh();
  const bytes = randomFile(77);
  await files.write(id, bytes);
  let removed = 0;
  onTestFinished(
    faults.arm('files.loaded', async () => {
      if (removed === 2) return;
      removed += 1;
      for (const name of await readdir(dir)) await rm(join(dir, name));
    }),
  );
  const { stream } = await hot.open(id);
  expect((await readAll(stream)).equals(bytes)).toBe(true);
  expect(removed).toBe(2);
});

test('a copy is fetched once, and read as long as it is the live version', async () => {
  const { hot } = await hotFiles();
  const id = fresh();
  const bytes = randomFile(2 * MIB + 77);
  await files.write(id, bytes);
  const before = gets();
  for (let time = 0; time < 3; time++) {
    const { stream, version, staleMs } = await hot.open(id);
    expect((await readAll(stream)).equals(bytes)).toBe(true);
    expect([version.version, staleMs]).toEqual([1, 0]);
  }
  const { stream } = await hot.open(id, { range: { start: MIB - 5, end: MIB + 5 } });
  expect((await readAll(stream)).equals(bytes.subarray(MIB - 5, MIB + 5))).toBe(true);
  expect(gets() - before).toBe(1);
  await files.write(id, 'two');
  expect((await readAll((await hot.open(id)).stream)).toString()).toBe('two');
  await files.remove(id);
  await expect(hot.open(id)).rejects.toThrow(NotFound);
  await expect(hot.open('')).rejects.toThrow(InvalidInput);
});

// Invariant F10.
test('a truncated or replaced copy is fetched anew; a flipped bit is never passed on', async () => {
  const { hot, dir } = await hotFiles();
  const id = fresh();
  const bytes = randomFile(2 * MIB);
  const { sha256 } = await files.write(id, bytes);
  await readAll((await hot.open(id)).stream);
  const path = join(dir, sha256);
  await truncate(path, MIB);
  expect((await readAll((await hot.open(id)).stream)).equals(bytes)).toBe(true);
  await writeFile(path, randomFile(2 * MIB));
  expect((await readAll((await hot.open(id)).stream)).equals(bytes)).toBe(true);
  await flipBit(path, MIB + 3);
  expect((await readAll((await hot.open(id)).stream)).equals(bytes)).toBe(true);
});

// Invariant F10.
test('bytes that are written into a copy while it is read are never passed on, whether its blocks are checked or not', async () => {
  const { hot, dir } = await hotFiles();
  const id = fresh();
  const bytes = randomFile(16 * MIB);
  const { sha256 } = await files.write(id, bytes);
  for (const isTrusted of [false, true]) {
    await readAll((await hot.open(id)).stream);
    if (isTrusted) {
      // After this time the file counts as settled: earlier readers have checked it, and the next one does not.
      await sleep(120);
      await readAll((await hot.open(id)).stream);
    }
    const got: Buffer[] = [];
    const reading = (async () => {
      for await (const chunk of (await hot.open(id)).stream) {
        if (got.push(chunk) === 1) await flipBit(join(dir, sha256), 16 * MIB - 5);
      }
    })();
    await expect(reading).rejects.toThrow(
      isTrusted ? /written to while it was read/ : /other bytes before|written to while it was read/,
    );
    const passed = Buffer.concat(got);
    expect(passed.equals(bytes.subarray(0, passed.length))).toBe(true);
    await until('the copy is whole again', async () => (await readAll((await hot.open(id)).stream)).equals(bytes));
  }
});

/** Flips a bit without changing the file's time of modification, as a failing disk does. */
async function flipBit(path: string, at: number): Promise<void> {
  const { mtime } = await stat(path);
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  await file.write(Buffer.of((byte[0] ?? 0) ^ 4), 0, 1, at);
  await file.close();
  await utimes(path, mtime, mtime);
}

// Invariant F11.
test('many readers of a cold copy cost the store one request', async () => {
  const { hot } = await hotFiles();
  const id = fresh();
  await files.write(id, randomFile(MIB));
  const before = gets();
  const all = await Promise.all(Array.from({ length: 50 }, async () => readAll((await hot.open(id)).stream)));
  expect(all.every((each) => each.length === MIB)).toBe(true);
  expect(gets() - before).toBe(1);
});

test("with reload 'all' only one of all hosts fetches a version at a time", async () => {
  const [here, there] = [await hotFiles({ reload: 'all' }), await hotFiles({ reload: 'all' })];
  const id = fresh();
  await files.write(id, 'wanted everywhere');
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  let begun = 0;
  onTestFinished(faults.arm('files.reloading', () => ((begun += 1), gate)));
  const reading = [here, there].map(async ({ hot }) => readAll((await hot.open(id)).stream));
  await until('one host has begun', async () => begun === 1 && (await files.explain(id)).reloads.length === 1);
  // Long enough for another attempt of the other host.
  await sleep(150);
  expect(begun).toBe(1);
  expect((await files.explain(id)).reloads).toMatchObject([{ scope: '*' }]);
  goOn();
  for (const bytes of await Promise.all(reading)) expect(bytes.toString()).toBe('wanted everywhere');
  expect(begun).toBe(2);
});

test('copies that do not fit are removed, longest unused first', async () => {
  const { hot, dir } = await hotFiles({ maxBytes: 250_000 });
  const made = [fresh(), fresh(), fresh()];
  for (const id of made) {
    await files.write(id, randomFile(100_000));
    await readAll((await hot.open(id)).stream);
  }
  expect(await readdir(dir)).toHaveLength(2);
  expect((await readAll((await hot.open(made[0] ?? '')).stream)).length).toBe(100_000);
});

test('a folder that was removed, or could not be made, is made as soon as it can be', async () => {
  const { hot, dir } = await hotFiles();
  const [id, other] = [fresh(), fresh()];
  for (const each of [id, other]) await files.write(each, each);
  expect((await readAll((await hot.open(id)).stream)).toString()).toBe(id);
  await rm(dir, { recursive: true });
  for (const each of [id, other]) expect((await readAll((await hot.open(each)).stream)).toString()).toBe(each);
  await rm(dir, { recursive: true });
  await writeFile(dir, 'a file where the folder was');
  const inside = files.hot({ dir: join(dir, 'inside', 'it') });
  for (const each of [hot, inside]) await expect(each.open(id)).rejects.toThrow(StoreUnavailable);
  await rm(dir);
  for (const each of [hot, inside]) expect((await readAll((await each.open(id)).stream)).toString()).toBe(id);
});

test('a folder that can never be made is an error, and no work continues after it', async ({ skip }) => {
  if (process.platform !== 'linux') return skip('only Linux has /proc');
  const id = fresh();
  await files.write(id, 'x');
  for (const dir of ['/proc/nope', '/proc/nope/deeper', '/dev/null/x']) {
    await expect(files.hot({ dir }).open(id)).rejects.toThrow(StoreUnavailable);
    const none = createFiles(engine, { content: disk(dir), namespace: `of ${dir}` });
    await expect(none.write(id, 'x')).rejects.toMatchObject({ code: expect.stringMatching(/^store_/) });
  }
  // A loop would use all of the processor's time, again and again. What else this process has to do ends.
  await until('it rests', async () => {
    const before = process.cpuUsage();
    await sleep(300);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000 < 200;
  });
});

test('a reloader that lost its lease reads the copy that another process has made', async () => {
  const { hot, dir } = await hotFiles();
  const id = fresh();
  const bytes = randomFile(MIB);
  const { sha256 } = await files.write(id, bytes);
  const before = gets();
  onTestFinished(store.server.fault('hang', { operation: 'GetObject', key: 'objects/', times: 1 }));
  const reading = hot.open(id);
  await until('it fetches', () => gets() > before);
  await writeFile(join(dir, sha256), bytes);
  await engine.query(LEASE_STOLEN);
  onTestFinished(async () => void (await engine.query(LEASES_GONE)));
  expect((await readAll((await reading).stream)).equals(bytes)).toBe(true);
});

test('a version that no call can use any more is forgotten', async () => {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect !== 'function') throw new Error('this Node has no gc');
  for (const maxStale of [0, 1]) {
    const { hot } = await hotFiles({ maxStale });
    const [id, other] = [fresh(), fresh()];
    for (const each of [id, other]) await files.write(each, each);
    const read = async (of: string): Promise<WeakRef<FileVersion>> => {
      const { stream, version } = await hot.open(of);
      await readAll(stream);
      return new WeakRef(version);
    };
    const known = await read(id);
    await until('it is forgotten', async () => {
      await read(other);
      collect();
      return known.deref() === undefined;
    });
  }
});

// Invariant F11.
test('after the kill of a reloader a waiter takes over, and explain shows the lease meanwhile; the swap is whole or not at all', async () => {
  const own = await diskStore();
  const dir = await folder();
  const slow = createFiles(engine, { content: own.content, namespace: 'killed' });
  onTestFinished(async () => {
    await slow.stop();
    await own.stop();
  });
  const bytes = randomFile(MIB);
  await slow.write('doc', bytes);
  const args = [database.url, own.content.where, dir, 'killed', 'doc'];
  const child = spawnChild('files/hot.child.ts', args, { PAWL_FAULT: 'files.before_swap:stop' });
  await until('the reloader hangs', async () => child.stderr().includes('before_swap'));
  expect(await engine.query(LEASE_LEFT)).toMatchObject([{ short: true }]);
  await engine.query(LEASE_LONG);
  expect((await slow.explain('doc')).reloads).toMatchObject([{ pid: child.pid }]);
  expect((await readdir(dir)).filter((name) => !name.startsWith('draft-'))).toEqual([]);
  await expect(slow.hot({ dir, wait: 100 }).open('doc')).rejects.toThrow(TimedOut);
  const hot = slow.hot({ dir });
  const waiters = Array.from({ length: 50 }, async () => readAll((await hot.open('doc')).stream));
  await child.kill();
  await engine.query(LEASE_OVER);
  for (const each of await Promise.all(waiters)) expect(each.equals(bytes)).toBe(true);
  expect((await slow.explain('doc')).reloads).toEqual([]);
});

test('with maxStale a copy that is fresh enough is read while the newest is fetched, and while the database is away', async () => {
  const proxy = await startProxy(database.url);
  const far = postgres(proxy.url, { max: 2, connectTimeoutMs: 10_000 });
  onTestFinished(async () => {
    await far.stop();
    await proxy.stop();
  });
  const own = createFiles(far, { content: store.again() });
  const id = fresh();
  await files.write(id, 'one');
  const hot = own.hot({ dir: await folder(), maxStale: '1m' });
  const strict = own.hot({ dir: await folder() });
  for (const each of [hot, strict]) await readAll((await each.open(id)).stream);
  await files.write(id, 'two');
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  onTestFinished(faults.arm('files.reloading', () => gate));
  const stale = await hot.open(id);
  expect((await readAll(stale.stream)).toString()).toBe('one');
  expect(stale.staleMs).toBeGreaterThan(0);
  goOn();
  await until('the newest copy is read', async () => (await readAll((await hot.open(id)).stream)).toString() === 'two');
  proxy.refuse();
  expect((await readAll((await hot.open(id)).stream)).toString()).toBe('two');
  await expect(strict.open(id)).rejects.toMatchObject({ code: 'connection_failed' });
});

/** A reloader that died is waited for no longer than five seconds. */
const LEASE_LEFT = statement(
  'test.lease_left',
  "select expires_at <= clock_timestamp() + interval '5 s' as short from pawl.file_reload",
);

/** A machine may stand still for longer. */
const LEASE_LONG = statement(
  'test.lease_long',
  "update pawl.file_reload set expires_at = clock_timestamp() + interval '1 h'",
);

/** Gives the lease to another process for long, as if this one had stood still. */
const LEASE_STOLEN = statement(
  'test.lease_stolen',
  "update pawl.file_reload set owner = gen_random_uuid(), expires_at = clock_timestamp() + interval '1 h'",
);

const LEASES_GONE = statement('test.leases_gone', 'delete from pawl.file_reload');

/** Ends the lease now. */
const LEASE_OVER = statement('test.lease_over', 'update pawl.file_reload set expires_at = clock_timestamp()');

test('a copy that cannot be opened now is neither missing nor removed', async ({ skip }) => {
  const { hot, dir } = await hotFiles();
  const id = fresh();
  await files.write(id, 'x');
  await readAll((await hot.open(id)).stream);
  const limit = await fileLimit();
  if (limit === undefined) return skip('prlimit is missing');
  const other = files.hot({ dir });
  const before = gets();
  await limit.lower();
  const opened: unknown[] = [];
  // One after the other: there is one connection to the database.
  for (const each of [hot, other]) opened.push(await each.open(id).catch((error: unknown) => error));
  await limit.restore();
  const expected = { code: 'store_unavailable', message: expect.stringContaining('EMFILE') };
  expect(opened).toMatchObject([expected, expected]);
  for (const each of [hot, other]) expect((await readAll((await each.open(id)).stream)).toString()).toBe('x');
  expect([gets() - before, (await readdir(dir)).length]).toEqual([0, 1]);
});

/** Lets this process open no more files, until `restore`. @returns undefined without the program that does it */
async function fileLimit(): Promise<{ lower(): Promise<unknown>; restore(): Promise<unknown> } | undefined> {
  // Started before: a process without free files starts no program.
  const script = `pid=${process.pid}; soft=$(prlimit --pid $pid --nofile --noheadings --output SOFT) || exit 1; echo ready
    read next; prlimit --pid $pid --nofile=3: ; echo lowered; read next; prlimit --pid $pid --nofile=$soft: ; echo restored`;
  const shell = spawn('sh', ['-c', script], { stdio: ['pipe', 'pipe', 'ignore'] });
  let said = '';
  let isOver = false;
  shell.stdout.on('data', (piece) => {
    said += String(piece);
  });
  shell.once('exit', () => {
    isOver = true;
  });
  const hears = (word: string): Promise<unknown> => until(word, () => said.includes(word) || isOver);
  await hears('ready');
  if (isOver) return undefined;
  const step = async (word: string): Promise<unknown> => {
    shell.stdin.write('go\n');
    return hears(word);
  };
  return { lower: () => step('lowered'), restore: () => step('restored') };
}

test('a version that is larger than all copies may be is read from the store, and removes no copy', async () => {
  const { hot, dir } = await hotFiles({ maxBytes: 250_000 });
  const [large, ...small] = [fresh(), fresh(), fresh()];
  const bytes = randomFile(300_000);
  await files.write(large, bytes);
  for (const id of small) {
    await files.write(id, randomFile(100_000));
    await readAll((await hot.open(id)).stream);
  }
  const kept = await readdir(dir);
  for (let time = 0; time < 2; time += 1) {
    const { stream, staleMs } = await hot.open(large);
    expect((await readAll(stream)).equals(bytes)).toBe(true);
    expect(staleMs).toBe(0);
  }
  const part = await hot.open(large, { range: { start: 7, end: 99 } });
  expect((await readAll(part.stream)).equals(bytes.subarray(7, 99))).toBe(true);
  expect(await readdir(dir)).toEqual(kept);
});

test('with maxStale a copy that fits is read while the store does not give a newer version that does not fit', async () => {
  const { hot } = await hotFiles({ maxBytes: 1000, maxStale: '1h' });
  const id = fresh();
  await files.write(id, 'small');
  await readAll((await hot.open(id)).stream);
  await files.write(id, randomFile(2000));
  onTestFinished(store.server.fault('unavailable', { operation: 'GetObject', key: 'objects/', times: 4 }));
  const { stream, version, staleMs } = await hot.open(id);
  expect([version.version, (await readAll(stream)).toString(), staleMs > 0]).toEqual([1, 'small', true]);
});

test('a fetch that the folder refuses holds no connection to the store', async ({ skip }) => {
  if (process.platform !== 'linux') return skip('only Linux has /dev/null');
  const own = createFiles(engine, { content: store.again(), limits: { firstByte: 1000 } });
  onTestFinished(() => own.stop());
  const id = fresh();
  await own.write(id, randomFile(3 * MIB));
  const hot = own.hot({ dir: '/dev/null/x' });
  // More than the store's client has connections.
  for (let nth = 0; nth < 40; nth += 1) await expect(hot.open(id)).rejects.toThrow('the folder of the hot copies');
  expect((await readAll((await own.read(id)).stream)).length).toBe(3 * MIB);
});

// Invariant F16.
test('a fetch from a store that begins an answer and does not go on ends within the limit of a pause', async () => {
  const own = createFiles(engine, { content: store.again(), limits: { idle: 500 } });
  onTestFinished(() => own.stop());
  const id = fresh();
  await own.write(id, randomFile(MIB));
  onTestFinished(store.server.fault('trickle', { operation: 'GetObject', key: 'objects/', ms: 60_000 }));
  await expect(own.hot({ dir: await folder() }).open(id)).rejects.toMatchObject({
    code: 'store_unavailable',
    message: expect.stringContaining('the store gave nothing for'),
  });
});
