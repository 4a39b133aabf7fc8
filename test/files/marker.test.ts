import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Conflict, StoreRefused, StoreUnavailable } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createFiles, type Files } from '../../src/files/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { fullDisk } from '../support/servers/full-disk.ts';
import { testRole } from '../support/servers/role.ts';
import { bucketStore, diskStore, readAll, type TestStore } from './world.ts';

let database: FreshDatabase;
let engine: PostgresEngine;
let spaces = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 4 });
});

afterAll(() => engine.stop());

/** A store with one document that has been swept, and a second handle as another process has it. */
async function used<Store extends TestStore>(
  store: Store,
): Promise<{ store: Store; space: string; open: () => Files }> {
  const space = `marked-${(spaces += 1)}`;
  const opened: Files[] = [];
  const open = (): Files => {
    const files = createFiles(engine, { content: store.again(), namespace: space, retain: 0 });
    opened.push(files);
    return files;
  };
  onTestFinished(async () => {
    await Promise.all(opened.map((files) => files.stop()));
    await store.stop();
  });
  const files = createFiles(engine, { content: store.again(), namespace: space, retain: 0 });
  opened.push(files);
  await files.write('doc', 'one');
  await sweepOnce(files);
  return { store, space, open };
}

/** Sweeps with something to collect, so that the marker is written. */
async function sweepOnce(files: Files): Promise<void> {
  await (await files.upload('given up', 'x')).abandon();
  await files.sweep();
}

async function contentOf(files: Files): Promise<string> {
  return (await readAll((await files.read('doc')).stream)).toString();
}

const MARKER = 'pawl-store.json';
const COPY = 'pawl-store.copy.json';

describe('the marker of a store', () => {
  const DAMAGE: readonly (readonly [string, (text: string) => string])[] = [
    ['is empty', () => ''],
    ['is cut off', (text) => text.slice(0, 60)],
    ['has a key with another letter', (text) => text.replace('"namespace"', '"nameqpace"')],
    ['has another store', (text) => text.replace(/"store":"./, '"store":"f')],
    ['has no store', (text) => text.replace('"store"', '"stoze"')],
    ['has another pass', (text) => text.replace(/"pass":\d+/, '"pass":7')],
    ['has another database', (text) => text.replace(/"database":"./, '"database":"?')],
    ['has another format', (text) => text.replace('"format":1', '"format":3')],
  ];

  // Invariant F20.
  test.each(DAMAGE)('that %s stops no process, and the next pass repairs it', async (_, damage) => {
    const { store, open } = await used(await diskStore());
    for (const name of [MARKER, COPY]) {
      const path = join(store.content.where, name);
      const text = await readFile(path, 'utf8');
      await writeFile(path, damage(text));
      const files = open();
      await files.write('doc', `in spite of ${name}`);
      expect(await contentOf(files)).toBe(`in spite of ${name}`);
      expect((await files.collector()).haltedBecause).toBeNull();
      await sweepOnce(files);
      const [marker, copy] = await Promise.all(
        [MARKER, COPY].map((each) => readFile(join(store.content.where, each), 'utf8')),
      );
      expect(marker).toBe(copy);
      expect(JSON.parse(marker ?? '')).toMatchObject({ store: JSON.parse(text).store });
    }
  });

  test.each([
    ['in transfer', MARKER],
    ['in the store', MARKER],
    ['in its copy', COPY],
  ] as const)('that has one bit flipped %s is never written back so', async (how, name) => {
    const { store, open } = await used(await bucketStore());
    const before = JSON.parse((await store.content.readMarker('marker', call())) ?? '');
    for (let time = 0; time < 4; time++) {
      if (how === 'in transfer') store.server.fault('flip', { operation: 'GetObject', key: name, times: 1 });
      else {
        const bytes = Buffer.from(store.server.objects.get(`test/${name}`)?.body ?? '');
        bytes[10 + 31 * time] = (bytes[10 + 31 * time] ?? 0) ^ 2;
        store.server.put(`test/${name}`, bytes);
      }
      await sweepOnce(open());
      store.server.mend();
      const files = open();
      await files.write('doc', `after ${time}`);
      expect(await contentOf(files)).toBe(`after ${time}`);
      await sweepOnce(files);
    }
    for (const which of ['marker', 'copy'] as const) {
      const { store: is, namespace } = JSON.parse((await store.content.readMarker(which, call())) ?? '');
      expect({ store: is, namespace }).toEqual({ store: before.store, namespace: before.namespace });
    }
  });

  test('that is damaged together with its copy is written anew only by rearm', async () => {
    const { store, open } = await used(await diskStore());
    const paths = [MARKER, COPY].map((name) => join(store.content.where, name));
    const { store: is } = JSON.parse(await readFile(paths[0] ?? '', 'utf8'));
    for (const damage of ['damaged', undefined]) {
      for (const path of paths) await (damage === undefined ? rm(path) : writeFile(path, damage));
      const files = open();
      const expected = damage === undefined ? Conflict : StoreUnavailable;
      await expect(files.write('doc', 'no')).rejects.toThrow(expected);
      await expect(files.sweep()).rejects.toThrow(expected);
      expect(await contentOf(files)).toMatch(/one|again/);
      if (damage !== undefined) {
        expect((await files.collector()).haltedBecause).toMatch(/damaged.*rearm/);
        expect(await readFile(paths[0] ?? '', 'utf8')).toBe(damage);
      }
      await files.rearm();
      expect(JSON.parse(await readFile(paths[0] ?? '', 'utf8'))).toMatchObject({ store: is });
      await files.write('doc', 'again');
      await sweepOnce(files);
    }
  });

  test('is not invented by rearm in a store without any of our objects', async () => {
    const { space } = await used(await diskStore());
    const empty = await diskStore();
    onTestFinished(() => empty.stop());
    const files = createFiles(engine, { content: empty.content, namespace: space });
    await expect(files.rearm()).rejects.toThrow(StoreRefused);
    await expect(createFiles(engine, { content: empty.content, namespace: 'of nobody' }).rearm()).rejects.toThrow(
      StoreRefused,
    );
    await expect(files.write('doc', 'x')).rejects.toThrow(Conflict);
    // A mount point without its mount is not changed.
    expect(await readdir(empty.content.where)).toEqual([]);
  });

  test('of a newer version is refused, not overwritten', async () => {
    const { store, open } = await used(await diskStore());
    const { createHash } = await import('node:crypto');
    const json = JSON.stringify({ format: 9, store: 'x' });
    const sha256 = createHash('sha256').update(json).digest('hex');
    const text = JSON.stringify({ ...JSON.parse(json), sha256 });
    for (const name of [MARKER, COPY]) await writeFile(join(store.content.where, name), text);
    await expect(open().sweep()).rejects.toThrow(/format 9/);
    await expect(open().rearm()).rejects.toThrow(/format 9/);
    expect(await readFile(join(store.content.where, MARKER), 'utf8')).toBe(text);
  });

  test('of another store that was mounted there meanwhile is found before anything is deleted', async () => {
    const [mine, other] = [await used(await diskStore()), await used(await diskStore())];
    const files = mine.open();
    await files.probe();
    const foreign = JSON.parse(await readFile(join(other.store.content.where, MARKER), 'utf8'));
    await (await files.upload('given up', 'x')).abandon();
    for (const name of [MARKER, COPY]) {
      await writeFile(join(mine.store.content.where, name), await readFile(join(other.store.content.where, name)));
    }
    expect(foreign.namespace).not.toBe(mine.space);
    const before = await mine.store.names();
    await expect(files.sweep()).rejects.toThrow(Conflict);
    expect(await mine.store.names()).toEqual(before);
  });

  test('leaves no draft behind after several writers, a kill, or a full disk', async () => {
    const store = await diskStore();
    onTestFinished(() => store.stop());
    await writeFile(join(store.content.where, `${MARKER}.of-one-who-was-killed`), '');
    const all = Array.from({ length: 8 }, () =>
      createFiles(engine, { content: store.again(), namespace: 'marked by many' }),
    );
    await Promise.all(all.map((files) => files.write('doc', 'x')));
    expect((await readdir(store.content.where)).sort()).toEqual(['objects', COPY, MARKER].sort());
    const empty = await diskStore();
    onTestFinished(() => empty.stop());
    await mkdir(join(empty.content.where, 'objects'));
    using disk = await fullDisk(empty.content.where);
    disk.fill();
    const files = createFiles(engine, { content: empty.content, namespace: 'marked on a full disk' });
    await expect(files.write('doc', 'x')).rejects.toThrow(StoreUnavailable);
    expect(await readdir(empty.content.where)).toEqual(['objects']);
  });
});

test('a draft of a process that died after another one had marked the store goes with the next sweep', async () => {
  const { store, open } = await used(await diskStore());
  const { where } = store.content;
  await writeFile(join(where, `${MARKER}.86b4956e-31a6-40e7-b316-32de4825d142`), 'draft');
  await sweepOnce(open());
  expect((await readdir(where)).filter((name) => name.startsWith(MARKER))).toEqual([MARKER]);
});

test('on a full disk the collector makes room', async () => {
  const { store, open } = await used(await diskStore());
  const files = open();
  const { object } = await files.write('doc', 'kept');
  await (await files.upload('given up', 'x'.repeat(5000))).abandon();
  using disk = await fullDisk(store.content.where);
  disk.fill();
  await expect(files.write('doc', 'no room')).rejects.toThrow(StoreUnavailable);
  let deleted = 0;
  while ((await files.collector()).due > 0) deleted += (await open().sweep()).deleted;
  expect(deleted).toBeGreaterThan(0);
  expect(await store.names()).toContain(object);
  disk.makeRoom();
  await files.write('doc', 'room');
  expect(await contentOf(files)).toBe('room');
  expect((await readdir(store.content.where)).sort()).toEqual(['objects', COPY, MARKER].sort());
});

function call(): { signal: AbortSignal } {
  return { signal: AbortSignal.timeout(60_000) };
}

test('collectors with and without the right to know their cluster are the same database', async () => {
  const { url } = await freshDatabase();
  const owner = postgres(url, { max: 2 });
  const { name, url: plainUrl } = await testRole(url);
  const plain = postgres(plainUrl, { max: 2 });
  const store = await diskStore();
  onTestFinished(async () => {
    await Promise.all([owner.stop(), plain.stop()]);
    await store.stop();
  });
  const grants = [
    'revoke execute on function pg_catalog.pg_control_system() from public',
    `grant usage on schema pawl to ${name}`,
    `grant all on all tables in schema pawl to ${name}`,
    `grant execute on all functions in schema pawl to ${name}`,
  ];
  for (const [nth, grant] of grants.entries()) await owner.query(statement(`test.grant_${nth}`, grant));
  const [first, second] = [owner, plain].map((engine) =>
    createFiles(engine, { content: store.again(), namespace: 'shared', retain: 0 }),
  ) as [Files, Files];
  const database = async (): Promise<string> =>
    JSON.parse(await readFile(join(store.content.where, MARKER), 'utf8')).database;
  await first.write('doc', 'x');
  await sweepOnce(first);
  const known = await database();
  expect(known).toMatch(/^\d+:\d+$/);
  await sweepOnce(second);
  // The one that knows less does not make the others know less.
  expect(await database()).toBe(known);
  const before = await readFile(join(store.content.where, MARKER), 'utf8');
  for (const files of [first, second]) await files.sweep();
  expect(await readFile(join(store.content.where, MARKER), 'utf8')).toBe(before);
  await sweepOnce(first);
});
