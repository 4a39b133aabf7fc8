import { SchemaMismatch } from '../../../base/errors.ts';
import type { FunctionSet, Migration, Schema } from '../schema.gen.ts';
import { checksum, type FunctionsRow, type MigrationRow } from './sql.ts';

/** The files and functions that were applied to the database, by its own records. */
export interface AppliedSchema {
  readonly migrations: readonly MigrationRow[];
  readonly functions: readonly FunctionsRow[];
}

/** How the schema in the database compares with the one of this version. */
export interface SchemaComparison {
  readonly pending: readonly Migration[];
  readonly outdated: readonly FunctionSet[];
  /** What a newer version applied, in words. */
  readonly newer: string | undefined;
  /** What a person edited, in words. */
  readonly changed: string | undefined;
}

export function compare(applied: AppliedSchema, known: Schema): SchemaComparison {
  return {
    pending: known.migrations.filter((migration) => find(applied.migrations, migration) === undefined),
    outdated: known.functions.filter((set) => applied.functions.find(isOf(set.line))?.checksum !== checksum(set.sql)),
    newer: newerFile(applied, known) ?? newerFunctions(applied, known),
    changed: changedFile(applied, known),
  };
}

/** The part of `wanted` that is not applied yet. @throws SchemaMismatch if the database does not fit `known` */
export function outstanding(
  applied: AppliedSchema,
  known: Schema,
  wanted: Schema,
): Pick<SchemaComparison, 'pending' | 'outdated'> {
  const { newer, changed } = compare(applied, known);
  const problem = changed ?? newer;
  if (problem !== undefined) {
    throw new SchemaMismatch(problem);
  }
  return compare(applied, wanted);
}

export function label({ line, number, name }: Pick<Migration, 'line' | 'number' | 'name'>): string {
  return `migration ${line}/${String(number).padStart(3, '0')}_${name}`;
}

function newerFile(applied: AppliedSchema, known: Schema): string | undefined {
  const unknown = applied.migrations.find((row) => find(known.migrations, row) === undefined);
  return unknown === undefined
    ? undefined
    : `the database has ${label(unknown)}, which this version of Pawl does not know: ${UPGRADE}`;
}

function newerFunctions({ functions }: AppliedSchema, { version }: Schema): string | undefined {
  const newer = functions.find((row) => isNewer(row.version, version));
  return newer === undefined
    ? undefined
    : `the functions of "${newer.line}" in the database are those of pawl ${newer.version}, and this is ${version}: ${UPGRADE}`;
}

const UPGRADE = 'the database is newer than the code; upgrade pawl in this process';

function changedFile(applied: AppliedSchema, known: Schema): string | undefined {
  const changed = known.migrations.find((migration) => {
    const row = find(applied.migrations, migration);
    return row !== undefined && row.checksum !== checksum(migration.sql);
  });
  return changed === undefined
    ? undefined
    : `${label(changed)} differs from what was applied to the database: a released migration must not be edited; ` +
        'restore the file, or install the version of pawl that migrated this database';
}

/** Compares major, minor and patch; later parts of a version do not count. */
function isNewer(version: string, other: string): boolean {
  const [one, two] = [version, other].map((text) => text.split(/[.+-]/, 3).map(Number));
  const difference = one?.map((part, index) => part - (two?.[index] ?? 0)).find((part) => part !== 0);
  return difference !== undefined && difference > 0;
}

function isOf(line: string): (row: { readonly line: string }) => boolean {
  return (row) => row.line === line;
}

function find<T extends { readonly line: string; readonly number: number }>(
  list: readonly T[],
  wanted: { readonly line: string; readonly number: number },
): T | undefined {
  return list.find((entry) => entry.line === wanted.line && entry.number === wanted.number);
}
