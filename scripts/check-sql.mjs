// SQL stands where a reader searches for it: in sql/, and in the files of ALLOWED. Fails on a string elsewhere in src/ that begins like
// a statement. This is a heuristic on purpose: a reader sees the statements that it misses, and each finding deserves attention.
//
// In sql/, each function and view is defined once, in a file of its topic. Fails on a name that is defined twice, overloads included, and on
// a definition in a numbered file. Files of topics are applied again and again, so fails also on statements in them that are no definitions.
// Also fails on a function that is longer than a screen or two. Move the part that few calls need to its own function. Move a pure read too:
// the server inlines it into the statement that calls it (docs/decisions/009-planner-settings.md).
import { readdirSync, readFileSync } from 'node:fs';

const ALLOWED = [
  /^engine\/postgres\//,
  /\/postgres(-[a-z-]+)?\.ts$/,
  /\/postgres\//,
  /\/statements\.ts$/,
  /^http\/store\//,
  /^lock\/rows\/(table|claim)\.ts$/, // statements on the user's tables, built from their names
];

/** The most lines of a function, with its first and its last line. */
const MOST_LINES = 120;

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

const defined = new Map();
const misplaced = readdirSync('sql', { recursive: true, encoding: 'utf8' })
  .map((file) => file.replaceAll('\\', '/'))
  .filter((file) => file.endsWith('.sql') && file !== 'planner.sql')
  .flatMap((file) => [...statementsOf(readFileSync(`sql/${file}`, 'utf8'))].flatMap((text) => place(file, text)));

function place(file, text) {
  const [, name] = text.match(/^create\s+(?:or\s+replace\s+)?(?:function|view|procedure|trigger)\s+([\w.]+)/i) ?? [];
  const isNumbered = /^\w+\/tables\/\d{3}_\w+\.sql$/.test(file);
  if (name === undefined) {
    return isNumbered ? [] : [`sql/${file}: no function or view, so it belongs to tables/: ${text.split('\n')[0]}`];
  }
  const other = defined.get(name);
  defined.set(name, file);
  if (isNumbered) return [`sql/${file}: ${name} belongs to a file of its topic`];
  if (!/^create\s+or\s+replace\s/i.test(text))
    return [`sql/${file}: ${name} is applied again: say "create or replace"`];
  if (/set enable_bitmapscan = off/.test(text) && /set enable_seqscan = off/.test(text) && /set jit = off/.test(text)) {
    return [`sql/${file}: ${name} spells out planner settings that have a name in sql/planner.sql`];
  }
  if (other !== undefined) return [`sql/${file}: ${name} is defined in sql/${other}, too`];
  const lines = text.split('\n').length;
  return lines <= MOST_LINES
    ? []
    : [`sql/${file}: ${name} has ${lines} lines, and ${MOST_LINES} are the most: divide it`];
}

/** The statements of a text, without comments. Text between $$ or quotes belongs to its statement. */
function* statementsOf(text) {
  const parts = text.matchAll(/--[^\n]*|(\$\w*\$)[^]*?\1|'(?:[^']|'')*'|[^]/g);
  let statement = '';
  for (const [part] of parts) {
    if (part.startsWith('--')) continue;
    if (part !== ';') statement += part;
    if (part !== ';' || statement.trim() === '') continue;
    yield statement.trim();
    statement = '';
  }
  if (statement.trim() !== '') yield statement.trim();
}

const texts = readdirSync('sql', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.sql'))
  .map((file) => readFileSync(`sql/${file}`, 'utf8').replace(/--.*$/gm, ''));
const called = new Set(texts.flatMap((text) => [...text.matchAll(/\b(pawl\.\w+)\(/g)].map(([, name]) => name)));
const unknown = [...called]
  .filter((name) => !defined.has(name))
  .map((name) => `sql/ calls ${name}(), which no file defines`);

for (const line of [...misplaced, ...unknown]) console.error(line);
if (misplaced.length + unknown.length > 0) process.exit(1);

for (const line of found) console.error(line);
if (found.length > 0) {
  console.error(
    'Move it to the postgres.ts next to it, or to sql/. See scripts/check-sql.mjs for the places it may stand.',
  );
  process.exit(1);
}
console.log(
  `SQL: ${defined.size} functions and views, each defined once; ${files.length} files hold none, as they should`,
);

/** Keeps the line ends, so that line numbers stay the same. */
function withoutComments(code) {
  return code
    .replace(/\/\*[^]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '))
    .replace(/^(\s*)\/\/.*$/gm, '$1')
    .replace(/\s\/\/ .*$/gm, '');
}
