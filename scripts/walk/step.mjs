// Shared by all parts of the walk: the packed package, folders that are empty at first, and commands that run in them.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const folder = mkdtempSync(join(tmpdir(), 'pawl-walk-'));
export const { devDependencies, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

/** @returns the path of the tarball */
export async function pack() {
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [tarball] = JSON.parse(await run('npm', args, root));
  return join(folder, tarball.filename);
}

export function emptyFolder(name) {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  return path;
}

/** Runs a command without the variables that name the user's database. @returns its output */
export async function run(command, args, cwd, env) {
  const { stdout } = await promisify(execFile)(command, args, { cwd, timeout: 240_000, env: environment(env) });
  return stdout;
}

export function environment(more) {
  const { PAWL_URL: _one, DATABASE_URL: _two, ...env } = process.env;
  return { ...env, CI: '1', ...more };
}

export function install(here, ...packages) {
  return run('npm', ['install', '--no-audit', '--no-fund', ...packages], here);
}

/** Whether the registry has all packages. If not, prints what is left out. */
export async function isOffered(what, ...packages) {
  for (const name of packages) {
    const version = await run('npm', ['view', name, 'version'], folder).catch(() => '');
    if (version !== '') continue;
    console.log(`walk: the registry has no ${name}, so ${what} is left out`);
    return false;
  }
  return true;
}

export async function step(what, work) {
  const from = performance.now();
  try {
    const result = await work();
    console.log(`walk: ${what}, ${((performance.now() - from) / 1000).toFixed(1)} s`);
    return result;
  } catch (error) {
    console.error(`walk: ${what} failed\n${error.stdout ?? ''}${error.stderr ?? ''}`);
    throw error;
  }
}
