import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

// A program that imports a part waits for what that part loads. Times depend on the machine, so files and bytes are bounded instead, a
// seventh to a quarter above what they were on 2026-11-23; those of pawl, queue, actor, http and testing a tenth above 2026-11-26, after
// actors had come to DynamoDB (700 KiB of actor) and long files were split; pawl, queue, http and testing 3 % above the evening of that day. On that machine (2 cores, Node 20) `pg` alone took 37 ms of processor, pawl/errors 3,
// pawl/postgres 60, pawl/files 81, capture 90, lock and actor 91, queue 104, pawl 157, and pawl/http 241.

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
  pawl: { files: 495, kilobytes: 2020, packages: [...POSTGRES, 'croner'] },
  'pawl/errors': { files: 1, kilobytes: 10, packages: [] },
  'pawl/postgres': { files: 85, kilobytes: 360, packages: POSTGRES },
  'pawl/dynamodb': { files: 25, kilobytes: 90, packages: [] },
  'pawl/lock': { files: 160, kilobytes: 670, packages: POSTGRES },
  'pawl/queue': { files: 300, kilobytes: 1270, packages: [...POSTGRES, 'croner'] },
  'pawl/actor': { files: 205, kilobytes: 800, packages: POSTGRES },
  'pawl/capture': { files: 145, kilobytes: 600, packages: POSTGRES },
  'pawl/files': { files: 140, kilobytes: 580, packages: POSTGRES },
  'pawl/http': { files: 680, kilobytes: 2730, packages: [...POSTGRES, ...SERVER, 'croner'] },
  'pawl/testing': { files: 410, kilobytes: 1700, packages: [...POSTGRES, 'croner'] },
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
