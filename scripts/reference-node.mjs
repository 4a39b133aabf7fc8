// Adds a reference to Node's types to the declarations in dist/ that name them, such as Buffer and AsyncDisposable. TypeScript 6 and later
// loads no types by itself. With the reference, a program that uses the declarations needs no "types" in its tsconfig.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const dist = new URL('../dist/', import.meta.url);
const REFERENCE = '/// <reference types="node" />\n';
const NAMES_NODE = /'node:|\bBuffer\b|\bNodeJS\.|Disposable\b|\[Symbol\.(?:d|asyncD)ispose\]/;

for (const path of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
  if (!path.endsWith('.d.ts')) continue;
  const file = new URL(path, dist);
  const text = readFileSync(file, 'utf8');
  if (NAMES_NODE.test(text) && !text.startsWith(REFERENCE)) writeFileSync(file, REFERENCE + text);
}
