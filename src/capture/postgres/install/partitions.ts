import { id } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Definition } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';
import type { State, Tables } from './state.ts';

/**
 * Partitions that came with rows or went with rows: no statement on a row tells of them. So does a table that stands where another
 * one stood.
 */
export function comparePartitions(definition: Definition, { capture, tables: now }: State): Difference[] {
  const before = capture?.tables ?? undefined;
  if (before === undefined) return [];
  const names = new Set([...Object.keys(before.tables), ...Object.keys(now.tables)]);
  const found = [...names].filter((name) => !isSame(name, before, now));
  if (found.length === 0) return [];
  const sql = `update pawl.capture_definition set relations = ${relationsText(definition)} where entity = ${literal(definition.entity)}`;
  return [
    {
      kind: 'partition',
      object: found
        .map((name) => name.replace(/^public\./, ''))
        .toSorted()
        .join(', '),
      problem: 'came, went or is another one since apply(), with rows that were not noted',
      sql: [sql],
    },
  ];
}

/** What these tables are when the statement runs. */
export function relationsText({ sources }: Definition): string {
  const names = sources.map(({ schema, name }) => literal(id(schema, name)));
  return `pawl.capture_relations(array[${names.join(', ')}]::text[])`;
}

/** Where a dump was restored, the same tables have other numbers. */
function isSame(name: string, before: Tables, now: Tables): boolean {
  const [old, present] = [before.tables[name], now.tables[name]];
  if (old === undefined || present === undefined) return false;
  return old === present || before.database !== now.database;
}
