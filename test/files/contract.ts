import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  Conflict,
  CorruptObject,
  InvalidInput,
  NotFound,
  TimedOut,
  UploadExpired,
  VersionConflict,
} from '../../src/base/errors.ts';
import { faults } from '../../src/base/fault.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, type Files, type FilesOptions } from '../../src/files/index.ts';
import { createLocks } from '../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { inPieces, randomFile, readAll, type TestStore } from './world.ts';

let names = 0;
const fresh = (stem = 'doc'): string => `${stem}-${(names += 1)}`;
const MIB = 1 << 20;

/** The promises of files, on any content store: `openStore` makes an empty one. */
export function describeFiles(title: string, openStore: () => Promise<TestStore>): void {
  let database: FreshDatabase;
  let engine: PostgresEngine;
  let shared: TestStore;
  let files: Files;
  const engines: PostgresEngine[] = [];

  const connect = (url = database.url, max = 8): PostgresEngine => {
    const made = postgres(url, { stopTimeoutMs: 500, max });
    engines.push(made);
    return made;
  };

  beforeAll(async () => {
    database = await freshDatabase();
    engine = connect();
    shared = await openStore();
    files = createFiles(engine, { content: shared.content, namespace: `${title}-shared` });
  });

  afterAll(async () => {
    await files.stop();
    await shared.stop();
    await Promise.all(engines.map((each) => each.stop()));
  });

  /** Files of a namespace and a store of their own. */
  const alone = async (
    options: Partial<FilesOptions> = {},
  ): Promise<{ files: Files; store: TestStore; space: string }> => {
    const store = await openStore();
    const space = fresh('space');
    const own = createFiles(engine, { content: store.content, namespace: space, ...options });
    onTestFinished(async () => {
      await own.stop();
      await store.stop();
    });
    return { files: own, store, space };
  };

  const states = async (id: string): Promise<string[]> => {
    const rows = await engine.query<{ state: string }>(STATES, [id]);
    return rows.map((row) => row.state);
  };

  describe(`${title}: writing and reading`, () => {
    test.each([
      ['nothing', 0],
      ['a byte', 1],
      ['a block', MIB],
      ['a block and a byte', MIB + 1],
      ['some blocks', 5 * MIB + 12_345],
    ])('what is written is what is read: %s', async (_, size) => {
      const id = fresh();
      const bytes = randomFile(size);
      const written = await files.write(id, inPieces(bytes, 70_001), {
        contentType: 'application/x-tar',
        author: 'ada',
        meta: { branch: 'main' },
      });
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      expect(written).toMatchObject({ id, version: 1, size, sha256, previous: null, author: 'ada' });
      const { version, stream } = await files.read(id);
      expect((await readAll(stream)).equals(bytes)).toBe(true);
      expect(version).toMatchObject({ id, version: 1, size, sha256, contentType: 'application/x-tar' });
      expect(version.meta).toEqual({ branch: 'main' });
      expect(await states(id)).toEqual(['live']);
    });

    test('a range is cut to the byte, and checked', async () => {
      const id = fresh();
      const bytes = randomFile(3 * MIB + 500);
      await files.write(id, bytes);
      for (const [start, end] of [
        [0, 0],
        [0, 10],
        [MIB - 1, MIB + 1],
        [5, 2 * MIB + 5],
        [3 * MIB + 499, 3 * MIB + 500],
        [3 * MIB, 10 * MIB],
        [3 * MIB + 500, 3 * MIB + 500],
      ] as const) {
        const reading = await files.read(id, { range: { start, end } });
        expect((await readAll(reading.stream)).equals(bytes.subarray(start, end))).toBe(true);
      }
      await expect(files.read(id, { range: { start: 4 * MIB } })).rejects.toThrow(InvalidInput);
    });

    // Invariant F2.
    test('a version is published with the rest of the transaction of the caller, or not at all', async () => {
      const id = fresh();
      await files.write(id, 'one');
      const failing = engine.transaction(async (tx) => {
        await files.write(id, 'two', { tx });
        throw new Error('no');
      });
      await expect(failing).rejects.toThrow('no');
      expect((await readAll((await files.read(id)).stream)).toString()).toBe('one');
      expect(await states(id)).toEqual(['live', 'pending']);
      await engine.transaction((tx) => files.write(id, 'three', { tx }));
      const { version, stream } = await files.read(id);
      expect([version.version, (await readAll(stream)).toString()]).toEqual([2, 'three']);
    });

    test('bytes move before the transaction, and publishing is one statement in it', async () => {
      const id = fresh();
      const upload = await files.upload(id, inPieces(Buffer.from('moved')), { author: 'grace' });
      await expect(files.read(id)).rejects.toThrow(NotFound);
      const written = await engine.transaction((tx) => upload.publish({ tx }));
      expect(written).toMatchObject({ version: 1, author: 'grace' });
      expect(await upload.outcome()).toMatchObject({ kind: 'published', version: { version: 1 } });
      await expect(upload.publish()).rejects.toThrow(UploadExpired);
    });

    // Invariant F16.
    test('while bytes move, no connection and no lock is held', async () => {
      const id = fresh();
      const own = connect(database.url, 1);
      const mine = createFiles(own, { content: shared.again(), namespace: `${title}-shared` });
      let going = (): void => {};
      const gate = new Promise<void>((resolve) => {
        going = resolve;
      });
      const writing = mine.write(
        id,
        (async function* () {
          yield Buffer.alloc(10);
          await gate;
          yield Buffer.alloc(10);
        })(),
      );
      await until('the row is committed', async () => (await states(id)).length === 1);
      // The only connection of the pool is free.
      await own.query(statement('test.one', 'select 1'));
      await files.write(id, 'meanwhile');
      going();
      expect((await writing).version).toBe(2);
      await mine.stop();
    });

    test('version numbers go on rising after a removal, and a removed document is not found', async () => {
      const id = fresh();
      await files.write(id, 'a');
      await files.remove(id);
      await expect(files.read(id)).rejects.toThrow(NotFound);
      await expect(files.remove(id)).rejects.toThrow(NotFound);
      expect((await files.write(id, 'b', { ifVersion: 0 })).version).toBe(3);
      await expect(files.read(id, { version: 2 })).rejects.toThrow(NotFound);
      expect((await readAll((await files.read(id, { version: 1 })).stream)).toString()).toBe('a');
    });

    test('history, restore, copy and list', async () => {
      const [id, twin] = [fresh('list/a'), fresh('list/b')];
      await files.write(id, 'first', { author: 'ada', contentType: 'text/plain', meta: { n: '1' } });
      await files.write(id, 'second', { author: 'bob' });
      await files.restore(id, 1, { author: 'eve', ifVersion: 2 });
      const past = await files.history(id);
      expect(past.map(({ version, author, state }) => [version, author, state])).toEqual([
        [3, 'eve', 'live'],
        [2, 'bob', 'retired'],
        [1, 'ada', 'retired'],
      ]);
      expect(past[0]).toMatchObject({ contentType: 'text/plain', meta: { n: '1' }, sha256: past[2]?.sha256 });
      expect(past[1]?.keptUntil?.getTime()).toBeGreaterThan(Date.now() + 6 * 86_400_000);
      await engine.transaction((tx) => files.copy(id, twin, { version: 2, ifVersion: 0, tx }));
      expect((await readAll((await files.read(twin)).stream)).toString()).toBe('second');
      expect((await files.list({ prefix: 'list/' })).map((each) => each.id)).toEqual([id, twin].sort());
      expect((await files.list({ prefix: 'list/', after: [id, twin].sort()[0] as string })).length).toBe(1);
      await files.remove(id);
      expect((await readAll((await files.read(twin)).stream)).toString()).toBe('second');
      await files.restore(id, 3);
      expect((await readAll((await files.read(id)).stream)).toString()).toBe('first');
    });

    // Invariant F12.
    test('a copy of bytes that are gone or damaged fails as the reading of them does', async () => {
      const { files: own, store } = await alone();
      const { object } = await own.write('doc', 'first');
      await own.write('doc', 'second');
      const moves = [() => own.copy('doc', 'twin', { version: 1 }), () => own.restore('doc', 1)];
      await store.remove(object);
      const expected = {
        code: 'corrupt_object',
        damage: 'missing',
        message: expect.stringContaining(`version 1 of "doc" (object ${object} in `),
      };
      await expect(own.read('doc', { version: 1 })).rejects.toMatchObject(expected);
      for (const move of moves) await expect(move()).rejects.toMatchObject(expected);
      // As for an object that is too large for the store to copy.
      store.content.copy = () => Promise.resolve(false);
      for (const move of moves) await expect(move()).rejects.toMatchObject(expected);
      await store.put(object, Buffer.from('fisrt'));
      for (const move of moves) await expect(move()).rejects.toMatchObject({ ...expected, damage: 'changed' });
    });

    // Invariant F14.
    test('an object is never overwritten', async () => {
      const { object } = await files.write(fresh(), 'first');
      const call = {
        signal: AbortSignal.timeout(60_000),
        onUpload: () => Promise.resolve(),
        within: <T>(_: number, work: Promise<T>): Promise<T> => work,
        sha256: () => createHash('sha256').update('other').digest('hex'),
      };
      await expect(shared.content.put(object, inPieces(Buffer.from('other')), call)).rejects.toThrow(Conflict);
      expect((await shared.bytes(object)).toString()).toBe('first');
    });

    test('any text can be the id of a document', async () => {
      for (const id of ['../../etc/passwd', 'ä/ü\n "\\', `${'x'.repeat(510)}`, '..', ' ']) {
        await files.write(id, id);
        expect((await readAll((await files.read(id)).stream)).toString()).toBe(id);
      }
    });
  });

  describe(`${title}: two writers`, () => {
    // Invariant F7.
    test('with ifVersion one writer wins, and the error of the other names both versions', async () => {
      const id = fresh();
      await files.write(id, 'one');
      const both = ['a', 'b'].map((text) => files.write(id, text, { ifVersion: 1 }));
      const ended = await Promise.allSettled(both);
      const lost = ended.filter((each) => each.status === 'rejected').map((each) => each.reason);
      expect(lost).toHaveLength(1);
      expect(lost[0]).toBeInstanceOf(VersionConflict);
      expect(lost[0]).toMatchObject({ id, expected: 1, actual: 2 });
      await expect(files.write(id, 'c', { ifVersion: 0 })).rejects.toMatchObject({ expected: 0, actual: 2 });
      await expect(files.write(fresh(), 'c', { ifVersion: 7 })).rejects.toMatchObject({ actual: 0 });
    });

    // Invariant F7.
    test('without ifVersion they write one after the other, and no version is lost', async () => {
      const id = fresh();
      const texts = Array.from({ length: 12 }, (_, index) => `text ${index}`);
      await Promise.all(texts.map((text) => files.write(id, text)));
      const past = await files.history(id);
      expect(past.map((each) => each.version)).toEqual([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
      const read = await Promise.all(
        past.map(async ({ version }) => (await readAll((await files.read(id, { version })).stream)).toString()),
      );
      expect(read.sort()).toEqual(texts.sort());
    });

    test('after a refusal the transaction of the caller can continue', async () => {
      const [id, other] = [fresh(), fresh()];
      await files.write(id, 'one');
      await engine.transaction(async (tx) => {
        await expect(files.write(id, 'two', { ifVersion: 5, tx })).rejects.toThrow(VersionConflict);
        await files.write(other, 'fine', { tx });
      });
      expect((await files.stat(other)).version).toBe(1);
      expect((await files.stat(id)).version).toBe(1);
    });

    test('under a lock that was lost nothing is published, and a long upload ends', async () => {
      const id = fresh();
      const locks = createLocks(engine, { namespace: title });
      onTestFinished(() => locks.stop());
      // The lease is long, since the machine may stand still; who listens learns at once that the lock was broken.
      locks.startListening();
      const lock = await locks.acquire(id, { lease: '20s' });
      await files.write(id, 'held', { lock });
      const endless = files.write(
        id,
        (async function* () {
          for (;;) {
            yield Buffer.alloc(1000);
            await sleep(10);
          }
        })(),
        { lock },
      );
      await until('the upload has begun', async () => (await states(id)).includes('pending'));
      await locks.break(id, { reason: 'test' });
      await expect(endless).rejects.toMatchObject({ code: 'lease_lost' });
      await expect(files.write(id, 'late', { lock })).rejects.toMatchObject({ code: 'lease_lost' });
      expect((await readAll((await files.read(id)).stream)).toString()).toBe('held');
    });
  });

  describe(`${title}: readers`, () => {
    // Invariant F8.
    test('a reader sees one whole version, even if another one is written meanwhile', async () => {
      const id = fresh();
      const bytes = randomFile(4 * MIB);
      await files.write(id, bytes);
      const { stream } = await files.read(id);
      const chunks: Buffer[] = [];
      for await (const chunk of stream) {
        if (chunks.length === 0) await files.write(id, 'other');
        chunks.push(chunk);
      }
      expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    });

    // Invariant F9.
    test('with a share lock the version does not change until the transaction ends, and readers do not starve a writer', async () => {
      const id = fresh();
      await files.write(id, 'one');
      let isDone = false;
      let reads = 0;
      const reader = async (): Promise<void> => {
        while (!isDone) {
          await engine.transaction(async (tx) => {
            const { version, stream } = await files.read(id, { lock: 'share', tx });
            await readAll(stream);
            await sleep(15);
            expect((await files.stat(id)).version).toBe(version.version);
            reads += 1;
          });
        }
      };
      // One of these readers always holds the lock.
      const readers = [reader(), sleep(5).then(reader), sleep(10).then(reader)];
      await until('they overlap', () => reads > 3);
      await files.write(id, 'two');
      isDone = true;
      await Promise.all(readers);
      expect((await files.stat(id)).version).toBe(2);
    });

    test('explain lists the transactions that hold a document, and those that wait for it', async () => {
      const id = fresh();
      await files.write(id, 'one');
      const upload = await files.upload(id, 'two');
      let publishing: Promise<unknown> | undefined;
      await engine.transaction(async (tx) => {
        (await files.read(id, { lock: 'share', tx })).stream.destroy();
        publishing = upload.publish();
        const { holders, waiters, version } = await until('it waits', async () => {
          const said = await files.explain(id);
          return said.waiters.length > 0 ? said : undefined;
        });
        expect(version?.version).toBe(1);
        expect(holders).toMatchObject([{ mode: 'share', holds: true }]);
        expect(waiters).toMatchObject([{ mode: 'exclusive', holds: false, blockedBy: [holders[0]?.pid] }]);
      });
      await publishing;
      expect(await files.explain(id)).toMatchObject({ holders: [], waiters: [], version: { version: 2 } });
    });

    test.each([
      ['missing', (store: TestStore, name: string) => store.remove(name)],
      ['short', async (store: TestStore, name: string) => store.put(name, (await store.bytes(name)).subarray(0, -1))],
      [
        'long',
        async (store: TestStore, name: string) =>
          store.put(name, Buffer.concat([await store.bytes(name), Buffer.from('x')])),
      ],
      [
        'changed',
        async (store: TestStore, name: string) => {
          const bytes = await store.bytes(name);
          bytes[2 * MIB + 7] = (bytes[2 * MIB + 7] ?? 0) ^ 1;
          await store.put(name, bytes);
        },
      ],
    ])('bytes that differ from those that were written are an error, and never passed on: %s', async (damage, harm) => {
      const id = fresh();
      const bytes = randomFile(2 * MIB + 100);
      const { object } = await files.write(id, bytes);
      await harm(shared, object);
      const got: Buffer[] = [];
      const reading = async (): Promise<void> => {
        const { stream } = await files.read(id);
        for await (const chunk of stream) got.push(chunk);
      };
      const error = await reading().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(CorruptObject);
      expect(error).toMatchObject({ damage });
      const passed = Buffer.concat(got);
      expect(passed.equals(bytes.subarray(0, passed.length))).toBe(true);
      expect(passed.length).toBeLessThan(bytes.length);
      if (damage !== 'changed') return;
      // A range without damage can be read; a range with damage is refused.
      const { stream } = await files.read(id, { range: { start: 10, end: MIB } });
      expect((await readAll(stream)).equals(bytes.subarray(10, MIB))).toBe(true);
      const bad = await files.read(id, { range: { start: 2 * MIB } });
      await expect(readAll(bad.stream)).rejects.toThrow(CorruptObject);
    });

    // Invariant F8.
    test('if a version is collected between the read of its row and of its bytes, the row is read again, once', async () => {
      const id = fresh();
      const { object } = await files.write(id, 'one');
      const disarm = faults.arm(
        'files.after_row',
        async () => {
          await files.write(id, 'two');
          await shared.remove(object);
        },
        { occurrence: 1 },
      );
      onTestFinished(disarm);
      const { version, stream } = await files.read(id);
      expect([version.version, (await readAll(stream)).toString()]).toEqual([2, 'two']);
    });

    test('a reader that closes its stream leaves nothing open, and an aborted one ends at once', async () => {
      const id = fresh();
      await files.write(id, randomFile(3 * MIB));
      const { stream } = await files.read(id);
      for await (const _ of stream) break;
      expect(stream.destroyed).toBe(true);
      const abort = new AbortController();
      const second = await files.read(id, { signal: abort.signal });
      abort.abort(new Error('enough'));
      await expect(readAll(second.stream)).rejects.toThrow('enough');
    });
  });

  describe(`${title}: the collector`, () => {
    const quick = { retain: 0, tombstone: 0, history: 0 } as const;
    /** Sets every deadline to now. */
    const hasten = async (space: string): Promise<void> => void (await engine.query(HASTEN, [space]));

    // Invariant F6.
    test('a replaced version is deleted when its time and that of its readers are over; its history stays', async () => {
      const { files: own, store, space } = await alone({ ...quick, history: '1d', tombstone: '1d' });
      const id = fresh();
      const { object } = await own.write(id, 'one');
      const { object: second } = await own.write(id, 'two');
      expect(await own.sweep()).toEqual({ condemned: 1, deleted: 0, deletedAgain: 0, failed: 0 });
      expect(await store.names()).toEqual([object, second].sort());
      await expect(own.read(id, { version: 1 })).rejects.toThrow(NotFound);
      expect(await own.sweep()).toMatchObject({ deleted: 0 });
      await hasten(space);
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      expect(await store.names()).toEqual([second]);
      expect((await own.history(id)).map((each) => each.state)).toEqual(['live', 'deleted']);
      expect((await readAll((await own.read(id)).stream)).toString()).toBe('two');
    });

    test('kept versions are not deleted', async () => {
      const { files: own, store } = await alone();
      const id = fresh();
      await own.write(id, 'one');
      await own.write(id, 'two');
      await own.remove(id);
      const upload = await own.upload(id, 'three');
      expect(await own.sweep()).toEqual({ condemned: 0, deleted: 0, deletedAgain: 0, failed: 0 });
      expect(await store.names()).toHaveLength(3);
      await upload.publish();
      expect(await own.collector()).toMatchObject({ pending: 0, retired: 2, due: 0, haltedBecause: null });
    });

    // Invariant F2.
    test('an upload that is not published is collected, and publishing it after that fails loudly', async () => {
      const { files: own, store, space } = await alone(quick);
      const id = fresh();
      const upload = await own.upload(id, 'slow');
      await hasten(space);
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      await expect(upload.publish()).rejects.toThrow(UploadExpired);
      expect(await upload.outcome()).toEqual({ kind: 'collected' });
      expect(await store.names()).toEqual([]);
      await until('its row is gone', async () => {
        await own.sweep();
        return (await engine.query(ROWS, [space])).length === 0;
      });
    });

    // Invariant F4.
    test('publishing and collecting compete for a row: exactly one of them gets it', async () => {
      const { files: own } = await alone();
      const lives = await Promise.all(
        Array.from({ length: LONG ? 20 : 6 }, async () => {
          const id = fresh();
          const upload = await own.upload(id, 'raced');
          await upload.abandon();
          const [published] = await Promise.allSettled([upload.publish(), own.sweep()]);
          const isLive = (await states(id))[0] === 'live';
          expect(published?.status).toBe(isLive ? 'fulfilled' : 'rejected');
          if (isLive) expect((await readAll((await own.read(id)).stream)).toString()).toBe('raced');
          return isLive;
        }),
      );
      expect(lives.length).toBeGreaterThan(0);
    });

    test('a transaction that is given in place of { tx } publishes nothing', async () => {
      const id = fresh();
      const upload = await files.upload(id, 'x');
      await engine.transaction((tx) => expect(upload.publish(tx as never)).rejects.toThrow(InvalidInput));
      await expect(files.stat(id)).rejects.toThrow(NotFound);
    });

    test('an upload that is being published by an open transaction is left alone', async () => {
      const { files: own, store, space } = await alone(quick);
      const id = fresh();
      const upload = await own.upload(id, 'open');
      await hasten(space);
      await engine.transaction(async (tx) => {
        await upload.publish({ tx });
        await upload.abandon();
        expect(await own.sweep()).toMatchObject({ condemned: 0, deleted: 0 });
      });
      await own.sweep();
      expect(await store.names()).toEqual([upload.object]);
      expect((await readAll((await own.read(id)).stream)).toString()).toBe('open');
    });

    // Invariant F5.
    test('an object that arrives after its deletion is deleted once more', async () => {
      const { files: own, store, space } = await alone({ ...quick, tombstone: '1d' });
      const upload = await own.upload(fresh(), 'late');
      const bytes = await store.bytes(upload.object);
      await upload.abandon();
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      await store.put(upload.object, bytes);
      await hasten(space);
      expect(await own.sweep()).toMatchObject({ deletedAgain: 1 });
      expect(await store.names()).toEqual([]);
    });

    // Invariant F17.
    test('after the death of a sweeper another one takes over its claims', async () => {
      const { files: own, store } = await alone({ ...quick, limits: { total: 20_000 } });
      const upload = await own.upload(fresh(), 'left');
      await upload.abandon();
      const disarm = faults.arm('files.after_claim', 'throw');
      onTestFinished(disarm);
      await expect(own.sweep()).rejects.toThrow('files.after_claim');
      disarm();
      expect(await store.names()).toEqual([upload.object]);
      // No sweeper takes them over within twice the limit of a deletion.
      const [lease] = await engine.query(LEASE, [upload.object]);
      expect(Number(lease?.['ms'])).toBeLessThanOrEqual(40_000);
      expect(await own.sweep()).toMatchObject({ deleted: 0 });
      await engine.query(LEASE_OVER, [upload.object]);
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      expect(await store.names()).toEqual([]);
    });

    // Invariant F17.
    test('a paused sweeper whose claims another one has taken counts no deletion', async () => {
      const { files: own, store } = await alone({ ...quick, tombstone: '1d' });
      const upload = await own.upload(fresh(), 'left');
      await upload.abandon();
      let deleted = (): void => {};
      const reached = new Promise<void>((resolve) => {
        deleted = resolve;
      });
      let goOn = (): void => {};
      const standing = new Promise<void>((resolve) => {
        goOn = resolve;
      });
      const stand = (): Promise<void> => {
        deleted();
        return standing;
      };
      onTestFinished(faults.arm('files.after_delete', stand, { occurrence: 1 }));
      const late = own.sweep({ limit: 1 });
      await reached;
      await engine.query(LEASE_OVER, [upload.object]);
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      goOn();
      await late;
      expect(await engine.query(DELETIONS, [upload.object])).toEqual([{ deletions: 1 }]);
      expect(await store.names()).toEqual([]);
    });

    test('a pass in which there is nothing to do writes nothing', async () => {
      const { files: own, store, space } = await alone(quick);
      await own.upload(fresh(), 'pending');
      await own.sweep();
      const look = async (): Promise<unknown> => [
        await engine.query(STORE_ROW, [space]),
        await store.content.readMarker('marker', { signal: AbortSignal.timeout(60_000) }),
      ];
      const before = await look();
      await own.sweep();
      expect(await look()).toEqual(before);
    });

    test('collect sweeps again and again, and stops', async () => {
      const { files: own, store } = await alone(quick);
      const upload = await own.upload(fresh(), 'left');
      await upload.abandon();
      const loop = own.collect({ every: 100 });
      await until('it was collected', async () => (await store.names()).length === 0);
      await loop.stop();
    });

    // Invariant F18.
    test('after the database went back in time, the collector stops itself, and deletes nothing until rearm()', async () => {
      const { files: own, store, space } = await alone(quick);
      const upload = await own.upload(fresh(), 'then');
      await own.sweep();
      const before = await engine.query<{ pass: string }>(PASS, [space]);
      await (await own.upload(fresh(), 'written after the backup')).abandon();
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
      // The state after a restore to the moment of `before`: the database is behind the store's marker.
      await engine.query(SET_PASS, [space, before[0]?.pass]);
      await upload.abandon();
      await expect(own.sweep()).rejects.toMatchObject({ code: 'collector_halted' });
      await expect(own.sweep()).rejects.toMatchObject({ code: 'collector_halted' });
      expect((await own.collector()).haltedBecause).toContain('earlier point');
      expect(await store.names()).toEqual([upload.object]);
      await own.rearm();
      expect(await own.sweep()).toMatchObject({ deleted: 1 });
    });

    // Invariant F18.
    test('another database that finds this store does not collect in it', async () => {
      const { files: own, store, space } = await alone(quick);
      await own.sweep();
      const elsewhere = connect((await freshDatabase()).url);
      const copy = createFiles(elsewhere, { content: store.again(), namespace: space });
      await expect(copy.sweep()).rejects.toMatchObject({ code: 'collector_halted' });
      await elsewhere.query(SET_PASS, [space, '1000']);
      await elsewhere.query(FORGET_HALT, [space]);
      await expect(copy.sweep()).rejects.toThrow(/collected by the database/);
      await own.sweep();
    });
  });

  describe(`${title}: reconciling`, () => {
    // Invariant F19.
    test('finds strangers and missing bytes; without a dry run moves strangers to quarantine, and no other name', async () => {
      const { files: own, store } = await alone();
      const kept = await own.write('kept', 'kept');
      await own.write('kept', 'two');
      const lost = await own.write('lost', 'lost');
      const short = await own.write('short', 'short');
      const upload = await own.upload('pending', 'pending');
      const stranger = kept.object.replace(/^..../, (start) => (start === '0000' ? '1111' : '0000'));
      await store.put(stranger, Buffer.from('?'));
      const foreign = `${kept.object.slice(0, 2)}-notes.txt`;
      await store.put(foreign, Buffer.from('of somebody'));
      await store.remove(lost.object);
      await store.put(short.object, Buffer.from('x'));
      const before = await store.names();
      const found = await own.reconcile();
      expect([...found.strangers].sort()).toEqual([stranger, foreign].sort());
      expect(found.quarantined).toEqual([]);
      expect(found.damaged.map(({ id, damage }) => `${id} ${damage}`).sort()).toEqual(['lost missing', 'short size']);
      expect(await store.names()).toEqual(before);
      const done = await own.reconcile({ dryRun: false });
      expect([...done.quarantined].sort()).toEqual([stranger, foreign].sort());
      expect(await store.names()).toEqual(before.filter((name) => name !== stranger && name !== foreign));
      await upload.publish();
      expect(await own.reconcile()).toMatchObject({ strangers: [], seen: 4 });
    });

    test('a database that went back in time moves no object that it does not know', async () => {
      const { files: own, store, space } = await alone();
      await own.sweep();
      const { object } = await own.write('doc', 'then');
      await engine.query(SET_PASS, [space, '0']);
      await engine.query(FORGET, [space]);
      expect(await own.reconcile()).toMatchObject({ strangers: [object], quarantined: [] });
      await expect(own.reconcile({ dryRun: false })).rejects.toMatchObject({ code: 'collector_halted' });
      expect(await store.names()).toEqual([object]);
    });
  });

  describe(`${title}: bad input`, () => {
    test('is refused with an error that names it, and leaves no row and no object', async () => {
      const { files: own, store, space } = await alone();
      const bad: [() => Promise<unknown>, RegExp][] = [
        [() => own.write('', 'x'), /id.*1 to 512 bytes/],
        [() => own.write('ü'.repeat(257), 'x'), /512 bytes/],
        [() => own.write('a\0', 'x'), /U\+0000/],
        [() => own.write('a', 5 as never), /source.*stream/],
        [() => own.write('a', ['x'] as never), /source/],
        [() => own.write('a', 'x', { ifVersions: 1 } as never), /did you mean "ifVersion"/],
        [() => own.write('a', 'x', { ifVersion: -1 }), /ifVersion/],
        [() => own.write('a', 'x', { sha256: 'abc' }), /64 lower-case hex/],
        [() => own.write('a', 'x', { size: 1.5 }), /size/],
        [() => own.write('a', 'x', { meta: { a: 1 } as never }), /meta.a/],
        [
          () => own.write('a', 'x', { meta: { a: 'x'.repeat(4000), b: 'x'.repeat(4096), c: 'x'.repeat(1000) } }),
          /8 KiB/,
        ],
        [() => own.read('a', { lock: 'share' }), /takes tx/],
        [() => own.read('a', { tx: engine }), /only with lock/],
        [() => own.write('a', 'x', { tx: null as never }), /tx is null/],
        [() => own.write('a', 'x', { tx: 42 as never }), /tx is a number/],
        [() => own.upload('a', 'x', { tx: engine } as never), /unknown option "tx"/],
        [() => own.read('a', { version: 0 }), /version/],
        [() => own.history('a', { limit: 0 }), /limit/],
      ];
      for (const [call, message] of bad) {
        const error = await call().then(
          () => undefined,
          (reason: unknown) => reason,
        );
        expect(error, String(call)).toBeInstanceOf(InvalidInput);
        expect(String(error)).toMatch(message);
      }
      expect(await engine.query(ROWS, [space])).toEqual([]);
      expect(await store.names()).toEqual([]);
    });

    test('a limit that is longer than a timer of Node lasts is refused', async () => {
      const { store, space } = await alone();
      for (const name of ['connect', 'firstByte', 'idle']) {
        const limits = { [name]: '30d' };
        expect(() => createFiles(engine, { content: store.again(), namespace: space, limits })).toThrow(
          new RegExp(`limits.${name}.*30d`),
        );
      }
    });

    test('a source that fails, lies or hangs leaves a pending row that the next sweep collects', async () => {
      const { files: own, store, space } = await alone();
      const id = fresh();
      // Its own short limit is for the source that hangs alone: the others are to fail in their own way on a busy machine.
      const impatient = createFiles(engine, { content: store.again(), namespace: space, limits: { idle: 1000 } });
      onTestFinished(() => impatient.stop());
      async function* failing(): AsyncGenerator<Buffer, void> {
        yield randomFile(MIB + 5);
        throw new RangeError('the source broke');
      }
      async function* hanging(): AsyncGenerator<Buffer, void> {
        yield randomFile(10);
        await new Promise(() => {});
      }
      await expect(own.write(id, failing())).rejects.toThrow(RangeError);
      await expect(own.write(id, 'four', { size: 5 })).rejects.toThrow(/says 5 bytes, but the source gave 4/);
      await expect(own.write(id, 'four', { size: 3 })).rejects.toThrow(/says 3 bytes/);
      await expect(own.write(id, 'four', { sha256: '0'.repeat(64) })).rejects.toThrow(/sha256/);
      await expect(impatient.write(id, hanging())).rejects.toThrow(TimedOut);
      await expect(
        own.write(
          id,
          (async function* () {
            yield 5 as never;
          })(),
        ),
      ).rejects.toThrow(InvalidInput);
      await expect(own.read(id)).rejects.toThrow(NotFound);
      expect(await states(id)).toEqual(Array.from({ length: 6 }, () => 'pending'));
      expect(await own.sweep()).toMatchObject({ deleted: 6 });
      expect(await store.names()).toEqual([]);
    });

    test('too many bytes are refused at the first byte beyond the limit', async () => {
      const { files: own } = await alone({ maxBytes: 1000 });
      await expect(own.write('a', inPieces(randomFile(5000), 300))).rejects.toThrow(/more than the 1000 bytes/);
    });

    test('a store of another namespace, and another store than before, are refused', async () => {
      const { files: own, store, space } = await alone();
      await own.write('a', 'x');
      const other = createFiles(engine, { content: store.again(), namespace: fresh('other') });
      await expect(other.write('a', 'x')).rejects.toThrow(Conflict);
      const elsewhere = createFiles(engine, { content: shared.again(), namespace: space });
      await expect(elsewhere.write('a', 'x')).rejects.toThrow(Conflict);
      const empty = await openStore();
      onTestFinished(() => empty.stop());
      const lost = createFiles(engine, { content: empty.content, namespace: space });
      await expect(lost.sweep()).rejects.toThrow(/another .* store/);
    });
  });
}

const STATES = statement('test.states', 'select state from pawl.file_object where id = $1 order by created_at');
const ROWS = statement('test.rows', 'select object from pawl.file_object where space = $1');
const HASTEN = statement(
  'test.hasten',
  'update pawl.file_object set collect_at = clock_timestamp() where space = $1 and collect_at > clock_timestamp()',
);
const LEASE = statement(
  'test.lease',
  'select extract(epoch from collect_at - clock_timestamp()) * 1000 as ms from pawl.file_object where object = $1::uuid',
);
const LEASE_OVER = statement(
  'test.lease_over',
  'update pawl.file_object set collect_at = clock_timestamp() where object = $1::uuid',
);
const DELETIONS = statement('test.deletions', 'select deletions from pawl.file_object where object = $1::uuid');
const PASS = statement('test.pass', 'select pass from pawl.file_store where space = $1');
const STORE_ROW = statement('test.store_row', 'select xmin::text, s.* from pawl.file_store s where space = $1');
const FORGET = statement('test.forget_rows', 'delete from pawl.file_object where space = $1');
const FORGET_HALT = statement('test.forget', 'update pawl.file_store set halted_because = null where space = $1');
const SET_PASS = statement('test.set_pass', 'update pawl.file_store set pass = $2::bigint where space = $1');
