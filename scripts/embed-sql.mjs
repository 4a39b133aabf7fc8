// Writes sql/ into one TypeScript module, so that programs need no SQL files at run time. Each sql/<line>/tables/<number>_<name>.sql is a text.
// The other files of sql/<line>/ have the functions and views, and are one text for each line. Views come last, because they call functions.
// Names of planner settings are replaced by the settings: see sql/planner.sql. All is compressed from 0.77 to 0.24 MB, because the size of an
// installation is limited.
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const root = new URL('../', import.meta.url);
const lines = readdirSync(new URL('sql/', root), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

const read = (path) => readFileSync(new URL(`sql/${path}`, root), 'utf8');

const presets = new Map(
  [...read('planner.sql').matchAll(/^-- planner: (\w+)\n(?:--.*\n)*(set .*)$/gm)].map(([, name, settings]) => [
    name,
    settings,
  ]),
);

const withPresets = (text) =>
  text.replace(/\/\* planner: (\w+) \*\//g, (_, name) => {
    const settings = presets.get(name);
    if (settings === undefined) throw new Error(`sql/planner.sql has no "${name}"`);
    return settings;
  });

const migrations = lines.flatMap((line) =>
  readdirSync(new URL(`sql/${line}/tables/`, root))
    .filter((file) => /^\d{3}_[a-z0-9_]+\.sql$/.test(file))
    .sort()
    .map((file) => ({
      line,
      number: Number(file.slice(0, 3)),
      name: file.slice(4, -4),
      sql: read(`${line}/tables/${file}`),
    })),
);

const functions = lines.map((line) => ({
  line,
  sql: readdirSync(new URL(`sql/${line}/`, root), { recursive: true, encoding: 'utf8' })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => /^(?!tables\/)[a-z0-9_/]+\.sql$/.test(file))
    .sort((one, other) => Number(one === 'views.sql') - Number(other === 'views.sql') || (one < other ? -1 : 1))
    .map((file) => withPresets(read(`${line}/${file}`)))
    .join('\n'),
}));

const { version } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'));

const target = new URL('src/engine/postgres/schema.gen.ts', root);
mkdirSync(new URL('.', target), { recursive: true });
// Writes a file next to it and renames that file. So a reader gets the old module or the new one, and never half of one.
const draft = new URL('schema.gen.draft.ts', target);
writeFileSync(
  draft,
  `// Written by scripts/embed-sql.mjs from sql/. Do not edit.
import { gunzipSync } from 'node:zlib';

/** One numbered file of a line: tables, types, indexes, moves of data. Applied once. */
export interface Migration {
  readonly line: string;
  readonly number: number;
  readonly name: string;
  readonly sql: string;
}

/** All functions and views of a line, as they are now. Applied again whenever they differ from those in the database. */
export interface FunctionSet {
  readonly line: string;
  readonly sql: string;
}

export interface Schema {
  /** Of the package. */
  readonly version: string;
  readonly migrations: readonly Migration[];
  readonly functions: readonly FunctionSet[];
}

/** JSON, packed. \`pawl migrate plan\` prints the texts. */
const PACKED =
  '${gzipSync(JSON.stringify({ version, migrations, functions }), { level: 9 }).toString('base64')}';

export const schema: Schema = JSON.parse(gunzipSync(Buffer.from(PACKED, 'base64')).toString());
`,
);
renameSync(draft, target);
