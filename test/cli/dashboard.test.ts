import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { pawl, startPawl } from './pawl.ts';
import { warmPawl } from './warm-pawl.ts';

const ADDRESS = /http:\/\/\S+\//;

test('dashboard serves the API and the app, and ends with Ctrl-C', async () => {
  const { url } = await freshDatabase();
  const store = await mkdtemp(join(tmpdir(), 'pawl-test-dashboard-'));
  onTestFinished(() => rm(store, { recursive: true, force: true }));
  const args = ['--port', '0', '--base-path', '/pawl', '--title', 'a test', '--store', store];
  const dashboard = startPawl(['dashboard', ...args], { url });
  await dashboard.said(ADDRESS);
  const base = ADDRESS.exec(dashboard.stderr())?.[0] ?? '';
  expect(base).toMatch(/\/pawl\/$/);
  const me = await fetch(`${base}api/v1/me`);
  expect(await me.json()).toMatchObject({ title: 'a test', role: 'admin', readOnly: false });
  const page = await fetch(`${base}queues/some`);
  expect(page.headers.get('content-type')).toContain('text/html');
  const html = await page.text();
  expect(html).toContain('<base href="/pawl/">');
  const script = /src="([^"]+)"/.exec(html)?.[1] ?? '';
  const loaded = await fetch(new URL(script, base));
  expect([loaded.status, loaded.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable']);
  const file = `${base}api/v1/files/one/content?id=doc-1`;
  expect((await fetch(file, { method: 'PUT', body: 'the bytes' })).status).toBe(201);
  expect(await (await fetch(file)).text()).toBe('the bytes');
  // A stream that is open must not keep it from ending.
  const stream = await fetch(`${base}api/v1/events`);
  dashboard.signal('SIGINT');
  expect((await dashboard.ended).code).toBe(0);
  await stream.text().catch(() => {});
});

test('dashboard knows the program of a config file: a payload that its schema refuses is refused by field', async () => {
  const { url } = await freshDatabase();
  const config = fileURLToPath(new URL('./workers.mjs', import.meta.url));
  const dashboard = startPawl(['dashboard', '--port', '0', '--config', config], { url });
  await dashboard.said(ADDRESS);
  const base = ADDRESS.exec(dashboard.stderr())?.[0] ?? '';
  const added = await fetch(`${base}api/v1/queues/chores/jobs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ kind: 'paint', payload: { colour: 7 } }),
  });
  expect([added.status, await added.json()]).toMatchObject([400, { error: { field: 'payload.colour' } }]);
});

test('dashboard --read-only changes nothing; a token opens it to others', async () => {
  const { url } = await freshDatabase();
  const token = 'a-token-for-this-test-alone';
  const dashboard = startPawl(['dashboard', '--port', '0', '--host', '0.0.0.0', '--read-only'], {
    url,
    env: { PAWL_TOKEN: token },
  });
  await dashboard.said(ADDRESS);
  const base = (ADDRESS.exec(dashboard.stderr())?.[0] ?? '').replace('0.0.0.0', '127.0.0.1');
  const headers = { authorization: `Bearer ${token}` };
  const me = await (await fetch(`${base}api/v1/me`, { headers })).json();
  expect(me).toMatchObject({ name: 'cli', by: 'token', readOnly: true });
  expect(JSON.stringify(me)).not.toContain('queue:pause');
});

test('an interface that others reach is refused without a way in, and so are options that cannot be', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const open = await warmPawl(['dashboard', '--host', '0.0.0.0'], { url });
  expect(open).toMatchObject({ code: 2, stderr: expect.stringMatching(/no way for them to get in[^]*next:.*--token/) });
  expect((await warmPawl(['dashboard', '--base-path', 'pawl', '--port', '0'], { url })).code).toBe(2);
  expect((await warmPawl(['dashboard', '--token', 'short', '--port', '0'], { url })).code).toBe(2);
  expect((await warmPawl(['dashboard', '--dry-run'], { url })).code).toBe(0);
});

test('dashboard hash makes of a password what may be kept', async () => {
  const { code, stdout } = await pawl(['dashboard', 'hash'], { input: 'correct horse battery\n' });
  expect(code).toBe(0);
  expect(stdout).toMatch(/^scrypt\$17\$8\$1\$[\w-]{22}\$[\w-]{43}\n$/);
  expect((await pawl(['dashboard', 'hash'], { input: 'short' })).code).toBe(2);
});

test('dev serves the dashboard, and its button makes others wait for a lock, and lets them go on', async () => {
  // A server of its own is seen to start and end in dev.test.ts.
  const { url } = await freshDatabase();
  const dev = startPawl(['dev', '--bare', '--url', url]);
  await dev.said(/Ctrl-C/);
  const base = /dashboard +(http:\S+\/)/.exec(dev.stderr())?.[1] ?? '';
  const press = async (): Promise<string> => {
    const pressed = await fetch(`${base}api/v1/dev/hold-lock`, { method: 'POST' });
    return ((await pressed.json()) as { done: string }).done;
  };
  const waits = async (): Promise<{ name: string; keeps: { name: string }[] }[]> => {
    const graph = (await (await fetch(`${base}api/v1/locks/graph`)).json()) as {
      waits: { name: string; keeps: { name: string }[] }[];
    };
    return graph.waits;
  };
  expect(await press()).toContain('is held');
  await until('four wait', async () => (await waits()).length === 4);
  const nested = (await waits()).find(({ keeps }) => keeps.length > 0);
  expect(nested).toMatchObject({ name: 'printer', keeps: [{ name: 'scanner' }] });
  expect(await press()).toContain('is released');
  await until('nobody waits', async () => (await waits()).length === 0);
  dev.signal('SIGINT');
  expect((await dev.ended).code).toBe(0);
});
