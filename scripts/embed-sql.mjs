// Writes sql/<line>/<number>_<name>.sql into one TypeScript module, so that no file is looked for at run time.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';

const root = new URL('../', import.meta.url);
const lines = readdirSync(new URL('sql/', root), { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name)
  .sort();

const migrations = lines.flatMap((line) =>
  readdirSync(new URL(`sql/${line}/`, root))
    .filter((file) => /^\d{3}_[a-z0-9_]+\.sql$/.test(file))
    .sort()
    .map((file) => ({
      line,
      number: Number(file.slice(0, 3)),
      name: file.slice(4, -4),
      sql: readFileSync(new URL(`sql/${line}/${file}`, root), 'utf8'),
    })),
);

const target = new URL('src/engine/postgres/schema.gen.ts', root);
mkdirSync(new URL('.', target), { recursive: true });
writeFileSync(
  target,
  `// Written by scripts/embed-sql.mjs from sql/. Do not edit.
export interface Migration {
  readonly line: string;
  readonly number: number;
  readonly name: string;
  readonly sql: string;
}

export const migrations: readonly Migration[] = ${JSON.stringify(migrations, null, 2)};
`,
);
