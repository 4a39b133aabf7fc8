import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { rarely } from '../../support/long.ts';
import { memoryFolder } from '../../support/memory.ts';
import { MAIN, pawl, startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

function urlIn(text: string): string {
  return /database +(postgres:\S+)/.exec(text)?.[1] ?? '';
}

/** Of a database that is there, where a server of its own would show nothing. */
async function migrated(): Promise<string> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  return database.url;
}

/** A package of its own, with the built code: one for all tests of this file, since a copy takes up to half a second of the processor. */
const home = mkdtempSync(join(memoryFolder(), 'pawl-cli-'));
afterAll(() => rmSync(home, { recursive: true, force: true }));

beforeAll(() => {
  const here = dirname(dirname(dirname(MAIN)));
  // Of two thousand files these are a third: the others are read by compilers, debuggers and browsers.
  const isRun = (path: string): boolean => !/\.(map|d\.ts)$|dist.dashboard./.test(path);
  for (const part of ['dist', 'package.json'])
    cpSync(join(here, part), join(home, part), { recursive: true, filter: isRun });
  symlinkSync(join(here, 'node_modules'), join(home, 'node_modules'));
  mkdirSync(join(home, 'dist-examples'));
});

/** Gives the package these examples, in place of those before. @returns its command */
function packageWith(examples: string | undefined): string {
  const file = join(home, 'dist-examples', 'dev.js');
  rmSync(file, { force: true });
  if (examples !== undefined) writeFileSync(file, examples);
  return join(home, 'dist', 'cli', 'main.js');
}

test('the examples are given a migrated database, and their summary is the one line on stdout', async () => {
  const main = packageWith(`
    export async function runDev(context) {
      context.log('feeding');
      const { state } = await context.engine.status();
      const { embedded, exitAfterMs, json, port, seed, url } = context;
      return { ok: true, state, temporary: embedded.temporary, exitAfterMs, json, port, seed, local: new URL(url).hostname };
    }`);
  const args = ['dev', '--exit-after', '3s', '--json', '--port', '8123', '--seed', '7'];
  const { code, stdout, stderr } = await pawl(args, { main });
  expect(code).toBe(0);
  expect(stdout.split('\n')).toEqual([expect.any(String), '']);
  const context = { exitAfterMs: 3000, json: true, port: 8123, seed: 7 };
  expect(JSON.parse(stdout)).toEqual({ ok: true, state: 'current', temporary: true, local: '127.0.0.1', ...context });
  expect(stderr).toContain('feeding');
});

test('examples that were not well, or that fail, end dev with 1; missing ones say what to do', async () => {
  const url = await migrated();
  const unwell = packageWith('export const runDev = async () => ({ ok: false, lost: 3 });');
  const lost = await pawl(['dev', '--json', '--url', url], { main: unwell });
  const failing = packageWith("export const runDev = async () => { throw new Error('out of paper'); };");
  const failed = await pawl(['dev', '--url', url], { main: failing });
  expect(lost).toMatchObject({ code: 1, stdout: '{"ok":false,"lost":3}\n' });
  expect(failed).toMatchObject({ code: 1, stderr: expect.stringContaining('out of paper') });
  const none = await pawl(['dev'], { main: packageWith(undefined) });
  expect(none).toMatchObject({ code: 1, stderr: expect.stringMatching(/next:.*npm run build/) });
});

test('Ctrl-C tells the examples to stop, and waits for their summary', async () => {
  const main = packageWith(`
    export const runDev = ({ signal, log }) => new Promise((resolve) => {
      log('running');
      const work = setInterval(() => {}, 1000);
      signal.addEventListener('abort', () => { clearInterval(work); resolve({ ok: true, reason: signal.reason.message }); });
    });`);
  const dev = startPawl(['dev', '--json', '--url', await migrated()], { main });
  await dev.said(/running/);
  dev.signal('SIGINT');
  const { code, stdout } = await dev.ended;
  expect({ code, ...JSON.parse(stdout) }).toEqual({ code: 0, ok: true, reason: 'interrupted by SIGINT' });
});

test('dev says where the data is and how to reach it, and Ctrl-C leaves neither server nor data', async () => {
  const dev = startPawl(['dev', '--bare']);
  await dev.said(/Ctrl-C/);
  const said = dev.stderr();
  const data = /data +(\S+) \(temporary/.exec(said)?.[1] ?? '';
  expect(existsSync(data)).toBe(true);
  expect(said).toMatch(/queue list[^]*doctor/);
  expect((await warmPawl(['migrate', 'status'], { url: urlIn(said) })).code).toBe(0);
  dev.signal('SIGINT');
  expect((await dev.ended).code).toBe(0);
  expect(existsSync(data)).toBe(false);
  expect((await warmPawl(['queue', 'list'], { url: urlIn(said) })).code).toBe(3);
});

rarely('--exit-after --json ends by itself, with one line of JSON on stdout', async () => {
  const { code, stdout } = await pawl(['dev', '--bare', '--exit-after', '200ms', '--json'], {
    env: { DATABASE_URL: 'postgres://x/y' },
  });
  expect({ code, stdout }).toEqual({ code: 0, stdout: '{"ok":true}\n' });
});

rarely('--data keeps the data; a second dev on it is refused', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-cli-'));
  // Started by root, the server runs as somebody else, who has to get in.
  chmodSync(folder, 0o755);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const data = join(folder, 'data');
  const first = startPawl(['dev', '--bare', '--data', data]);
  await first.said(/Ctrl-C/);
  expect(first.stderr()).toContain(`${data} (kept)`);
  expect((await pawl(['dev', '--bare', '--data', data])).code).toBe(5);
  first.signal('SIGTERM');
  await first.ended;
  expect(existsSync(join(data, 'PG_VERSION'))).toBe(true);
});

rarely('a run that is cut short is 130; --data with --url is a wrong usage', async () => {
  const dev = startPawl(['dev', '--bare', '--exit-after', '1h']);
  await dev.said(/Ctrl-C/);
  dev.signal('SIGINT');
  expect((await dev.ended).code).toBe(130);
  expect((await pawl(['dev', '--data', 'x', '--url', 'postgres://h/d'])).code).toBe(2);
});
