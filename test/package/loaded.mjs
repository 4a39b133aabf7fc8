// Run with a specifier: imports it, and prints what was loaded for it: [files].

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire, register } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = mkdtempSync(join(tmpdir(), 'pawl-loaded-'));
const list = join(folder, 'list');
// In a file, since hooks run in a thread of their own: each name is there before its module is.
const hooks = `import { appendFileSync } from 'node:fs';
export async function load(url, context, next) {
  appendFileSync(${JSON.stringify(list)}, url + '\\n');
  return next(url, context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
await import(process.argv[2]);
const urls = readFileSync(list, 'utf8').split('\n');
rmSync(folder, { recursive: true });
const modules = urls.filter((url) => url.startsWith('file:')).map((url) => fileURLToPath(url));
const required = Object.keys(createRequire(import.meta.url).cache);
console.log(JSON.stringify([...new Set([...modules, ...required])]));
