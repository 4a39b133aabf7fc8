// Every error code of src/base/errors.ts has a section in docs/errors.md, with the name of its class. No section is for a
// code that does not exist.
import { readFileSync } from 'node:fs';

const root = new URL('../', import.meta.url);
const code = readFileSync(new URL('src/base/errors.ts', root), 'utf8');
const docs = readFileSync(new URL('docs/errors.md', root), 'utf8');

const CLASS = /^export class (\w+) extends \w+ \{[^]*?^\}/gm;
const inCode = new Map();
for (const [body, name] of code.matchAll(CLASS)) {
  const own = /readonly code(?:: string)? = '(\w+)'/.exec(body)?.[1];
  if (own !== undefined) inCode.set(own, name);
}
const inDocs = new Map([...docs.matchAll(/^## `(\w+)`: (\w+)$/gm)].map(([, errorCode, name]) => [errorCode, name]));

const problems = [];
for (const [errorCode, name] of inCode) {
  const documented = inDocs.get(errorCode);
  if (documented === undefined) problems.push(`docs/errors.md lacks a section "## \`${errorCode}\`: ${name}"`);
  else if (documented !== name)
    problems.push(`docs/errors.md says ${documented} has the code ${errorCode}; it is ${name}`);
}
for (const [errorCode, name] of inDocs) {
  if (!inCode.has(errorCode))
    problems.push(`docs/errors.md has ${name} (${errorCode}), which src/base/errors.ts does not`);
}
if (inCode.size === 0) problems.push('found no error class in src/base/errors.ts: has its shape changed?');

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`errors: ${inCode.size} codes, each documented`);
