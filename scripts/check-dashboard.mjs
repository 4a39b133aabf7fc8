// Bounds the compressed bytes that a browser loads before it shows a page: for the first page, and for each page that is loaded on top of it.
// Also refuses files from other servers, and inline scripts and styles, which the page's content security policy would refuse.
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { gzipSync } from 'node:zlib';

const MOST = 80 * 1024;
const DYNAMIC = /\bimport\(\s*["'`]\.\/([^"'`]+)["'`]/g;
const STATIC = /(?:\bfrom|\bimport)\s*["'`]\.\/([^"'`]+\.js)["'`]/g;
const folder = new URL('../dist/dashboard/', import.meta.url);
const html = readFileSync(new URL('index.html', folder), 'utf8');
const files = [...html.matchAll(/(?:src|href)="([^"]+\.(?:js|css|svg))"/g)].map(([, file]) => file);

const problems = [];
for (const file of files) if (/^(?:[a-z]+:)?\/\//.test(file)) problems.push(`index.html loads ${file} from elsewhere`);
if (files.length < 2) problems.push('index.html names no script and style: has its shape changed?');
if (/<script(?![^>]*\ssrc=)|<style|\son\w+="|\sstyle="/.test(html)) problems.push('index.html has something inline');
if (!html.includes('<base href="/">')) problems.push('index.html lacks the <base> that the server sets');

const first = withImports(files.filter((file) => !/^(?:[a-z]+:)?\/\//.test(file)));
const firstBytes = bytesOf(first) + gzipSync(html, { level: 9 }).length;
if (firstBytes > MOST) problems.push(`the first page has ${kib(firstBytes)} KiB gzipped, more than ${kib(MOST)}`);

// The files of a page include those that it loads later itself, such as its graph.
const later = [...first].flatMap((file) => references(file, DYNAMIC));
if (later.length === 0) problems.push('no page is loaded later: has the build changed?');
let largest = { name: '', bytes: 0 };
for (const file of later) {
  const page = withImports([file, ...references(file, DYNAMIC)]);
  const bytes = firstBytes + bytesOf([...page].filter((one) => !first.has(one)));
  if (bytes > largest.bytes) largest = { name: basename(file).replace(/-.*/, ''), bytes };
  if (bytes > MOST)
    problems.push(`with ${basename(file)} a page has ${kib(bytes)} KiB gzipped, more than ${kib(MOST)}`);
}

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(
  `dashboard: the first page has ${kib(firstBytes)} KiB gzipped, the largest, ${largest.name}, ${kib(largest.bytes)}, of ${kib(MOST)}`,
);

/** The files of the build that a script names by this pattern. */
function references(file, pattern) {
  if (!file.endsWith('.js')) return [];
  return [...read(file).toString().matchAll(pattern)].map(([, name]) => `assets/${name}`);
}

function withImports(roots) {
  const found = new Set();
  const visit = (file) => {
    if (found.has(file)) return;
    found.add(file);
    references(file, STATIC).forEach(visit);
  };
  roots.map((file) => file.replace(/^\.?\//, '')).forEach(visit);
  return found;
}

function bytesOf(some) {
  return [...some].reduce((sum, file) => sum + gzipSync(read(file), { level: 9 }).length, 0);
}

function read(file) {
  return readFileSync(new URL(file, folder));
}

function kib(bytes) {
  return (bytes / 1024).toFixed(1);
}
