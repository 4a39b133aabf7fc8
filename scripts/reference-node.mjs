// Types of Node that the declarations in dist/ name, such as Buffer and AsyncDisposable, are found without a "types" in the tsconfig of
// a program that compiles against them: TypeScript 6 and later loads none by itself.
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
