import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

// The conventions of CONTRIBUTING, in the declarations that users get: `npm run build` before.

const root = fileURLToPath(new URL('..', import.meta.url));

interface Field {
  /** `Locks.query`, for people. */
  readonly name: string;
  readonly field: string;
  readonly isOptional: boolean;
  readonly type: string;
}

/** The fields of all interfaces and classes whose names can be imported. */
function publicFields(): Field[] {
  const entries = declaredEntries();
  const texts = new Map<string, string>();
  for (const entry of entries) readWithImports(entry, texts);
  const names = new Set(entries.flatMap((entry) => exportedNames(texts.get(entry) ?? '')));
  for (const base of basesOf(names, [...texts.values()].join('\n'))) names.add(base);
  return [...texts.values()].flatMap((text) =>
    [...text.matchAll(/^export (?:interface|declare class) (\w+)[^{]*\{\n([^]*?)^\}/gm)]
      .filter(([, name = '']) => names.has(name))
      .flatMap(([, name = '', body = '']) => fieldsOf(name, body)),
  );
}

function declaredEntries(): string[] {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return Object.values<string | { types: string }>(exports).flatMap((entry) =>
    typeof entry === 'string' ? [] : [join(root, entry.types)],
  );
}

function readWithImports(file: string, texts: Map<string, string>): void {
  if (texts.has(file) || !existsSync(file)) return;
  const text = readFileSync(file, 'utf8');
  texts.set(file, text);
  for (const [, path = ''] of text.matchAll(/from '(\.[^']+)'/g)) {
    readWithImports(join(dirname(file), path.replace(/\.[jt]s$/, '.d.ts')), texts);
  }
}

function exportedNames(text: string): string[] {
  const lists = [...text.matchAll(/export (?:type )?\{([^}]*)\}/g)].flatMap(([, list = '']) => list.split(','));
  const own = [...text.matchAll(/export (?:declare )?(?:interface|class) (\w+)/g)].map(([, name = '']) => name);
  return [
    ...own,
    ...lists.map((item) =>
      item
        .trim()
        .replace(/^type /, '')
        .replace(/ as .*/, ''),
    ),
  ];
}

/** The classes from which these inherit fields. */
function basesOf(names: ReadonlySet<string>, text: string): string[] {
  const bases = new Map(
    [...text.matchAll(/^export declare class (\w+)[^{\n]* extends (\w+)(?:<[^{\n]*)? \{$/gm)].map(
      ([, name = '', base = '']) => [name, base],
    ),
  );
  const above = (name: string): string[] => {
    const base = bases.get(name);
    return base === undefined ? [] : [base, ...above(base)];
  };
  return [...names].flatMap(above);
}

function fieldsOf(name: string, body: string): Field[] {
  return [...body.matchAll(/^ {4}(?:readonly )?(\w+)(\??): ([^\n]*);$/gm)].map(
    ([, field = '', mark = '', type = '']) => ({ name: `${name}.${field}`, field, isOptional: mark === '?', type }),
  );
}

const fields = publicFields();

test('there are declarations to look at', () => {
  const names = fields.map(({ name }) => name);
  expect(names).toEqual(
    expect.arrayContaining([
      'EnqueueOptions.tx',
      'Holder.since',
      'FileVersion.author',
      'ActorRecord.pausedAt',
      'TurnFacts.enteredAt',
    ]),
  );
});

test('what may be left out may be undefined', () => {
  // Of actors' types, for the compiler alone; and of a name that the SDK's requests share with a version of a file.
  const isInternal = ({ name }: Field): boolean => /^ActorHandle\.semaphores$|^Written\.[A-Z]/.test(name);
  const strict = fields.filter(
    (field) => field.isOptional && field.type !== 'unknown' && !/\bundefined\b/.test(field.type) && !isInternal(field),
  );
  expect(strict.map(({ name }) => name)).toEqual([]);
});

test('times are Dates', () => {
  // In the words of a search they are text, as people write them.
  const times = fields.filter(
    ({ name, field }) => /^at$|(?:At|Until|[sS]ince)$/.test(field) && !name.startsWith('SearchQuery.'),
  );
  expect(times.length).toBeGreaterThan(40);
  const others = times.filter(({ type }) => !/^Date(?: \| null)?(?: \| undefined)?$/.test(type));
  expect(others.map(({ name, type }) => `${name}: ${type}`)).toEqual([]);
});

test('a transaction is the option tx', () => {
  const others = fields.filter(
    ({ field, type }) => field === 'tx' && !/^(?:Open)?Transaction(?: \| undefined)?$/.test(type),
  );
  expect(others.map(({ name }) => name)).toEqual([]);
});

test('what a record does not have is null', () => {
  // What is no record: errors, the parts of a declaration, checked options, and what a store of the user's is asked.
  const isRecord = ({ name }: Field): boolean =>
    !/^(?:InvalidInput|DuplicateKey|DatabaseError|LockTimeout|DeadlockStep|ActorDefinition|Outcome|State|\w+Filter|DeleteCall|ListPage)\./.test(
      name,
    );
  const found = fields.filter((field) => !field.isOptional && field.type.endsWith('| undefined') && isRecord(field));
  expect(found.map(({ name, type }) => `${name}: ${type}`)).toEqual([]);
});
