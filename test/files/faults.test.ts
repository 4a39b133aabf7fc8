import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { CorruptObject, StoreUnavailable, UploadExpired } from '../../src/base/errors.ts';
import { faults } from '../../src/base/fault.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, type Files, type FilesOptions } from '../../src/files/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import type { FaultyStore, FaultyStoreOptions, StoreFault } from '../../src/testing/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { spawnChild } from '../support/process.ts';
import { type Proxy, startProxy } from '../support/proxy.ts';
import { awakeMs } from '../support/time/awake.ts';
import { problemsOf } from './checker.ts';
import { bucketStore, diskStore, inPieces, randomFile, readAll, type TestStore } from './world.ts';

const MIB = 1 << 20;
const run = promisify(execFile);
let database: FreshDatabase;
let engine: PostgresEngine;
let spaces = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 6 });
});

afterAll(() => engine.stop());

interface Ground<Store> {
  readonly files: Files;
  readonly store: Store;
  readonly space: string;
}

function on<Store extends TestStore>(store: Store, options: Partial<FilesOptions> = {}, of = engine): Ground<Store> {
  const space = `space-${(spaces += 1)}`;
  const files = createFiles(of, { content: store.content, namespace: space, ...options });
  onTestFinished(async () => {
    await files.stop();
    await store.stop();
  });
  return { files, store, space };
}

const onBucket = async (
  options: Partial<FilesOptions> = {},
  weakness: FaultyStoreOptions = {},
): Promise<Ground<TestStore & { readonly server: FaultyStore }>> => on(await bucketStore(weakness), options);

/** For what must succeed: the usual limits, in a client of its own. With those of a test, a busy machine would not get so far. */
function patientOn({ store, space }: Ground<TestStore>, options: Partial<FilesOptions> = {}): Files {
  const files = createFiles(engine, { content: store.again(), namespace: space, ...options });
  onTestFinished(() => files.stop());
  return files;
}

/** Sets the deadlines of pending and of condemned objects to now. */
const hasten = async (space: string): Promise<void> => void (await engine.query(HASTEN, [space]));

const HASTEN = statement(
  'test.hasten',
  `update pawl.file_object set collect_at = clock_timestamp()
   where space = $1 and state in ('pending', 'deleting') and collect_at > clock_timestamp()`,
);

/** The sessions of others that have a transaction open. */
const IN_TRANSACTION = statement(
  'test.in_transaction',
  `select pid from pg_stat_activity
   where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`,
);

/** Has the lease of each lock run out. */
const LOCKS_OVER = statement('test.locks_over', 'update pawl.lock_grant set expires_at = clock_timestamp()');

describe('a writer that is killed', () => {
  const POINTS = ['after_intent', 'mid_upload', 'after_upload', 'before_commit', 'after_commit'] as const;

  // Invariant F1.
  test.each([
    ['disk', diskStore, 3 * MIB],
    ['s3', bucketStore, 3 * MIB],
    ['s3, in parts', bucketStore, 20 * MIB],
  ])(
    'at any point leaves the version before, or the new one, and after a sweep no orphan: %s',
    async (_, open, size) => {
      const { files, store, space } = on<TestStore>(await open());
      await files.probe();
      // In a bucket, only the points during the transfer; at the others the rows are the same as with a folder.
      const points = size > 16 * MIB ? ['mid_upload'] : 'server' in store ? POINTS.slice(1, 3) : POINTS;
      await Promise.all(
        points.map(async (point) => {
          await files.write(point, `before ${point}`);
          const fault = `files.${point}:kill${size > 16 * MIB ? '#2' : ''}`;
          const where = JSON.stringify(store.place);
          const how = point === 'before_commit' ? 'tx' : 'alone';
          const args = [database.url, where, space, point, String(size), how];
          const child = spawnChild('files/writer.child.ts', args, { PAWL_FAULT: fault });
          expect((await child.exited).signal, child.stderr()).toBe('SIGKILL');
          const { version, stream } = await files.read(point);
          const text = await readAll(stream);
          if (point === 'after_commit') expect([version.version, text.length]).toEqual([2, size]);
          else expect([version.version, text.toString()]).toEqual([1, `before ${point}`]);
        }),
      );
      if ('server' in store && size > 16 * MIB) expect(Reflect.get(Object(store.server), 'unfinished')).toHaveLength(1);
      // The server may not have heard yet that a writer is gone which died in a transaction: its object would be left alone.
      await until('no transaction is open', async () => (await engine.query(IN_TRANSACTION)).length === 0);
      await hasten(space);
      await files.sweep();
      expect(await problemsOf(files, store)).toEqual([]);
      if ('server' in store) expect(Reflect.get(Object(store.server), 'unfinished')).toEqual([]);
      await files.write(points[0] ?? '', 'and on');
    },
  );

  test('the checker finds an orphan, a missing object, and a changed one', async () => {
    const { files, store } = on(await diskStore());
    const { object } = await files.write('a', 'good');
    expect(await problemsOf(files, store)).toEqual([]);
    await store.put(object, Buffer.from('bad!'));
    expect(await problemsOf(files, store)).toEqual(['a version 1 has other bytes']);
    await store.remove(object);
    const stranger = randomUUID().replace(/^../, '00');
    await store.put(stranger, Buffer.from('x'));
    expect(await problemsOf(files, store)).toEqual(['a version 1 has no object', `${stranger} belongs to no version`]);
  });
});

describe('a COMMIT whose answer is lost', () => {
  const through = async (): Promise<{ proxy: Proxy; far: PostgresEngine }> => {
    const proxy = await startProxy(database.url);
    const far = postgres(proxy.url, { max: 3 });
    onTestFinished(async () => {
      await far.stop();
      await proxy.stop();
    });
    return { proxy, far };
  };

  // Invariant F3.
  test('is resolved by reading the row: the version is published', async () => {
    const { proxy, far } = await through();
    const { files, store } = on(await diskStore(), {}, far);
    await files.write('doc', 'one');
    proxy.loseAnswerTo('files.publish');
    expect(await files.write('doc', 'two', { ifVersion: 1 })).toMatchObject({ version: 2, previous: 1 });
    proxy.loseAnswerTo('commit');
    const upload = await files.upload('doc', 'three');
    await expect(far.transaction((tx) => upload.publish({ tx }))).rejects.toMatchObject({ outcome: 'unknown' });
    await upload[Symbol.asyncDispose]();
    expect(await upload.outcome()).toMatchObject({ kind: 'published', version: { version: 3 } });
    await files.sweep();
    expect((await readAll((await files.read('doc')).stream)).toString()).toBe('three');
    expect(await problemsOf(files, store)).toEqual([]);
  });

  test('and that was never executed is followed by a second publication', async () => {
    const { proxy, far } = await through();
    const { files } = on(await diskStore(), {}, far);
    await files.write('doc', 'one');
    onTestFinished(faults.arm('files.after_upload', () => proxy.loseRequest('files.publish'), { occurrence: 1 }));
    const lookedAt = proxy.accepted;
    const writing = files.write('doc', 'two', { ifVersion: 1 });
    await until('the request was lost', () => proxy.accepted > lookedAt);
    proxy.loseRequest('nothing at all');
    expect((await writing).version).toBe(2);
  });

  test('of a publication that still waits for a lock causes no conflict with the second publication', async () => {
    const { proxy, far } = await through();
    const { files, store, space } = on(await diskStore(), {}, far);
    await files.write('doc', 'one');
    const near = createFiles(engine, { content: store.again(), namespace: space });
    const waiters = async (): Promise<number> => (await near.explain('doc')).waiters.length;
    const upload = await files.upload('doc', 'mine', { ifVersion: 1 });
    let publishing: Promise<unknown> | undefined;
    await engine.transaction(async (tx) => {
      (await near.read('doc', { lock: 'share', tx })).stream.destroy();
      publishing = upload.publish();
      await until('it waits', async () => (await waiters()) === 1);
      proxy.cut();
      await until('the second publication waits, too', async () => (await waiters()) === 2);
    });
    expect(await publishing).toMatchObject({ version: 2, previous: 1 });
    expect(await files.history('doc')).toHaveLength(2);
  });
});

describe('a store that fails', () => {
  test.each([
    ['the answer to an upload is lost', 'lose_answer', 'PutObject', 1000],
    ['a put is refused for now', 'unavailable', 'PutObject', 1000],
    ['another request is in the way', 'conflict', 'PutObject', 1000],
    ['a connection is cut', 'cut', 'PutObject', 1000],
    ['the answer to a part is lost', 'lose_answer', 'UploadPart', 17 * MIB],
    ['the answer to the end of an upload is lost', 'lose_answer', 'CompleteMultipartUpload', 17 * MIB],
    ['the end of an upload is answered by 200 and an error', 'error_in_200', 'CompleteMultipartUpload', 17 * MIB],
  ] as const)('once does not fail the write: %s', async (_, fault, operation, size) => {
    const { files, store } = await onBucket();
    await files.probe();
    store.server.fault(fault, { operation, times: 1 });
    const bytes = randomFile(size);
    await files.write('doc', bytes);
    expect((await readAll((await files.read('doc')).stream)).equals(bytes)).toBe(true);
    expect(store.server.unfinished).toEqual([]);
    expect(await problemsOf(files, store)).toEqual([]);
  });

  // Invariant F13.
  test('with a lost answer to the start of an upload: the upload is aborted', async () => {
    const { files, store } = await onBucket();
    await files.probe();
    store.server.fault('lose_answer', { operation: 'CreateMultipartUpload', times: 1 });
    await files.write('doc', randomFile(17 * MIB));
    expect(store.server.unfinished).toEqual([]);
    expect(await problemsOf(files, store)).toEqual([]);
  });

  // Invariant F13.
  test('in a probe leaves an upload, also of one that was killed: the first sweep of a process removes it', async () => {
    const { files, store } = await onBucket();
    await files.probe();
    const signal = AbortSignal.timeout(60_000);
    store.server.fault('lose_answer', { operation: 'CreateMultipartUpload', times: 1 });
    await expect(store.again().probe({ signal })).rejects.toThrow(StoreUnavailable);
    expect(store.server.unfinished).toHaveLength(1);
    await files.sweep();
    expect(store.server.unfinished).toEqual([]);
    expect(await problemsOf(files, store)).toEqual([]);
  });

  // Invariant F13.
  test('permanently leaves no parts and no version', async () => {
    const { files, store, space } = await onBucket();
    await files.write('doc', 'one');
    store.server.fault('unavailable', { operation: 'CompleteMultipartUpload' });
    await expect(files.write('doc', randomFile(17 * MIB))).rejects.toThrow(StoreUnavailable);
    store.server.mend();
    expect(store.server.unfinished).toEqual([]);
    await hasten(space);
    await files.sweep();
    expect(await problemsOf(files, store)).toEqual([]);
  });

  // Invariant F12.
  test.each(['short', 'short_body', 'flip', 'gzip'] as const)(
    'by returning damaged bytes (%s) causes an error',
    async (fault) => {
      const { files, store } = await onBucket();
      await files.write('doc', randomFile(MIB + 10));
      store.server.fault(fault, { operation: 'GetObject', key: 'objects/', times: 1 });
      const error = await files
        .read('doc')
        .then(({ stream }) => readAll(stream))
        .then(
          () => undefined,
          (reason: unknown) => reason,
        );
      expect(error instanceof CorruptObject || error instanceof StoreUnavailable).toBe(true);
      expect(error instanceof StoreUnavailable).toBe(fault === 'short');
      expect((await readAll((await files.read('doc')).stream)).length).toBe(MIB + 10);
    },
  );

  test('that begins each answer and ends none is soon not called any more, by one read after another either', async () => {
    const { files, store } = await onBucket();
    await files.write('doc', randomFile(MIB + 10));
    store.server.fault('short', { operation: 'GetObject', key: 'objects/' });
    const isRefused = async (): Promise<boolean> => {
      const error: unknown = await files
        .read('doc')
        .then(({ stream }) => readAll(stream))
        .catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(StoreUnavailable);
      return /has failed \d+ times in a row/.test(String(error));
    };
    for (let reads = 0; reads < 5; reads += 1) expect(await isRefused()).toBe(false);
    // For a second; on a machine that stands still for that long, the next read is one that tries it again.
    await until('it is not called', isRefused);
  });

  test.each([
    ['hang', 'GetObject'],
    ['trickle', 'GetObject'],
    ['hang', 'PutObject'],
  ] as const)(
    'in a %s of %s ends the call within its limits; no connection of the pool is held, and no socket stays',
    async (fault, operation) => {
      const narrow = postgres(database.url, { max: 1 });
      onTestFinished(() => narrow.stop());
      const limits = { firstByte: 1000, idle: 1000, total: 1500 };
      const ground = on(await bucketStore(), { limits, pending: '1m' }, narrow);
      const { files, store } = ground;
      await patientOn(ground).write('doc', randomFile(2000));
      store.server.fault(fault as StoreFault, { operation, key: 'objects/', ms: 100 });
      const start = performance.now();
      const calls = Array.from({ length: 20 }, async () => {
        if (operation === 'PutObject') return files.write('doc', 'x');
        return readAll((await files.read('doc')).stream);
      });
      const ended = Promise.allSettled(calls);
      await narrow.query(statement('test.free', 'select 1'), [], { deadlineMs: 20_000 });
      for (const each of await ended) {
        expect(each.status).toBe('rejected');
        expect(each.status === 'rejected' && each.reason).toBeInstanceOf(StoreUnavailable);
      }
      // Calls without a bound would wait for as long as the test may take.
      expect(performance.now() - start).toBeLessThan(30_000);
      expect(await store.server.connections()).toBeLessThanOrEqual(32);
      // By now the circuit is open: a call fails at once.
      await until('the circuit is open', async () => {
        const again = performance.now();
        const call =
          operation === 'PutObject' ? files.write('doc', 'x') : files.read('doc').then(({ stream }) => readAll(stream));
        const error: unknown = await call.then(
          () => undefined,
          (reason: unknown) => reason,
        );
        return /the next call to it is allowed in/.test(String(error)) && performance.now() - again < 500;
      });
      store.server.mend();
      await until('the store is tried again', async () =>
        readAll((await files.read('doc')).stream).then(
          () => true,
          () => false,
        ),
      );
    },
  );

  test('is tried again by a copy that it does not make itself', async () => {
    const ground = await onBucket({ limits: { firstByte: 1000, idle: 1000, total: 2000 } });
    const { files, store } = ground;
    // As for an object that is too large for the store to copy.
    store.content.copy = () => Promise.resolve(false);
    await patientOn(ground).write('doc', 'x');
    store.server.fault('unavailable', { operation: 'GetObject', key: 'objects/' });
    for (let nth = 0; nth < 5; nth += 1) await expect(files.copy('doc', 'other')).rejects.toThrow(StoreUnavailable);
    await until('it is not called', () =>
      files.copy('doc', 'other').then(
        () => false,
        (error: unknown) => /the next call to it is allowed in/.test(String(error)),
      ),
    );
    store.server.mend();
    await until('the store is tried again', () =>
      files.copy('doc', 'other').then(
        () => true,
        () => false,
      ),
    );
    expect(String(await readAll((await files.read('other')).stream))).toBe('x');
  });

  // Invariant F5.
  // Invariant F16.
  test('is not called any more after five failures, though its callers gave up calls in between', async () => {
    const { files, store } = await onBucket();
    await files.write('doc', 'x');
    const failOnce = async (): Promise<void> => {
      const lift = store.server.fault('short', { operation: 'GetObject', key: 'objects/' });
      await expect(files.read('doc').then(({ stream }) => readAll(stream))).rejects.toThrow(StoreUnavailable);
      lift();
    };
    for (let nth = 0; nth < 4; nth += 1) await failOnce();
    // Every call hangs: one that is answered in between, such as a list, would end the row of failures.
    const lift = store.server.fault('hang');
    for (const call of [
      (signal: AbortSignal) => files.read('doc', { signal }),
      (signal: AbortSignal) => files.write('other', 'x', { signal }),
      (signal: AbortSignal) => files.reconcile({ signal }),
    ]) {
      const abort = new AbortController();
      const calls = store.server.log.length;
      const calling = call(abort.signal);
      calling.catch(() => {});
      await until('the store is called', () => store.server.log.length > calls);
      // Whatever the reason is: it says nothing about the store.
      abort.abort(calls % 2 === 0 ? new StoreUnavailable('enough') : new Error('enough'));
      await expect(calling).rejects.toThrow('enough');
    }
    lift();
    await failOnce();
    await expect(files.read('doc')).rejects.toThrow(/has failed 5 times in a row/);
  });

  test('is not blamed for readers that are too slow, nor for sources that fail', async () => {
    const { files, store } = await onBucket({ limits: { total: 1000 } });
    const bytes = randomFile(3 * MIB);
    await patientOn({ files, store, space: files.namespace }).write('doc', bytes);
    const slow = Array.from({ length: 6 }, async () => {
      const { stream } = await files.read('doc');
      const failed = new Promise((resolve) => stream.once('error', resolve));
      stream.once('readable', () => {});
      return failed;
    });
    for (const failed of slow) {
      expect(await failed).toMatchObject({ code: 'timed_out', message: expect.stringContaining('its reader') });
    }
    for (const error of [new StoreUnavailable('of another store'), new CorruptObject('there', { damage: 'changed' })]) {
      for (let nth = 0; nth < 6; nth += 1) {
        const source = (async function* () {
          yield 'x';
          throw error;
        })();
        await expect(files.write('doc', source)).rejects.toBe(error);
      }
    }
    expect((await readAll((await files.read('doc')).stream)).equals(bytes)).toBe(true);
  });

  // Invariant F16.
  test.each(['CopyObject', 'GetObject'] as const)(
    'in the middle of a copy ends it within the limit of a pause: %s',
    async (operation) => {
      const ground = await onBucket({ limits: { idle: 500 } });
      const { files, store } = ground;
      const bytes = randomFile(17 * MIB);
      await patientOn(ground).write('doc', bytes);
      await files.probe();
      if (operation === 'GetObject') store.content.copy = () => Promise.resolve(false);
      store.server.fault(operation === 'GetObject' ? 'trickle' : 'hang', { operation, key: 'objects/', ms: 60_000 });
      await expect(files.copy('doc', 'other')).rejects.toMatchObject({
        code: 'store_unavailable',
        message: expect.stringContaining('the store gave nothing for'),
      });
    },
  );

  test('an object whose put arrives after its deletion is deleted once more', async () => {
    const limits = { firstByte: 1000, idle: 1000, total: 2000 };
    const ground = await onBucket({ limits, pending: 2001 });
    const { files, store, space } = ground;
    const sweeper = patientOn(ground, { tombstone: '1s' });
    await sweeper.probe();
    store.server.fault('delay', { operation: 'PutObject', key: 'objects/', ms: 5000 });
    const isNothingThere = async (): Promise<boolean> => (await store.names()).length === 0;
    const puts = (): number => store.server.log.filter(({ operation }) => operation === 'PutObject').length;
    // On a machine that stands still for seconds the put may arrive first, or may not have been sent: then the scene is set again.
    await until('an object is deleted before its put arrives', async () => {
      const before = puts();
      await expect(files.write('doc', 'late')).rejects.toThrow(StoreUnavailable);
      await hasten(space);
      const wasEmpty = await isNothingThere();
      const { deleted } = await sweeper.sweep();
      return puts() > before && wasEmpty && deleted > 0 && (await isNothingThere());
    });
    await until('the put arrives', async () => !(await isNothingThere()));
    await until('the object is gone', async () => {
      await sweeper.sweep();
      return isNothingThere();
    });
  });

  // Invariant F19.
  test('objects under a longer prefix that begins with the same letters are not listed', async () => {
    const { files, store } = await onBucket();
    const { object } = await files.write('doc', 'mine');
    for (const key of [`test2/objects/${object}`, `test/objects2/${object}`, 'test/notes.txt']) {
      store.server.put(key, Buffer.from('of somebody'));
    }
    expect(await files.reconcile({ dryRun: false })).toMatchObject({
      seen: 1,
      strangers: [],
      quarantined: [],
      damaged: [],
      failed: [],
    });
    expect(store.server.objects.has('test/notes.txt')).toBe(true);
  });

  test('a store without some guarantees is used, with a warning that names the consequences', async () => {
    const log = recordLog();
    const loud = postgres(database.url, { logger: log, max: 2 });
    onTestFinished(() => loud.stop());
    const { files } = on(await bucketStore({ ignoreConditions: true, ignoreChecksums: true }), {}, loud);
    expect(await files.probe()).toEqual({ ifNoneMatch: false, ifMatch: false, checksums: false, abort: true });
    expect(log.count('warn', /does not honour ifNoneMatch/)).toBe(1);
    expect(log.count('warn', /does not honour checksums/)).toBe(1);
    await files.write('doc', 'kept');
    expect((await readAll((await files.read('doc')).stream)).toString()).toBe('kept');
  });

  test('a full disk is an error, and the object is collected soon', async () => {
    const { files, store, space } = on(await diskStore());
    await files.write('doc', 'one');
    const full = (): never => {
      throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
    };
    const disarm = faults.arm('files.mid_upload', full);
    onTestFinished(disarm);
    await expect(files.write('doc', 'two')).rejects.toThrow(StoreUnavailable);
    disarm();
    await hasten(space);
    await files.sweep();
    expect(await problemsOf(files, store)).toEqual([]);
    expect((await files.stat('doc')).version).toBe(1);
  });

  test('a disk that is really full is an error, and the room of the failed write is free again', async ({ skip }) => {
    const small = await mkdtemp(join(tmpdir(), 'pawl-test-full-'));
    onTestFinished(() => rm(small, { recursive: true, force: true }));
    const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'pawl-test', small]).catch(() => undefined);
    if (mounted === undefined) return skip('mounting a disk of 4 MiB requires root');
    onTestFinished(async () => void (await run('umount', ['-l', small])));
    const { files, store, space } = on(await diskStore(small));
    const { object } = await files.write('doc', randomFile(2 * MIB));
    await expect(files.write('doc', inPieces(randomFile(5 * MIB), 100_000))).rejects.toThrow(/ENOSPC/);
    expect(await store.names()).toEqual([object]);
    const hot = files.hot({ dir: join(small, 'hot') });
    await files.write('small', 'small');
    expect((await readAll((await hot.open('small')).stream)).toString()).toBe('small');
    await expect(hot.open('doc')).rejects.toThrow(StoreUnavailable);
    expect(await readdir(join(small, 'hot'))).toHaveLength(1);
    await hasten(space);
    await writeFile(join(small, 'of somebody'), randomFile(4 * MIB)).catch(() => {});
    expect((await files.sweep()).failed).toBe(0);
    expect(await problemsOf(files, store)).toEqual([]);
  });
});

describe('an editor that is paused for longer than its lock lasts', () => {
  test('publishes nothing when it continues: the version of another editor stays', async () => {
    const { files, store, space } = on(await diskStore());
    await files.write('invoice', 'one');
    const child = spawnChild('files/editor.child.ts', [database.url, store.content.where, space, 'invoice'], {
      PAWL_FAULT: 'files.after_upload:stop',
    });
    await until('the editor is paused', () => child.stderr().includes('after_upload'));
    // Its lease is long, so that a slow machine does not lose it before this point.
    await engine.query(LOCKS_OVER);
    const locks = createLocks(engine, { namespace: space });
    onTestFinished(() => locks.stop());
    await locks.request('invoice', { wait: '20s', lease: '10s' }, async (lock) => {
      await files.write('invoice', 'paid', { lock });
    });
    child.resume();
    expect(await child.message()).toEqual({ code: 'lease_lost' });
    const past = await files.history('invoice');
    expect(past.map(({ version, state }) => [version, state])).toEqual([
      [2, 'live'],
      [1, 'retired'],
    ]);
    await hasten(space);
    await files.sweep();
    expect(await problemsOf(files, store)).toEqual([]);
  });
});

describe('clocks', () => {
  // Invariant F15.
  test.each([3_600_000, -3_600_000])('a clock that is wrong by %d ms changes nothing', async (skewMs) => {
    const { files, store, space } = on(await diskStore(), { pending: '30m', limits: { total: '1m' }, retain: '30m' });
    const real = Date.now.bind(Date);
    Date.now = () => real() + skewMs;
    onTestFinished(() => {
      Date.now = real;
    });
    const upload = await files.upload('doc', 'one');
    await files.write('other', 'one');
    await files.write('other', 'two');
    expect(await files.sweep()).toEqual({ condemned: 0, deleted: 0, deletedAgain: 0, failed: 0 });
    await upload.publish();
    const late = await files.upload('doc', 'two');
    await hasten(space);
    expect(await files.sweep()).toMatchObject({ deleted: 1 });
    await expect(late.publish()).rejects.toThrow(UploadExpired);
    expect(await problemsOf(files, store)).toEqual([]);
  });
});

test('files stop within 5 s though the database answers no more', async () => {
  const proxy = await startProxy(database.url);
  const far = postgres(proxy.url, { max: 3, logger: recordLog(), stopTimeoutMs: 500 });
  onTestFinished(async () => {
    await far.stop();
    await proxy.stop();
  });
  const { files } = on(await diskStore(), {}, far);
  const swept = new Promise((resolve) => files.on('swept', resolve));
  files.collect({ every: 100 });
  await swept;
  proxy.silence();
  const { sent } = proxy;
  await until('a sweep is under way', () => proxy.sent > sent);
  const since = awakeMs();
  await files.stop();
  // 3 s more for a busy machine.
  expect(awakeMs() - since).toBeLessThan(5_000 + 3_000);
});
