// SQL stands where it is looked for: in sql/, and in the files below. Fails on a string elsewhere in src/ that begins as
// a statement does. A heuristic on purpose: what it misses a reader sees, and what it finds is always worth a look.
import { readdirSync, readFileSync } from 'node:fs';

const ALLOWED = [
  /^engine\/postgres\//,
  /\/postgres(-[a-z-]+)?\.ts$/,
  /\/postgres\//,
  /\/statements\.ts$/,
  /^http\/store\//,
  /^lock\/rows\/(table|claim)\.ts$/, // statements on tables of the user's, which are made of their names
];

const NAME = String.raw`(?:[a-z_$][\w$."{}]*)`;
const STATEMENTS = [
  String.raw`select\s+(?:[\w$*('"]|pawl\.)`,
  String.raw`insert\s+into\s`,
  String.raw`update\s+(?:only\s+)?${NAME}\s+(?:as\s+\w+\s+|\w+\s+)?set\s`,
  String.raw`delete\s+from\s`,
  String.raw`with\s+(?:recursive\s+)?\w+\s*(?:\([^)]*\)\s*)?as\s+(?:not\s+)?(?:materialized\s+)?\(`,
  String.raw`(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:unique\s+)?(?:table|index|function|view|schema|sequence|type|trigger|role|database|extension)\s`,
  String.raw`(?:truncate|lock\s+table|set\s+(?:local|session))\s`,
  String.raw`(?:listen|notify|unlisten)\s+["$]`,
  String.raw`do\s+\$`,
];
const SQL = new RegExp(String.raw`(['"\`])\s*(?:--[^\n]*\n\s*)*(?:${STATEMENTS.join('|')})`, 'gi');

const src = new URL('../src/', import.meta.url);
const files = readdirSync(src, { recursive: true })
  .map((file) => file.replaceAll('\\', '/'))
  .filter((file) => file.endsWith('.ts') && !ALLOWED.some((place) => place.test(file)));

const found = files.flatMap((file) => {
  const code = withoutComments(readFileSync(new URL(file, src), 'utf8'));
  return [...code.matchAll(SQL)].map(({ index, 0: text }) => {
    const line = code.slice(0, index).split('\n').length;
    return `src/${file}:${line}: SQL stands here: ${text.slice(1).trim().split('\n')[0]}…`;
  });
});

for (const line of found) console.error(line);
if (found.length > 0) {
  console.error(
    'Move it to the postgres.ts beside it, or to sql/. See scripts/check-sql.mjs for the places it may stand.',
  );
  process.exit(1);
}
console.log(`SQL: ${files.length} files hold none, as they should`);

/** Keeps the line ends, so that the lines can be counted. */
function withoutComments(code) {
  return code
    .replace(/\/\*[^]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '))
    .replace(/^(\s*)\/\/.*$/gm, '$1')
    .replace(/\s\/\/ .*$/gm, '');
}
