// All SQL of Pawl names the schema "pawl". If the schema has another name, src/engine/postgres/schema/name.ts rewrites the SQL. Fails if
// rewritten SQL still names "pawl", in sql/ and in the strings of the files of src/ that may hold SQL. Fails also on statements that are
// sent without being rewritten. Runs on the built code.
import { readdirSync, readFileSync } from 'node:fs';
import { SchemaName } from '../dist/engine/postgres/schema/name.js';
import { schema } from '../dist/engine/postgres/schema.gen.js';

const other = new SchemaName('other');

/** Text that names the schema, or begins with its name. */
const NAMED = /"pawl"|'pawl'|\bpawl[._]|\bschema pawl\b/;

/** Words that are the same in every schema. */
const SAME = [
  /(?:current_setting|set_config)\('pawl\.\w+'/g, // settings of a session
  /\bpawl_(?:lock_|batch_|probe_|\$\{)/g, // channels and statements with a random or a private name
  /\bpawl_(?:body|handler|words|tenant|old|new)\b|_pawl_\$\{/g, // savepoints, and names in the user's tables
  /'pawl\.transaction'/g, // a mark in JavaScript
];

const found = [];

function look(place, text) {
  const sent = other.text(text.replaceAll('pawl.${', 'pawl.name{'));
  const left = SAME.reduce((rest, words) => rest.replace(words, ''), sent);
  for (const [line, number] of left.split('\n').map((each, index) => [each, index + 1])) {
    if (NAMED.test(line)) found.push(`${place}${number}: names the schema, and is not rewritten: ${line.trim()}`);
  }
}

const withoutComments = (text) => text.replace(/--.*$/gm, (comment) => (comment.includes("'") ? '' : ''));
for (const { line, sql, name = 'functions' } of [...schema.migrations, ...schema.functions]) {
  look(`sql/${line} ${name}:`, withoutComments(sql));
  const kept = [...sql.matchAll(/\bpawl\.(?=[a-z%])/g)].length;
  const settings = [...sql.matchAll(SAME[0])].length;
  const made =
    [...other.text(sql).matchAll(/\bother\.(?=[a-z%])/g)].length -
    [...sql.matchAll(/(?<![\w.])hashtextextended\(/g)].length;
  if (made !== kept - settings) found.push(`sql/${line} ${name}: ${kept - settings - made} names are not rewritten`);
}

const src = new URL('../src/', import.meta.url);
const HOLDS_SQL =
  /^engine\/postgres\/(?!embedded)|\/postgres(?:-[a-z-]+)?\.ts$|\/postgres\/|\/statements\.ts$|^http\/store\/|^lock\/rows\//;
const files = readdirSync(src, { recursive: true })
  .map((file) => file.replaceAll('\\', '/'))
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.gen.ts') && !/engine\/postgres\/schema\//.test(file));

for (const file of files) {
  const code = readFileSync(new URL(file, src), 'utf8')
    .replace(/\/\*[^]*?\*\//g, (comment) => comment.replace(/[^\n]/g, ' '))
    .replace(/(^|\s)\/\/ .*$/gm, '$1');
  if (HOLDS_SQL.test(file)) look(`src/${file}:`, code);
  // A raw text goes to the server unchanged, so it must take the name of the schema from the engine.
  if (!/client\.query\(/.test(code) || /^engine\/postgres\/(?:session|listen|embedded)\//.test(file)) continue;
  if (/\bpawl[._]/.test(code.replace(/statement\([^]*?\n?\);/g, '')))
    found.push(`src/${file}: sends a raw text, and names the schema`);
}

for (const line of found) console.error(line);
if (found.length > 0) {
  console.error('Write it as src/engine/postgres/schema/name.ts has it, or make it of engine.schema.name.');
  process.exit(1);
}
console.log(
  `schema: ${schema.migrations.length + schema.functions.length} texts of sql/ and ${files.length} files of src/ name it as they should`,
);
