// Plain English: fails on turns of phrase of scripts/prose/patterns.mjs in comments, messages, titles of tests and documents, and
// on types that are named by a past participle. Checks the files that are named on the command line, or else all files.
//
// Vale does the same with its own grammar. But it is a binary of 40 MB that npm does not have. It also reads no comments of SQL
// and cannot tell which strings are sentences.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { PATTERNS, TYPE_NAMES } from './prose/patterns.mjs';
import { proseOf } from './prose/text.mjs';

/** Files that are about the words themselves, or that a program writes. */
const NEVER = [/^scripts\/prose\//, /\.gen\.ts$/, /^test\/prose\.test\.ts$/];

const given = process.argv.slice(2);
const files = given.length > 0 ? given : tracked();
const problems = files.flatMap(problemsOf);

for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(`prose: ${files.length} files are plain English`);

function tracked() {
  return execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { encoding: 'utf8' })
    .split('\n')
    .filter(
      (file) => /\.(?:ts|tsx|mjs|sql|md)$/.test(file) && existsSync(file) && !NEVER.some((name) => name.test(file)),
    );
}

function problemsOf(file) {
  const text = readFileSync(file, 'utf8');
  const prose = proseOf(file, text);
  const found = PATTERNS.flatMap(({ find, say }) => [...prose.matchAll(find)].map((match) => ({ match, say })));
  if (/\.tsx?$/.test(file)) {
    found.push(...[...text.matchAll(TYPE_NAMES.find)].map((match) => ({ match, say: TYPE_NAMES.say })));
  }
  return found
    .toSorted((one, other) => one.match.index - other.match.index)
    .map(({ match, say }) => {
      const words = match[0].replace(/^[\0\s.;:|*-]+/, '');
      const line = text.slice(0, match.index + match[0].indexOf(words)).split('\n').length;
      return `${file}:${line}: "${words.replaceAll(/\s+/g, ' ').trim()}": say ${say}`;
    });
}
