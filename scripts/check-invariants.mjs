// A test names every number of test/INVARIANTS.md, and that file defines every number that a test names. A test names its numbers at the
// beginning of its title ("H7: …", "H9, H13: …") or in a separate comment line above it ("// Invariants A3, A17.").
import { readdirSync, readFileSync } from 'node:fs';

const NUMBERS = /[A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*/.source;
const IN_TITLE = new RegExp(`(?:['"\`])(${NUMBERS}): `, 'g');
const IN_COMMENT = new RegExp(`^\\s*// Invariants? (${NUMBERS})\\.$`, 'gm');
const INCOMPLETE = /^\s*\/\/ Invariants? .*$/gm;

const defined = new Set(
  [...readFileSync('test/INVARIANTS.md', 'utf8').matchAll(/^\| ([A-Z]\d{1,2}) +\|/gm)].map(([, number]) => number),
);

const named = new Map();
const problems = [];
for (const file of readdirSync('test', { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'))) {
  const text = readFileSync(`test/${file}`, 'utf8');
  const comments = [...text.matchAll(IN_COMMENT)];
  if (comments.length !== [...text.matchAll(INCOMPLETE)].length) {
    problems.push(`test/${file} has an "// Invariant" that cannot be read: write "// Invariants A3, A17."`);
  }
  for (const [, numbers] of [...comments, ...text.matchAll(IN_TITLE)]) {
    for (const number of numbers.split(', ')) named.set(number, [...(named.get(number) ?? []), file]);
  }
}

for (const number of defined) if (!named.has(number)) problems.push(`invariant ${number} is named by no test`);
for (const [number, files] of named) {
  if (!defined.has(number)) problems.push(`test/${files[0]} names ${number}, which test/INVARIANTS.md does not define`);
}
if (defined.size === 0) problems.push('found no number in test/INVARIANTS.md: has its shape changed?');

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`invariants: ${defined.size} numbers, each named by a test`);
