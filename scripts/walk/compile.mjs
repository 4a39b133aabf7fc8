// Compiles the package and the programs of the README, as a new user does.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { devDependencies, emptyFolder, exports, install, root, run, step } from './step.mjs';

/** The oldest TypeScript that compiles the package with the `@types/node` that an installation brings. */
const OLDEST = '5.6';
/** The oldest TypeScript that compiles the package at all, and an older `@types/node`, which it can read. */
const FLOOR = { typescript: '5.4', node: '24' };

/** Compiles with the compiler of this project, which is installed in `here`. */
export async function compileInstalled(here) {
  await step(`a compile with TypeScript ${devDependencies.typescript} and no other package`, () => compileAll(here));
}

/** Compiles with the oldest compilers that README.md names. */
export async function compileWithOldest(packed) {
  const oldest = emptyFolder('oldest');
  await install(oldest, packed, `typescript@${OLDEST}`);
  await step(`a compile with TypeScript ${OLDEST}`, () => compileAll(oldest));
  const floor = emptyFolder('floor');
  await install(floor, packed, `typescript@${FLOOR.typescript}`, `@types/node@${FLOOR.node}`);
  await step(`a compile with TypeScript ${FLOOR.typescript} and @types/node ${FLOOR.node}`, () => compileAll(floor));
}

/** Compiles the README's programs that use a database. Without DATABASE_URL they start their own Postgres. @returns the files to run */
export async function compilePrograms(here) {
  const programs = programsOfReadme();
  for (const [name, code] of programs) {
    for (const ending of ['mjs', 'ts']) writeFileSync(join(here, `${name}.${ending}`), code);
  }
  // The programs are JavaScript, so their parameters have no types.
  const flags = ['--outDir', 'compiled', '--strict', '--noImplicitAny', 'false'];
  await tsc(here, [...flags, ...programs.map(([name]) => `${name}.ts`)]);
  return programs.flatMap(([name]) => [`${name}.mjs`, join('compiled', `${name}.js`)]);
}

/** @returns the name and the code of each program that uses a database */
export function programsOfReadme() {
  const text = readFileSync(join(root, 'README.md'), 'utf8');
  const programs = [...text.matchAll(/```js run (\w+)\n([\s\S]*?)```/g)]
    .map(([, name, code]) => [name, code])
    .filter(([, code]) => /postgres\(/.test(code));
  if (programs.length < 4) throw new Error('the README has fewer programs than it had');
  return programs;
}

/** Compiles all exports of the package, and checks the declarations of all packages. */
function compileAll(here) {
  const names = Object.keys(exports).filter((path) => path !== './package.json');
  const lines = names.map((path, at) => `import * as p${at} from 'pawl${path.slice(1)}';\nconsole.log(p${at});`);
  writeFileSync(join(here, 'all.ts'), lines.join('\n'));
  return tsc(here, ['--noEmit', '--strict', '--skipLibCheck', 'false', 'all.ts']);
}

function tsc(here, flags) {
  return run('npx', ['tsc', '--module', 'nodenext', '--target', 'es2022', ...flags], here);
}
