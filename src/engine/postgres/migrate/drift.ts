import type { SchemaName } from '../schema/name.ts';
import { id } from '../sql.ts';
import { BEGIN_READING, type DriftKind, type DriftRow, IS_NOTED, READ_DRIFT } from './catalog.ts';
import type { MigrationTarget } from './migrate.ts';

/** One object of Pawl's schema that differs from what the migrations have made. */
export interface Drift {
  readonly kind: DriftKind;
  /** Such as `queue_job`, `queue_job.payload`, or `queue_wake(int2)`. */
  readonly name: string;
  /** What differs, in words. */
  readonly problem: string;
  /** How to mend it: SQL for the owner of the schema, which says so if a migration has to follow. */
  readonly mend: string;
}

/**
 * Compares the schema with the notes of the migrations that made it. Changes nothing, and needs only the right to read the
 * tables. Empty if nothing was ever noted.
 */
export async function drift({ session, schema }: Pick<MigrationTarget, 'session' | 'schema'>): Promise<Drift[]> {
  const rows = await session(async (one) => {
    await one.run(BEGIN_READING);
    try {
      const [known] = await one.query<{ noted: boolean }>(IS_NOTED);
      return known?.noted === true ? await one.query<DriftRow>(READ_DRIFT) : [];
    } finally {
      await one.run('rollback');
    }
  });
  return withoutParts(rows).map((row) => describe(row, schema));
}

/** A table or type that is missing or unknown stands for its parts, and a constraint for its index. */
function withoutParts(rows: readonly DriftRow[]): DriftRow[] {
  const isWhole = ({ kind, wanted, found }: DriftRow): boolean =>
    ['table', 'type'].includes(kind) && (wanted === null || found === null);
  const whole = new Set(rows.filter(isWhole).map(({ name }) => name));
  const named = new Set(rows.filter(({ kind }) => kind === 'constraint').map(({ name }) => name));
  return rows.filter(({ kind, name, relation }) => {
    if (kind !== 'table' && kind !== 'type' && relation !== null && whole.has(relation)) return false;
    return kind !== 'index' || !named.has(`${relation}.${name}`);
  });
}

function describe(row: DriftRow, schema: SchemaName): Drift {
  const { kind, name, wanted, found } = row;
  const mend = mendOf(row, schema.name);
  const told = (problem: string): Drift => ({ kind, name, problem, mend });
  if (found === null) return told('it is missing');
  if (wanted === null) return told('Pawl has not made it');
  if (!row.sound) return told(kind === 'trigger' ? 'it is disabled' : 'it is not valid');
  if (kind === 'view' || kind === 'function') return told('it was changed');
  return told(`it was changed: it is "${found}", and was "${wanted}"`);
}

function mendOf(row: DriftRow, schema: string): string {
  const { kind, name, relation, line, wanted, found } = row;
  const own = name.slice(name.indexOf('.') + 1);
  const on = `alter table ${id(schema, relation ?? name)}`;
  switch (kind) {
    case 'table':
    case 'sequence':
    case 'type':
      if (wanted === null) return `drop ${kind} ${id(schema, name)}`;
      return `restore it from a backup${found === null ? '' : `, or make it what it was: ${wanted || 'an ordinary table'}`}`;
    case 'column':
      return mendColumn(`${on} `, id(own), row);
    case 'default':
      return `${on} alter column ${id(own)} ${wanted === null ? 'drop default' : `set default ${wanted}`}`;
    case 'index':
      if (wanted === null) return `drop index ${id(schema, name)}`;
      if (found !== wanted) return `${found === null ? '' : `drop index ${id(schema, name)}; `}${wanted}`;
      return `reindex index ${id(schema, name)}`;
    case 'constraint': {
      const drop = found === null ? '' : `${on} drop constraint ${id(own)}`;
      if (wanted === null) return drop;
      if (wanted === found) return `${on} validate constraint ${id(own)}`;
      return [drop, `${on} add constraint ${id(own)} ${wanted}`].filter(Boolean).join('; ');
    }
    case 'trigger':
      if (wanted === found) return `${on} enable trigger ${id(own)}`;
      return [
        ...(found === null ? [] : [`drop trigger ${id(own)} on ${id(schema, relation ?? '')}`]),
        ...(wanted === null ? [] : [wanted]),
      ].join('; ');
    case 'function':
    case 'view':
      return mendRepeatable(row, schema, line);
  }
}

function mendColumn(table: string, column: string, { wanted, found }: DriftRow): string {
  if (wanted === null) return `${table}drop column ${column}`;
  if (found === null) return `${table}add column ${column} ${wanted}`;
  const [was, is] = [wanted, found].map((text) => / not null\b/.test(text));
  const [typeWas, typeIs] = [wanted, found].map((text) => text.replace(/ (?:not null|generated).*/, ''));
  return [
    ...(typeWas === typeIs ? [] : [`${table}alter column ${column} type ${typeWas}`]),
    ...(was === is ? [] : [`${table}alter column ${column} ${was ? 'set' : 'drop'} not null`]),
    ...(typeWas === typeIs && was === is ? [`${table}alter column ${column} … as it was: ${wanted}`] : []),
  ].join('; ');
}

/** The next migration makes functions and views again once the checksum of their line is removed. */
function mendRepeatable({ kind, name, wanted, found }: DriftRow, schema: string, line: string | null): string {
  const named = kind === 'view' ? id(schema, name) : name.replace(/^[^(]+/, (own) => id(schema, own));
  if (wanted === null) return `drop ${kind} ${named}`;
  const again = `update ${id(schema, 'migration_functions')} set checksum = null where line = '${line}'; then: pawl migrate`;
  return kind === 'view' && found !== null ? `drop view ${named}; ${again}` : again;
}
