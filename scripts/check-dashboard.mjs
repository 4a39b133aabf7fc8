// The first page of the dashboard: what a browser loads before it shows anything, as it comes over the wire. What is loaded later
// does not count. Also nothing from elsewhere, and nothing inline, which the policy of the page would refuse.
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const MOST = 80 * 1024;
const folder = new URL('../dist/dashboard/', import.meta.url);
const html = readFileSync(new URL('index.html', folder), 'utf8');
const files = [...html.matchAll(/(?:src|href)="([^"]+\.(?:js|css|svg))"/g)].map(([, file]) => file);

const problems = [];
let bytes = gzipSync(html, { level: 9 }).length;
for (const file of files) {
  if (/^(?:[a-z]+:)?\/\//.test(file)) problems.push(`index.html loads ${file} from elsewhere`);
  else bytes += gzipSync(readFileSync(new URL(file, folder)), { level: 9 }).length;
}
if (files.length < 2) problems.push('index.html names no script and style: has its shape changed?');
if (bytes > MOST)
  problems.push(`the first page has ${(bytes / 1024).toFixed(1)} KiB gzipped, more than ${MOST / 1024}`);
if (/<script(?![^>]*\ssrc=)|<style|\son\w+="|\sstyle="/.test(html)) problems.push('index.html has something inline');
if (!html.includes('<base href="/">')) problems.push('index.html lacks the <base> that the server sets');

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`dashboard: the first page has ${(bytes / 1024).toFixed(1)} KiB gzipped, of ${MOST / 1024}`);
