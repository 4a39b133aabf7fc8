import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { openerOf } from '../../../src/cli/setup/front-door.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { doorOf } from '../door.ts';
import { pawl, startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const ADDRESS = /http:\/\/\S+\//;

test('dashboard serves the API and the app, and ends with Ctrl-C', async () => {
  const { url } = await freshDatabase();
  const store = await mkdtemp(join(tmpdir(), 'pawl-test-dashboard-'));
  onTestFinished(() => rm(store, { recursive: true, force: true }));
  const args = ['--port', '0', '--base-path', '/pawl', '--title', 'a test', '--store', store];
  const dashboard = startPawl(['dashboard', ...args], { url });
  const { base, headers } = await doorOf(dashboard);
  expect(base).toMatch(/\/pawl\/$/);
  expect((await fetch(`${base}api/v1/me`)).status).toBe(401);
  const me = await fetch(`${base}api/v1/me`, { headers });
  expect(await me.json()).toMatchObject({ title: 'a test', role: 'admin', readOnly: false });
  const page = await fetch(`${base}queues/some`);
  expect(page.headers.get('content-type')).toContain('text/html');
  const html = await page.text();
  expect(html).toContain('<base href="/pawl/">');
  const script = /src="([^"]+)"/.exec(html)?.[1] ?? '';
  const loaded = await fetch(new URL(script, base));
  expect([loaded.status, loaded.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable']);
  const file = `${base}api/v1/files/one/content?id=doc-1`;
  expect((await fetch(file, { method: 'PUT', body: 'the bytes', headers })).status).toBe(201);
  expect(await (await fetch(file, { headers })).text()).toBe('the bytes');
  // A stream that is open must not keep it from ending.
  const stream = await fetch(`${base}api/v1/events`, { headers });
  dashboard.signal('SIGINT');
  expect((await dashboard.ended).code).toBe(0);
  await stream.text().catch(() => {});
});

test('the address that is printed becomes a cookie, in that browser alone, and without it this machine is a stranger', async () => {
  const { url: database } = await freshDatabase();
  const dashboard = startPawl(['dashboard', '--port', '0'], { url: database });
  const { url, base } = await doorOf(dashboard);
  const entered = await fetch(url, { redirect: 'manual' });
  const [cookie = ''] = entered.headers.get('set-cookie')?.split(';') ?? [];
  expect([entered.status, entered.headers.get('location')]).toEqual([303, '/']);
  const me = async (headers: Record<string, string>): Promise<unknown> =>
    (await fetch(`${base}api/v1/me`, { headers })).json();
  expect(await me({ cookie })).toMatchObject({ name: 'the person who started it', role: 'admin', by: 'session' });
  expect(await me({})).toMatchObject({ error: { code: 'unauthorized' } });
  // As nginx passes on what comes from anywhere: from here, by a name of here, and without a trace of itself.
  expect(await me({ host: new URL(base).host, 'sec-fetch-site': 'same-origin' })).toMatchObject({
    error: { code: 'unauthorized' },
  });
  const wrong = await fetch(`${base}queues?a=b&token=wrong`, { redirect: 'manual' });
  expect([wrong.status, wrong.headers.get('location'), wrong.headers.get('set-cookie')]).toEqual([
    303,
    '/queues?a=b',
    null,
  ]);
});

test('a browser is opened where somebody sits before it, and only there', () => {
  expect(openerOf('darwin', {})).toEqual(['open']);
  expect(openerOf('linux', { DISPLAY: ':0' })).toEqual(['xdg-open']);
  expect(openerOf('linux', {})).toBeUndefined();
  expect(openerOf('darwin', { SSH_CONNECTION: '10.0.0.1 1 10.0.0.2 22' })).toBeUndefined();
  expect(openerOf('linux', { DISPLAY: ':0', CI: 'true' })).toBeUndefined();
});

test('dashboard knows the program of a config file: a payload that its schema refuses is refused by field', async () => {
  const { url } = await freshDatabase();
  const config = fileURLToPath(new URL('./workers.mjs', import.meta.url));
  const dashboard = startPawl(['dashboard', '--port', '0', '--config', config], { url });
  const { base, headers } = await doorOf(dashboard);
  const added = await fetch(`${base}api/v1/queues/chores/jobs`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
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
  expect(open).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/no authentication is set up[^]*next:.*--token/),
  });
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
  const { base, headers } = await doorOf(dev);
  const press = async (): Promise<string> => {
    const pressed = await fetch(`${base}api/v1/dev/hold-lock`, { method: 'POST', headers });
    return ((await pressed.json()) as { done: string }).done;
  };
  const waits = async (): Promise<{ name: string; keeps: { name: string }[] }[]> => {
    const graph = (await (await fetch(`${base}api/v1/locks/graph`, { headers })).json()) as {
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
