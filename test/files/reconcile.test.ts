import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, StoreUnavailable } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, type Files, type FilesOptions } from '../../src/files/index.ts';
import type { StoreFault } from '../../src/testing/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { bucketStore, diskStore, type TestStore } from './world.ts';

let database: FreshDatabase;
let engine: PostgresEngine;
let spaces = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 4 });
});

afterAll(() => engine.stop());

/** Limits for tests in which a call hangs: long enough for the other calls on a busy machine. */
const HANGING = { firstByte: 5000, idle: 5000, total: '40s' } as const;

async function on<Store extends TestStore>(
  opening: Promise<Store>,
  limits: FilesOptions['limits'] = {},
): Promise<{ files: Files; store: Store }> {
  const store = await opening;
  const namespace = `reconciled-${(spaces += 1)}`;
  const files = createFiles(engine, { content: store.content, namespace, limits });
  onTestFinished(async () => {
    await files.stop();
    await store.stop();
  });
  return { files, store };
}

async function putStrangers(store: TestStore, n: number): Promise<string[]> {
  const names = Array.from({ length: n }, () => randomUUID());
  await Promise.all(names.map((name) => store.put(name, Buffer.from('?'))));
  return names.sort();
}

// Invariant F16.
test.each(['hang', 'trickle'] as const)(
  'a list that the store starts and does not finish (%s) is an error within its limits',
  async (fault) => {
    const { files, store } = await on(bucketStore(), HANGING);
    await files.write('doc', 'x');
    store.server.fault(fault, { operation: 'ListObjectsV2', ms: 200 });
    const { failed, next, seen } = await files.reconcile();
    expect(failed).toMatchObject([{ name: '', error: expect.stringContaining('listing the store') }]);
    expect([seen, typeof next]).toEqual([0, 'string']);
    store.server.mend();
    expect(await files.reconcile({ from: next ?? '' })).toMatchObject({ seen: 1, failed: [], next: null });
  },
);

test.each(['hang', 'cut', 'unavailable'] as const satisfies readonly StoreFault[])(
  'names that the store fails to move (%s) are counted, the rest is moved, and the report lists only the moved ones',
  async (fault) => {
    const { files, store } = await on(bucketStore(), fault === 'hang' ? HANGING : {});
    await files.write('doc', 'x');
    const strangers = await putStrangers(store, 20);
    const stubborn = strangers.slice(10, 12);
    for (const name of stubborn) store.server.fault(fault, { operation: 'CopyObject', key: name });
    const report = await files.reconcile({ dryRun: false });
    expect(report.strangers).toEqual(strangers);
    expect(report.failed.map(({ name }) => name).sort()).toEqual(stubborn);
    expect(report.quarantined).toEqual(strangers.filter((name) => !stubborn.includes(name)));
    expect((await store.names()).filter((name) => strangers.includes(name))).toEqual(stubborn);
    store.server.mend();
    expect(await files.reconcile({ dryRun: false })).toMatchObject({ quarantined: stubborn, failed: [] });
    expect((await files.reconcile()).strangers).toEqual([]);
  },
);

test('many strangers are moved in parallel', async () => {
  const { files, store } = await on(bucketStore());
  await files.write('doc', 'x');
  await putStrangers(store, 48);
  let most = 0;
  const underWay = new Set<string>();
  const quarantine = store.content.quarantine.bind(store.content);
  store.content.quarantine = async (name, call) => {
    most = Math.max(most, underWay.add(name).size);
    try {
      return await quarantine(name, call);
    } finally {
      underWay.delete(name);
    }
  };
  expect((await files.reconcile({ dryRun: false })).quarantined).toHaveLength(48);
  expect(most).toBe(16);
});

test('a stranger that another process removes meanwhile is reported neither as stranger nor as quarantined', async () => {
  const { files, store } = await on(diskStore());
  await files.write('doc', 'x');
  const [gone = '', there = ''] = await putStrangers(store, 2);
  const quarantine = store.content.quarantine.bind(store.content);
  store.content.quarantine = async (name, call) => {
    if (name === gone) await store.remove(gone);
    return quarantine(name, call);
  };
  expect(await files.reconcile({ dryRun: false })).toMatchObject({ strangers: [there], quarantined: [there] });
});

test('every name in a folder of objects is found, and moved away from its own path', async () => {
  const { files, store } = await on(diskStore());
  const { object } = await files.write('doc', 'x');
  const objects = join(store.content.where, 'objects');
  const misplaced = 'aa000000-0000-4000-8000-000000000000';
  await mkdir(join(objects, 'zz'));
  await mkdir(join(objects, 'ab', 'folder'));
  await symlink('/etc/hostname', join(objects, 'ab', 'link'));
  for (const path of ['aa/..hidden', 'aa/evil\nname', `zz/${misplaced}`, 'stray', `aa/${misplaced}`]) {
    await writeFile(join(objects, path), path);
  }
  const wanted = [
    './stray',
    'aa/..hidden',
    'aa/evil\nname',
    'ab/folder',
    'ab/link',
    misplaced,
    `zz/${misplaced}`,
  ].sort();
  expect(await files.reconcile()).toMatchObject({ strangers: wanted, seen: wanted.length + 1 });
  const { quarantined, failed } = await files.reconcile({ dryRun: false });
  expect({ quarantined, failed }).toEqual({ quarantined: wanted, failed: [] });
  expect(await files.reconcile()).toMatchObject({ strangers: [], seen: 1 });
  expect(await store.names()).toEqual([object]);
  // Two strangers of one name are both kept.
  const kept = await readdir(join(store.content.where, 'quarantine'));
  const texts = await Promise.all(
    kept
      .filter((name) => name.endsWith(misplaced))
      .map((name) => readFile(join(store.content.where, 'quarantine', name), 'utf8')),
  );
  expect(texts.sort()).toEqual([`aa/${misplaced}`, `zz/${misplaced}`]);
  expect(existsSync('/etc/hostname')).toBe(true);
});

test('no name leads out of the folder', async () => {
  const { store } = await on(diskStore());
  for (const name of ['../x', './../x', 'aa/../../x', '/etc/passwd', 'aa/', '..', 'a\0/b', 'aa/bb/cc']) {
    await expect(store.content.quarantine(name, { signal: AbortSignal.timeout(60_000) })).rejects.toThrow(InvalidInput);
  }
});

test('a page that fails ends the call, and `next` says where to continue; together the calls see everything once', async () => {
  const { files, store } = await on(bucketStore());
  await files.write('doc', 'x');
  const lost = await files.write('lost', 'lost');
  const strangers = await putStrangers(store, 2500);
  await store.remove(lost.object);
  let pages = 0;
  const list = store.content.list.bind(store.content);
  store.content.list = async (from, call) => {
    if ((pages += 1) % 2 === 0) throw new StoreUnavailable('not now');
    return list(from, call);
  };
  const reports = [await files.reconcile()];
  for (let next = reports[0]?.next; typeof next === 'string'; next = reports.at(-1)?.next) {
    reports.push(await files.reconcile({ from: next }));
  }
  expect(reports).toHaveLength(3);
  expect(reports.flatMap((report) => report.strangers)).toEqual(strangers);
  expect(reports.flatMap((report) => report.damaged.map(({ id }) => id))).toEqual(['lost']);
  expect(reports.reduce((sum, { seen }) => sum + seen, 0)).toBe(2501);
  await expect(files.reconcile({ from: 'elsewhere' })).rejects.toThrow(InvalidInput);
});

test('a full report says that there is more', async () => {
  // Ten thousand files are made and removed in 0.2 s of the processor in memory, and in 1 to 2 s on a disk.
  const { files, store } = await on(diskStore());
  await files.write('doc', 'x');
  const folder = join(store.content.where, 'objects', '00');
  const names = Array.from({ length: 10_050 }, (_, n) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`);
  for (const name of names) writeFileSync(join(folder, name), '');
  const first = await files.reconcile();
  expect(first.strangers).toHaveLength(10_050);
  expect(first.next).toBeDefined();
  const second = await files.reconcile({ from: first.next ?? '' });
  expect(second).toMatchObject({ strangers: [], next: null });
  // The name of the document's object is drawn: one in 256 stands in the folder of the strangers.
  expect(first.seen + second.seen).toBe(10_051);
});

test('a store that lost all bytes fills one report after another, and each version is in one of them', async () => {
  const { files } = await on(diskStore());
  await files.write('doc', 'x');
  await engine.query(LOST_VERSIONS, [files.namespace, 11_500]);
  const first = await files.reconcile();
  expect(first).toMatchObject({ seen: 0, next: expect.any(String) });
  expect(first.damaged.length).toBeGreaterThanOrEqual(10_000);
  expect(first.damaged.length).toBeLessThanOrEqual(11_000);
  const second = await files.reconcile({ from: first.next ?? '' });
  expect(second).toMatchObject({ seen: 1, strangers: [], next: null });
  const ids = [...first.damaged, ...second.damaged].map(({ id }) => id);
  expect([ids.length, new Set(ids).size]).toEqual([11_500, 11_500]);
});

const LOST_VERSIONS = statement(
  'test.lost_versions',
  `insert into pawl.file_object (object, space, id, state, version, size, sha256, checks, host, pid, created_at, live_at)
   select gen_random_uuid(), $1::text, 'lost ' || n, 'live', 1, 1, '', '', '', 0, now(), now() from generate_series(1, $2::int) n`,
);

test('a failed upload writes nothing to standard error', async () => {
  const { files, store } = await on(bucketStore());
  await files.probe();
  const said: unknown[] = [];
  const { warn, error } = console;
  console.warn = console.error = (...words: unknown[]) => void said.push(words);
  onTestFinished(() => void Object.assign(console, { warn, error }));
  store.server.fault('cut', { operation: 'PutObject', key: 'objects/' });
  // With two chunks the SDK gets a stream.
  const two = [Buffer.alloc(70_000), Buffer.alloc(70_000)];
  await expect(
    files.write(
      'doc',
      (async function* () {
        yield* two;
      })(),
    ),
  ).rejects.toThrow(StoreUnavailable);
  expect(said).toEqual([]);
});

test('in a bucket, too, an object in quarantine is not replaced by one of the same name', async () => {
  const { files, store } = await on(bucketStore());
  await files.write('doc', 'x');
  const name = randomUUID();
  for (const text of ['one', 'two', 'three']) {
    await store.put(name, Buffer.from(text));
    expect(await files.reconcile({ dryRun: false })).toMatchObject({ quarantined: [name], failed: [] });
  }
  const kept = [...store.server.objects].filter(([key]) => key.startsWith(`test/quarantine/${name}`));
  expect(kept.map(([, { body }]) => Buffer.from(body).toString()).sort()).toEqual(['one', 'three', 'two']);
});
