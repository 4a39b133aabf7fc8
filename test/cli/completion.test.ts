import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { pawl } from './pawl.ts';

function has(program: string): boolean {
  return spawnSync(program, ['--version']).status === 0;
}

/** A file with the script for a shell. */
async function scriptFor(shell: 'bash' | 'zsh' | 'fish'): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-completion-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { code, stdout, stderr } = await pawl(['completion', shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const file = join(folder, `pawl.${shell}`);
  writeFileSync(file, stdout);
  return file;
}

/** What a shell offers after these words, the last of which is just being typed. */
type Ask = (words: readonly string[]) => string[];

function lines(text: string): string[] {
  return text.split('\n').filter((line) => line !== '');
}

const SHELLS: Record<string, (file: string) => Ask> = {
  bash: (file) => (words) => {
    const program = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pawl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return lines(execFileSync('bash', ['-c', program, file, ...words], { encoding: 'utf8' }));
  },
  zsh: (file) => (words) => {
    const stubs = 'compdef() { }; _files() { found=(); }; _describe() { print -l -- ${${(@P)2}%%:*}; }';
    const program = `${stubs}; source "$0"; words=("$@"); CURRENT=$#; _pawl`;
    const typed = words.at(-1) ?? '';
    const found = lines(execFileSync('zsh', ['-fc', program, file, ...words], { encoding: 'utf8' }));
    return found.filter((word) => word.startsWith(typed));
  },
  fish: (file) => (words) => {
    const program = `source $argv[1]; complete -C (string join ' ' -- $argv[2..-1])`;
    const found = lines(execFileSync('fish', ['--no-config', '-c', program, file, ...words], { encoding: 'utf8' }));
    return found.map((line) => line.split('\t')[0] ?? '');
  },
};

describe.each(['bash', 'zsh', 'fish'] as const)('%s', (shell) => {
  test.skipIf(!has(shell))('completes commands, options and their values', async () => {
    const file = await scriptFor(shell);
    const ask = SHELLS[shell]?.(file) ?? ((): string[] => []);
    expect(ask(['pawl', 'sch'])).toEqual(['schedule']);
    expect(ask(['pawl', 'schedule', ''])).toEqual(expect.arrayContaining(['list', 'show', 'pause', 'resume', 'run']));
    expect(ask(['pawl', 'schedule', 'res'])).toEqual(['resume']);
    expect(ask(['pawl', '--url', 'postgres://localhost/app', 'queue', 'st'])).toEqual(['stats']);
    expect(ask(['pawl', '--quiet', 'queue', 'pause', '--dry'])).toEqual(['--dry-run']);
    expect(ask(['pawl', 'job', 'list', '--stat'])).toEqual(['--status']);
    expect(ask(['pawl', 'version', '-o', 'json'])).toEqual(expect.arrayContaining(['json', 'jsonl']));
    expect(ask(['pawl', 'completion', 'z'])).toEqual(['zsh']);
    // The value of an option is no command, though it is called like one.
    expect(ask(['pawl', '--config', 'queue', 'job', 'red'])).toEqual(['redrive']);
  });
});

test.skipIf(!has('script'))('a key Tab in a real bash completes what is typed', async () => {
  const file = await scriptFor('bash');
  // A function in place of the program shows what the line became.
  const typed = [
    `source ${file}`,
    `pawl() { printf '<%s>' "$@"; echo; }`,
    'pawl sched\tpau\treports nightly --dry\t',
    'exit',
    '',
  ];
  const { stdout } = spawnSync('script', ['-qec', 'bash --norc --noprofile -i', '/dev/null'], {
    input: typed.join('\n'),
    encoding: 'utf8',
  });
  expect(stdout).toContain('<schedule><pause><reports><nightly><--dry-run>');
});

test('a shell that it does not know is refused with those that it knows', async () => {
  const { code, stdout, stderr } = await pawl(['completion', 'tcsh']);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toMatch(/bash, zsh, fish/);
});
