// Removes the declarations that no export of the package leads to. No program can import them, and they were 0.4 MB of an installation.
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const root = new URL('../', import.meta.url);
const dist = new URL('dist/', root);
const { exports } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'));
const IMPORT = /\b(?:from|import)\s*\(?\s*['"](\.[^'"]+)\.[jt]s['"]/g;

const reached = new Set();
const open = Object.values(exports).flatMap(({ types }) => (types === undefined ? [] : [new URL(types, root).href]));
for (let file = open.pop(); file !== undefined; file = open.pop()) {
  if (reached.has(file)) continue;
  reached.add(file);
  for (const [, path] of readFileSync(new URL(file), 'utf8').matchAll(IMPORT)) {
    const imported = new URL(`${path}.d.ts`, file);
    if (!existsSync(imported)) throw new Error(`${file} imports ${path}, which has no declarations`);
    open.push(imported.href);
  }
}

for (const folder of [dist, new URL('dist-examples/', root)]) {
  if (!existsSync(folder)) continue;
  for (const path of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    const file = new URL(path.replaceAll('\\', '/'), folder);
    if (path.endsWith('.d.ts') && !reached.has(file.href)) rmSync(fileURLToPath(file));
  }
}
