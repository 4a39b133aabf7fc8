import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

// A program that imports a part waits for what that part loads. Times depend on the machine, so files and bytes are bounded instead, bytes
// at a twentieth above 2026-11-27, when comments had been left out of the compiled code, which were a sixth of it. On one machine (2 cores,
// Node 20; 2026-11-23) `pg` alone took 37 ms of processor, pawl/errors 3, pawl/postgres 60, pawl/files 81, capture 90, lock and actor 91,
// queue 104, pawl 157, and pawl/http 241.

const root = fileURLToPath(new URL('../..', import.meta.url));
const POSTGRES = ['pg'];
const SERVER = ['@hono/node-server', 'hono'];

interface Bound {
  readonly files: number;
  readonly kilobytes: number;
  /** Of others, that it may load; those that `pg` brings count as that. */
  readonly packages: readonly string[];
}

const BOUNDS: Readonly<Record<string, Bound>> = {
  pawl: { files: 495, kilobytes: 1710, packages: [...POSTGRES, 'croner'] },
  'pawl/errors': { files: 1, kilobytes: 5, packages: [] },
  'pawl/postgres': { files: 85, kilobytes: 285, packages: POSTGRES },
  'pawl/dynamodb': { files: 25, kilobytes: 65, packages: [] },
  'pawl/lock': { files: 160, kilobytes: 510, packages: POSTGRES },
  'pawl/queue': { files: 300, kilobytes: 1075, packages: [...POSTGRES, 'croner'] },
  'pawl/actor': { files: 207, kilobytes: 700, packages: POSTGRES },
  'pawl/capture': { files: 145, kilobytes: 470, packages: POSTGRES },
  'pawl/files': { files: 140, kilobytes: 440, packages: POSTGRES },
  'pawl/http': { files: 680, kilobytes: 2360, packages: [...POSTGRES, ...SERVER, 'croner'] },
  'pawl/testing': { files: 410, kilobytes: 1450, packages: [...POSTGRES, 'croner'] },
};

async function loadedBy(specifier: string): Promise<string[]> {
  const script = join(root, 'test/package/loaded.mjs');
  const { stdout } = await promisify(execFile)(process.execPath, [script, specifier], { cwd: root });
  const files: string[] = JSON.parse(stdout);
  return files.map((file) => relative(root, file));
}

function packagesOf(files: readonly string[]): string[] {
  const names = files.flatMap((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
  const isOfPg = /^(?:pg-.*|pgpass|postgres-.*|split2|xtend)$/;
  return [...new Set(names.filter((name) => !isOfPg.test(name)))];
}

test('every path of the package has a bound', async () => {
  const { exports } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const paths = Object.keys(exports).filter((path) => path !== './package.json');
  expect(new Set(Object.keys(BOUNDS))).toEqual(new Set(paths.map((path) => `pawl${path.slice(1)}`)));
});

test.for(Object.entries(BOUNDS))('%s loads no more than it needs', async ([specifier, bound]) => {
  const files = await loadedBy(specifier);
  expect(new Set(packagesOf(files))).toEqual(new Set(bound.packages));
  // The text of the schema is for migrate(), and a Postgres of our own for those who have none.
  expect(files.filter((file) => /schema\.gen|\/embedded\//.test(file))).toEqual([]);
  const sizes = await Promise.all(files.map(async (file) => (await stat(join(root, file))).size));
  const kilobytes = sizes.reduce((sum, size) => sum + size, 0) / 1024;
  const whichIs = `${files.length} files, ${Math.round(kilobytes)} KiB`;
  expect(files.length, whichIs).toBeLessThanOrEqual(bound.files);
  expect(kilobytes, whichIs).toBeLessThanOrEqual(bound.kilobytes);
});
