import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { MAIN, pawl, silentServer, startPawl } from './pawl.ts';
import { warmPawl } from './warm-pawl.ts';

const NOWHERE = 'postgres://me:secret@127.0.0.1:1/app';

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'pawl-cli-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

describe('exit codes', () => {
  test('0: done', async () => {
    expect(await pawl(['version'])).toMatchObject({ code: 0, stderr: '' });
  });

  test('2: without a command, with an unknown one, an unknown option, or a wrong value', async () => {
    const wrong = [
      [],
      ['vresion'],
      ['version', '--frobnicate'],
      ['version', '-o', 'xml'],
      ['version', '--timeout', 'soon'],
    ];
    const ends = await Promise.all(wrong.map((args) => warmPawl(args)));
    for (const [index, { code, stdout, stderr }] of ends.entries()) {
      expect({ args: wrong[index], code, stdout }).toEqual({ args: wrong[index], code: 2, stdout: '' });
      expect(stderr).toMatch(/Usage|error:/);
    }
  });

  test('2: an unknown command is answered with those that there are', async () => {
    const said = {
      'job show 7': /error: unknown command 'show'\nnext: {2}pawl job has list, .*get, /,
      'retry 7': /error: unknown command 'retry'\nnext: {2}pawl job retry, or pawl actor retry\n$/,
      vresion: /Did you mean version\?\)\nnext: {2}add --help to see/,
      'job get': /error: missing required argument 'id'\nnext: {2}add --help to see/,
    };
    for (const [words, answer] of Object.entries(said)) {
      expect((await warmPawl(words.split(' '))).stderr).toMatch(answer);
    }
  });

  test('2: without a database, saying how to name one', async () => {
    const { code, stderr } = await warmPawl(['queue', 'list'], { cwd: folder() });
    expect(code).toBe(2);
    expect(stderr).toMatch(/PAWL_URL.*DATABASE_URL/);
    expect(stderr).toMatch(/next:.*--url postgres:/);
  });

  test('2: with a URL that is none, without repeating it', async () => {
    const { code, stderr } = await warmPawl(['queue', 'list', '--url', 'mysql://me:secret@h/app']);
    expect(code).toBe(2);
    expect(stderr).toContain('--url');
    expect(stderr).not.toContain('secret');
  });

  test('3: the database cannot be reached', async () => {
    const { code, stdout, stderr } = await pawl(['queue', 'list'], { url: NOWHERE });
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
    expect(stderr).toMatch(/ECONNREFUSED/);
    expect(stderr).not.toContain('secret');
  });

  test('3: the socket of a URL that names no host cannot be reached', async () => {
    const url = 'postgres://me:secret@/app?host=/nowhere';
    const { code, stderr } = await warmPawl(['queue', 'list'], { url });
    expect(code).toBe(3);
    expect(stderr).toMatch(/ENOENT.*\/nowhere/);
    expect(stderr).not.toContain('secret');
  });

  test('3: the database does not let us in', async () => {
    const { url } = await freshDatabase();
    const there = new URL(url);
    there.pathname = '/no_such_database';
    expect(await warmPawl(['queue', 'list'], { url: there.href })).toMatchObject({ code: 3 });
    const wrong = new URL(url);
    wrong.password = 'wrong';
    expect(await warmPawl(['queue', 'list'], { url: wrong.href })).toMatchObject({ code: 3 });
  });

  test('6: --timeout has passed', async () => {
    const { url } = await silentServer();
    const { code, stderr } = await pawl(['queue', 'list', '--timeout', '300ms'], { url });
    expect(code).toBe(6);
    expect(stderr).toMatch(/not done within 300ms[^]*next:/);
  });

  test('0: --timeout is longer than a timer of Node can be', async () => {
    const { url } = await freshDatabase();
    expect(await warmPawl(['queue', 'list', '--timeout', '30d'], { url })).toMatchObject({ code: 0 });
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s ends a command with %i', async (signal, code) => {
    const { url, called } = await silentServer();
    const running = startPawl(['queue', 'list'], { url });
    await called;
    running.signal(signal);
    expect(await running.ended).toMatchObject({ code, stdout: '' });
  });
});

describe('help', () => {
  test('every command has help on stdout that begins with two examples of it, and fits into 80 columns', async () => {
    const seen: string[] = [];
    const visit = async (words: readonly string[]): Promise<void> => {
      const { code, stdout, stderr } = await warmPawl([...words, '--help']);
      expect({ words, code, stderr }).toEqual({ words, code: 0, stderr: '' });
      const [title, ...lines] = stdout.split('\n');
      expect(title).toBe('Examples:');
      for (const line of lines.slice(0, 2)) expect(line).toMatch(new RegExp(`^  \\$ .*pawl ${words.join(' ')}`));
      expect(lines.filter((line) => line.length > 80)).toEqual([]);
      expect(stdout).not.toMatch(/default: null/);
      seen.push(words.join(' '));
      const [, commands = ''] = /\nCommands:\n((?: .*\n?)+)/.exec(stdout) ?? [];
      for (const [, name = ''] of commands.matchAll(/^ {2}(\w+)/gm)) if (name !== 'help') await visit([...words, name]);
    };
    await visit([]);
    expect(seen).toEqual(expect.arrayContaining(['', 'dev', 'migrate plan', 'schedule run', 'lock run', 'file rearm']));
    expect(seen.length).toBeGreaterThan(70);
  });

  test('a mistyped command or option is answered with the right one', async () => {
    expect((await warmPawl(['queu', 'list'])).stderr).toContain('Did you mean queue?');
    expect((await warmPawl(['queue', 'lits'])).stderr).toContain('Did you mean list?');
    expect((await warmPawl(['migrate', 'stauts'])).stderr).toContain('did you mean "status"?');
    expect((await warmPawl(['version', '--outptu', 'json'])).stderr).toContain('Did you mean --output?');
  });
});

describe('the database is named by', () => {
  const origin = async (args: readonly string[], env: NodeJS.ProcessEnv, cwd: string): Promise<string> => {
    const { stdout } = await warmPawl(['doctor', '-o', 'json', ...args], { env, cwd });
    const findings: { check: string; detail: string }[] = JSON.parse(stdout);
    return findings.find(({ check }) => check === 'url')?.detail ?? '';
  };

  test('--url, then PAWL_URL, then DATABASE_URL, then the config file', async () => {
    const cwd = folder();
    const at = (name: string): string => NOWHERE.replace('app', name);
    writeFileSync(join(cwd, 'pawl.config.json'), JSON.stringify({ url: at('config') }));
    const env = { PAWL_URL: at('own'), DATABASE_URL: at('general') };
    expect(await origin(['--url', at('option')], env, cwd)).toMatch(/\/option from --url$/);
    expect(await origin([], env, cwd)).toMatch(/\/own from PAWL_URL$/);
    expect(await origin([], { ...env, PAWL_URL: '' }, cwd)).toMatch(/\/general from DATABASE_URL$/);
    expect(await origin([], {}, cwd)).toMatch(/\/config from .*pawl\.config\.json$/);
  });

  test('a config file that is a module, and by name', async () => {
    const cwd = folder();
    writeFileSync(join(cwd, 'other.mjs'), `export default { url: '${NOWHERE}' };`);
    expect(await origin(['--config', 'other.mjs'], {}, cwd)).toMatch(/me:\*\*\*@.*other\.mjs$/);
  });

  test('a config file that cannot be used is a wrong usage that names it', async () => {
    const cwd = folder();
    writeFileSync(join(cwd, 'broken.mjs'), 'export default {');
    writeFileSync(join(cwd, 'slip.json'), '{"ulr":"x"}');
    const use = (file: string) => warmPawl(['queue', 'list', '--config', file], { cwd });
    expect(await use('broken.mjs')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/broken\.mjs.*SyntaxError/s),
    });
    expect(await use('slip.json')).toMatchObject({ code: 2, stderr: expect.stringContaining('did you mean "url"?') });
    expect(await use('none.json')).toMatchObject({ code: 2, stderr: expect.stringContaining('none.json') });
  });
});

describe('output', () => {
  test('json is one value, plain is tab-separated, quiet is ids', async () => {
    const json = await warmPawl(['version', '-o', 'json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ node: process.versions.node, postgres: null });
    expect((await warmPawl(['version', '-o', 'plain'])).stdout).toContain(`node\t${process.versions.node}\n`);
    expect((await warmPawl(['version', '-q'])).stdout).toBe(`${JSON.parse(json.stdout).pawl}\n`);
  });

  test('no colour where there is no terminal, or with NO_COLOR; --color always paints, never does not', async () => {
    const escape = '\u001b[';
    const show = async (args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<string> => {
      const { stdout, stderr } = await warmPawl(['version', ...args], { env });
      return stdout + stderr;
    };
    expect(await show([])).not.toContain(escape);
    expect(await show(['--color', 'always'])).toContain(escape);
    expect(await show([], { FORCE_COLOR: '1' })).toContain(escape);
    expect(await show(['--color', 'never'], { FORCE_COLOR: '1' })).not.toContain(escape);
    expect(await show([], { NO_COLOR: '1' })).not.toContain(escape);
  });

  test('a reader that has seen enough is no failure', async () => {
    const shell = spawn('sh', ['-c', '"$0" "$1" --help | head -1; exit', process.execPath, MAIN]);
    let said = '';
    shell.stderr.on('data', (text) => {
      said += text;
    });
    const [code] = await once(shell, 'close');
    expect({ code, said }).toEqual({ code: 0, said: '' });
  });
});

test('works through a link, as npm makes one', async () => {
  const link = join(folder(), 'pawl');
  symlinkSync(MAIN, link);
  expect(await pawl(['version'], { main: link })).toMatchObject({ code: 0 });
});

test('--read-only refuses what changes something', async () => {
  const { url } = await freshDatabase({ migrated: false });
  expect(await warmPawl(['migrate', '--read-only'], { url })).toMatchObject({ code: 2 });
  expect(await warmPawl(['migrate', 'status', '--read-only'], { url })).toMatchObject({ code: 1 });
});
