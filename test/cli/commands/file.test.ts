import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { faultyStore } from '../../../src/testing/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import type { PawlOptions } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'pawl-cli-file-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

test('a file goes in, comes out, has a history, is restored, swept and compared', async () => {
  const { url } = await freshDatabase();
  const dir = folder();
  const on: PawlOptions = { url, env: { PAWL_FILES: join(dir, 'objects') } };
  const file = (...args: string[]) => warmPawl(['file', ...args], on);
  const path = join(dir, 'a.txt');
  writeFileSync(path, 'first');
  expect(await file('put', 'doc', path, '--author', 'ada', '-q')).toMatchObject({ code: 0, stdout: '1\n' });
  const second = await warmPawl(['file', 'put', 'doc', '-', '--if-version', '1', '-o', 'json'], {
    ...on,
    input: 'second',
  });
  expect(JSON.parse(second.stdout)).toMatchObject({ id: 'doc', version: 2, size: 6, previous: 1 });
  const conflict = await file('put', 'doc', path, '--if-version', '1');
  expect(conflict).toMatchObject({ code: 5, stdout: '' });
  expect(conflict.stderr).toContain('there is version 2');
  const out = join(dir, 'out.txt');
  expect(await file('get', 'doc', out)).toMatchObject({ code: 0 });
  expect(readFileSync(out, 'utf8')).toBe('second');
  expect(await file('get', 'doc', out)).toMatchObject({ code: 5 });
  expect(await file('get', 'doc', '-', '--at', '1')).toMatchObject({ code: 0, stdout: 'first' });
  const nothing = await file('get', 'nothing', '-');
  expect(nothing).toMatchObject({ code: 4, stdout: '' });
  expect(nothing.stderr).toContain('next:  pawl file list');
  expect(await file('restore', 'doc', '1', '-q')).toMatchObject({ code: 0, stdout: '3\n' });
  expect((await file('history', 'doc', '-q')).stdout).toBe('3\n2\n1\n');
  expect((await file('list')).stdout).toMatch(/ID .*VERSION[^]*doc +3 +5 /);
  expect(await file('sweep', '-o', 'json')).toMatchObject({
    code: 0,
    stdout: '{"condemned":0,"deleted":1,"deletedAgain":0,"failed":0}\n',
  });
  expect(await file('reconcile', '-o', 'json')).toMatchObject({ code: 0 });
  expect(await file('rearm')).toMatchObject({ code: 0 });
});

test('a place that cannot be read or written is said in a sentence, with what to do', async () => {
  const { url } = await freshDatabase();
  const dir = folder();
  const on: PawlOptions = { url, env: { PAWL_FILES: join(dir, 'objects') } };
  const path = join(dir, 'a.txt');
  writeFileSync(path, 'first');
  await warmPawl(['file', 'put', 'doc', path], on);
  const missing = join(dir, 'none', 'out.txt');
  const got = await warmPawl(['file', 'get', 'doc', missing], on);
  expect([got.code, got.stderr]).toEqual([2, expect.stringMatching(/none.* cannot be written: [^]*next:/)]);
  expect(got.stderr).not.toMatch(/^ +at /m);
  const put = await warmPawl(['file', 'put', 'doc', join(dir, 'none')], on);
  expect([put.code, put.stderr]).toEqual([2, expect.stringMatching(/none cannot be read: [^]*next:/)]);
});

test('a bucket is named by its URL; without a store the command says how to name one', async () => {
  const { url } = await freshDatabase();
  const store = await faultyStore();
  onTestFinished(() => store.stop());
  const { bucket, endpoint, credentials } = store.connection;
  const env = {
    PAWL_FILES: `s3://${bucket}/cli/`,
    PAWL_FILES_ENDPOINT: endpoint,
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
  };
  expect(await warmPawl(['file', 'put', 'doc', '-'], { url, env, input: 'bytes' })).toMatchObject({ code: 0 });
  expect(await warmPawl(['file', 'get', 'doc', '-'], { url, env })).toMatchObject({ code: 0, stdout: 'bytes' });
  store.put('cli/objects/of-somebody-else', Buffer.from('?'));
  const found = await warmPawl(['file', 'reconcile'], { url, env });
  expect(found).toMatchObject({ code: 1 });
  expect(found.stderr).toContain('stranger  of-somebody-else');
  const from = '00000000-0000-0000-0000-000000000000 of-somebody-else';
  expect(await warmPawl(['file', 'reconcile', '--from', from], { url, env })).toMatchObject({ code: 0 });
  store.fault('unavailable', { operation: 'ListObjectsV2' });
  const stopped = await warmPawl(['file', 'reconcile'], { url, env });
  expect(stopped).toMatchObject({ code: 1 });
  expect(stopped.stderr).toMatch(/failed  the list: .*503[^]*continue with --from/);
  const nowhere = await warmPawl(['file', 'list'], { url });
  expect(nowhere).toMatchObject({ code: 2, stdout: '' });
  expect(nowhere.stderr).toMatch(/next:.*--store/);
});

test('a file that is made while a document is fetched is not replaced, and no draft stays', async () => {
  const { url } = await freshDatabase();
  const store = await faultyStore();
  onTestFinished(() => store.stop());
  const { bucket, endpoint, credentials } = store.connection;
  const env = {
    PAWL_FILES: `s3://${bucket}/cli`,
    PAWL_FILES_ENDPOINT: endpoint,
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
  };
  await warmPawl(['file', 'put', 'doc', '-'], { url, env, input: 'bytes' });
  const dir = folder();
  const out = join(dir, 'out.txt');
  const link = join(dir, 'link.txt');
  symlinkSync(join(dir, 'nowhere'), link);
  store.fault('delay', { operation: 'GetObject', key: 'objects/', ms: 1500, times: 1 });
  const getting = warmPawl(['file', 'get', 'doc', out], { url, env });
  await until('it fetches', () => store.log.some((each) => each.operation === 'GetObject' && /objects/.test(each.key)));
  writeFileSync(out, 'of another program');
  const got = await getting;
  expect([got.code, got.stderr]).toEqual([5, expect.stringMatching(/out\.txt exists already[^]*--force/)]);
  expect(readFileSync(out, 'utf8')).toBe('of another program');
  // A link that leads nowhere is there, too.
  expect(await warmPawl(['file', 'get', 'doc', link], { url, env })).toMatchObject({ code: 5 });
  expect(readlinkSync(link)).toBe(join(dir, 'nowhere'));
  expect(await warmPawl(['file', 'get', 'doc', out, '--force'], { url, env })).toMatchObject({ code: 0 });
  expect(readFileSync(out, 'utf8')).toBe('bytes');
  expect(readdirSync(dir).sort()).toEqual(['link.txt', 'out.txt']);
});
