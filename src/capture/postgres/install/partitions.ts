import { id } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Definition } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';
import type { InstalledState, Tables } from './state.ts';

/**
 * Finds partitions that were attached or detached with rows in them: no trigger fires for that. The same is true of a table
 * that replaced another one under its name.
 */
export function comparePartitions(
  definition: Definition,
  { capture, tables: now, schema }: InstalledState,
): Difference[] {
  const before = capture?.tables ?? undefined;
  if (before === undefined) return [];
  const names = new Set([...Object.keys(before.tables), ...Object.keys(now.tables)]);
  const found = [...names].filter((name) => !isSame(name, before, now));
  if (found.length === 0) return [];
  const sql = `update ${schema.name}.capture_definition set relations = ${relationsText(definition, schema.name)} where entity = ${literal(definition.entity)}`;
  return [
    {
      kind: 'partition',
      object: found
        .map((name) => name.replace(/^public\./, ''))
        .toSorted()
        .join(', '),
      problem: 'was attached, detached or replaced since apply(), and its rows were not captured',
      sql: [sql],
    },
  ];
}

/** SQL for the tables and partitions of the sources at the time of the statement. */
export function relationsText({ sources }: Definition, schema: string): string {
  const names = sources.map(({ schema, name }) => literal(id(schema, name)));
  return `${schema}.capture_relations(array[${names.join(', ')}]::text[])`;
}

/** After a dump was restored, the same tables have other oids. */
function isSame(name: string, before: Tables, now: Tables): boolean {
  const [old, present] = [before.tables[name], now.tables[name]];
  if (old === undefined || present === undefined) return false;
  return old === present || before.database !== now.database;
}
