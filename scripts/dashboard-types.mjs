// Writes the types of the dashboard from the schemas of the API's OpenAPI document, so that the two cannot differ.
// `node scripts/dashboard-types.mjs` writes them (after a build). `--check` fails if they are not current.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { SCHEMAS } from '../dist/http/schemas/index.js';

const place = fileURLToPath(new URL('../dashboard/src/data/types.gen.ts', import.meta.url));
const types = Object.entries(SCHEMAS).map(([name, schema]) => declare(name, schema));
const written = formatted(
  `// Written by scripts/dashboard-types.mjs from src/http/schemas.\n\n${types.join('\n\n')}\n`,
);

if (!process.argv.includes('--check')) writeFileSync(place, written);
else if (readFileSync(place, 'utf8') !== written) {
  console.error('dashboard/src/data/types.gen.ts is not what the API answers: run node scripts/dashboard-types.mjs');
  process.exit(1);
}
console.log(`types of the dashboard: ${types.length}, as the API answers`);

function declare(name, schema) {
  const type = typeOf(schema);
  return type.startsWith('{') ? `export interface ${name} ${type}` : `export type ${name} = ${type};`;
}

function typeOf(schema) {
  if (schema === true) return 'unknown';
  if (schema.$ref !== undefined) return schema.$ref.split('/').at(-1);
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ');
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  switch (schema.type) {
    case 'array':
      return `readonly (${typeOf(schema.items)})[]`;
    case 'object':
      return objectOf(schema);
    case 'integer':
      return 'number';
    case 'string':
    case 'number':
    case 'boolean':
    case 'null':
      return schema.type;
    default:
      throw new Error(`dashboard-types: what is ${JSON.stringify(schema)}?`);
  }
}

function objectOf({ properties, required = [], additionalProperties }) {
  if (properties === undefined) return `Readonly<Record<string, ${typeOf(additionalProperties ?? true)}>>`;
  const fields = Object.entries(properties).map(([name, schema]) => {
    const isRequired = required.includes(name);
    return `  readonly ${JSON.stringify(name)}${isRequired ? '' : '?'}: ${typeOf(schema)};`;
  });
  return `{\n${fields.join('\n')}\n}`;
}

function formatted(text) {
  const biome = fileURLToPath(new URL('../node_modules/.bin/biome', import.meta.url));
  return execFileSync(biome, ['check', '--write', `--stdin-file-path=${place}`], { input: text, encoding: 'utf8' });
}
