import { isDeepStrictEqual } from 'node:util';
import { id } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import { type Definition, type Source, showTable } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';
import { comparePartitions, relationsText } from './partitions.ts';
import type { FunctionRow, InstalledState, RelationRow, TriggerRow } from './state.ts';
import {
  functionBody,
  functionName,
  functionText,
  type Operation,
  operationsOf,
  ownerOf,
  type Readers,
  settings,
  shapeOf,
  triggerName,
  triggerShape,
  triggerText,
  withoutRelations,
} from './trigger.ts';

/** A line as it should be. */
export interface Line {
  readonly id: number;
  readonly name: string;
  readonly guarantee: 'latest' | 'ordered';
  readonly definition: unknown;
}

export interface DesiredState {
  /** The name of Pawl's schema. */
  readonly schema: string;
  readonly id: number;
  readonly definition: Definition;
  readonly lines: readonly Line[];
}

/** The differences, in the order in which they have to be repaired. */
export function compare(wanted: DesiredState, state: InstalledState): Difference[] {
  return [
    ...compareRole(state),
    ...compareRows(wanted, state),
    ...compareTriggers(wanted, state),
    ...compareStrays(wanted, state),
  ];
}

function compareTriggers(wanted: DesiredState, state: InstalledState): Difference[] {
  return [
    ...comparePartitions(wanted.definition, state),
    ...wanted.definition.sources.flatMap((source) => compareSource(wanted, source, state)),
  ];
}

/**
 * Statements after which projections go through all entities again, since the triggers may have missed changes; none if they
 * missed nothing. `state` is compared with the declaration that was installed.
 */
export function markMissed(state: InstalledState): string[] {
  const { capture, lines } = state;
  if (capture === undefined) return [];
  const holes = compareTriggers({ ...capture, lines, schema: state.schema.name }, state);
  return holes.some(({ sql }) => sql.length > 0) ? markAll(state) : [];
}

/** Statements after which projections go through all entities again. */
export function markAll({ capture, schema: { name: schema } }: InstalledState): string[] {
  if (capture === undefined) return [];
  return [
    `insert into ${schema}.capture_dirty (line, source, key)
select l.id, -1, '' from ${schema}.capture_line l where l.capture = ${capture.id} and l.guarantee = 'latest'`,
  ];
}

function compareRole({ role, schema: of }: InstalledState): Difference[] {
  const found: Difference[] = [];
  const [schema, owner] = [of.name, ownerOf(of)];
  const differ = (problem: string, sql: string[]): void =>
    void found.push({ kind: 'role', object: owner, problem, sql });
  if (!role.exists) {
    differ('the role that owns the trigger functions is missing', [
      // Roles belong to the whole server: a session in another database may be creating this one at the same time. After the
      // wait for that session, this session may still have "no such role" in its cache until it opens a table: seen once, on
      // Postgres 14.
      `do $$ begin create role ${owner} nologin;
exception when duplicate_object or unique_violation then perform from pg_catalog.pg_roles; end $$`,
      ...(role.superuser ? [] : [`grant ${owner} to current_user`]),
    ]);
  }
  if (!role.granted) {
    differ('it may not insert into the log', [
      `grant usage on schema ${schema} to ${owner}`,
      `grant insert on ${schema}.capture_dirty, ${schema}.capture_change to ${owner}`,
      `grant usage on sequence ${schema}.capture_change_id_seq to ${owner}`,
    ]);
  }
  if (role.excess !== null) {
    differ(`it may do more than insert: ${role.excess.replace(/^, /, '')}`, [
      `alter role ${owner} nologin nosuperuser`,
      `revoke select, update, delete, truncate on ${schema}.capture_dirty, ${schema}.capture_change from ${owner}`,
    ]);
  }
  if (!role.cache_one) {
    differ('a sequence of the log hands out numbers in advance (CACHE), so that they would be out of order', [
      `alter sequence ${schema}.capture_dirty_id_seq cache 1`,
      `alter sequence ${schema}.capture_change_id_seq cache 1`,
    ]);
  }
  return found;
}

function compareRows({ id: number, definition, lines, schema }: DesiredState, state: InstalledState): Difference[] {
  const found: Difference[] = [];
  const json = literal(JSON.stringify(definition));
  if (state.capture === undefined) {
    const values = `${number}, ${literal(definition.entity)}, ${json}, ${relationsText(definition, schema)}`;
    found.push({
      kind: 'capture',
      object: definition.entity,
      problem: 'it is not installed',
      sql: [`insert into ${schema}.capture_definition (id, entity, definition, relations) values (${values})`],
    });
  } else if (!same(state.capture.definition, definition)) {
    found.push({
      kind: 'capture',
      object: definition.entity,
      problem: 'it was installed with another declaration',
      sql: [
        `update ${schema}.capture_definition set definition = ${json}, relations = ${relationsText(definition, schema)}, applied_at = clock_timestamp() where id = ${number}`,
      ],
    });
  }
  for (const line of lines) found.push(...compareLine(number, line, state));
  return found;
}

function compareLine(capture: number, line: Line, state: InstalledState): Difference[] {
  const schema = state.schema.name;
  const row = state.lines.find(({ name }) => name === line.name);
  const json = literal(JSON.stringify(line.definition));
  if (row === undefined) {
    const values = [line.id, capture, literal(line.name), literal(line.guarantee), json].join(', ');
    const sql = `insert into ${schema}.capture_line (id, capture, name, guarantee, definition, database) values (${values}, ${schema}.capture_database())`;
    return [{ kind: 'line', object: line.name, problem: 'nothing is captured for it', sql: [sql] }];
  }
  if (same(row.definition, line.definition)) return [];
  const sql = `update ${schema}.capture_line set definition = ${json} where id = ${line.id}`;
  return [{ kind: 'line', object: line.name, problem: 'it was installed with other options', sql: [sql] }];
}

function compareSource(wanted: DesiredState, source: Source, state: InstalledState): Difference[] {
  const relations = state.relations.filter((relation) => relation.source === source.number);
  const own = relations.find((relation) => !relation.is_leaf_of_source);
  if (own === undefined) return [missing(source, 'the table is gone, or was renamed')];
  const columns = [source.column, ...(source.history?.columns.map(({ name }) => name) ?? [])];
  const gone = columns.filter((column) => !own.columns.includes(column));
  if (gone.length > 0) return [missing(source, `it has no column ${gone.join(', ')} any more`)];
  const readers = readersOf(wanted, source, own.oid);
  const { entity } = wanted.definition;
  return operationsOf(source, readers).flatMap((operation) => {
    const compareOn = (relation: RelationRow): Difference[] =>
      compareTrigger(entity, source, operation, { relation, readers, triggers: state.triggers });
    const original = compareOn(own);
    // Partitions have copies of a row trigger, which are created and dropped with the original.
    const partitions = relations.filter((relation) => relation !== own);
    const isMadeAnew = original.length > 0 && operation !== 'truncate';
    return [
      ...compareFunction(entity, source, operation, { readers, state }),
      ...original,
      ...(isMadeAnew ? [] : partitions.flatMap(compareOn)),
    ];
  });
}

function missing(source: Source, problem: string): Difference {
  return {
    kind: 'table',
    object: showTable(source),
    problem: `${problem}; change the declaration and apply it`,
    sql: [],
  };
}

function readersOf({ id: capture, lines, schema }: DesiredState, source: Source, relation = ''): Readers {
  const latest = lines.filter(({ guarantee }) => guarantee === 'latest').map((line) => line.id);
  return {
    schema,
    latest,
    capture,
    changes: source.history !== undefined || lines.some(({ guarantee }) => guarantee === 'ordered'),
    relation,
  };
}

function compareFunction(
  entity: string,
  source: Source,
  operation: Operation,
  { readers, state }: { readers: Readers; state: InstalledState },
): Difference[] {
  const name = functionName(entity, source, operation);
  const row = state.functions.find((candidate) => candidate.name === name);
  const owner = ownerOf(state.schema);
  const problem =
    row === undefined ? 'it is missing' : wrongFunction(row, owner, source, { operation, readers, state });
  if (problem === undefined) return [];
  const { schema } = readers;
  const owned = [
    `alter function ${schema}.${name}() owner to ${owner}`,
    `revoke execute on function ${schema}.${name}() from public`,
  ];
  // A new owner of a function needs the right to create in the schema, unless a superuser changes the owner.
  const lent = state.role.superuser
    ? owned
    : [`grant create on schema ${schema} to ${owner}`, ...owned, `revoke create on schema ${schema} from ${owner}`];
  return [
    {
      kind: 'function',
      object: `${schema}.${name}`,
      problem,
      sql: [functionText(entity, source, operation, readers), ...lent],
    },
  ];
}

function wrongFunction(
  row: FunctionRow,
  owner: string,
  source: Source,
  { operation, readers, state }: { operation: Operation; readers: Readers; state: InstalledState },
): string | undefined {
  const isRestored = state.capture?.tables !== undefined && state.capture.tables?.database !== state.tables.database;
  const comparable = isRestored ? withoutRelations : (body: string): string => body;
  if (comparable(row.body) !== comparable(functionBody(source, operation, readers)))
    return 'it differs from the declaration';
  if (!row.definer) return 'it runs as the role that writes, instead of as its owner';
  const pinned = settings(source, operation, readers).map(([name, value]) => `${name}=${value}`);
  // With quote_all_identifiers, the catalog shows the path in quotes.
  const config = row.config.map((each) => (each === 'search_path="pg_catalog", "pg_temp"' ? pinned[0] : each));
  if (!isDeepStrictEqual(config, pinned))
    return `it does not run with ${pinned.join('; ') || 'the settings of the session'}`;
  if (row.owner !== owner) return `it belongs to ${row.owner}`;
  return row.is_public ? 'every role may execute it' : undefined;
}

function compareTrigger(
  entity: string,
  source: Source,
  operation: Operation,
  { relation, readers, triggers }: { relation: RelationRow; readers: Readers; triggers: readonly TriggerRow[] },
): Difference[] {
  const name = triggerName(readers.schema, entity, operation);
  const row = triggers.find(
    (one) => one.schema === relation.schema && one.table === relation.name && one.name === name,
  );
  const isRight =
    row !== undefined &&
    shapeOf(row.definition, readers.schema) === triggerShape(entity, source, operation, { readers, on: relation });
  const on = id(relation.schema, relation.name);
  const differ = (problem: string, sql: string[]): Difference[] => [
    { kind: 'trigger', object: `${showTable(relation)}: ${operation}`, problem, sql },
  ];
  const isCopy = relation.is_leaf_of_source && operation !== 'truncate';
  if (isRight) {
    return row.enabled === 'A'
      ? []
      : differ('it does not fire always', [`alter table ${on} enable always trigger ${id(name)}`]);
  }
  if (isCopy) {
    return row === undefined ? [] : differ('the copy of the trigger differs from the declaration', []);
  }
  const drop = row === undefined ? [] : [`drop trigger ${id(name)} on ${on}`];
  return differ(row === undefined ? 'the trigger is missing' : 'the trigger differs from the declaration', [
    ...drop,
    ...triggerText(entity, source, operation, { readers, on: relation }),
  ]);
}

/**
 * Finds functions, with their triggers, of tables that are no longer captured, or captured in another way; and triggers that
 * the declaration does not need.
 */
function compareStrays(wanted: DesiredState, state: InstalledState): Difference[] {
  const { entity, sources } = wanted.definition;
  const { schema: own } = wanted;
  const names = new Set(
    sources.flatMap((source) =>
      operationsOf(source, readersOf(wanted, source)).map((operation) => functionName(entity, source, operation)),
    ),
  );
  const functions = state.functions.filter(({ name }) => !names.has(name));
  const triggers = state.triggers.filter(
    ({ schema, table }) => !state.relations.some((relation) => relation.schema === schema && relation.name === table),
  );
  return [
    ...triggers.map(({ schema, table, name }) => ({
      kind: 'trigger',
      object: `${showTable({ schema, name: table })}: ${name}`,
      problem: 'the table is not captured, or no longer captured',
      sql: [`drop trigger if exists ${id(name)} on ${id(schema, table)}`],
    })),
    ...functions.map(({ name }) => ({
      kind: 'function',
      object: `${own}.${name}`,
      problem: 'it is no longer needed',
      sql: [`drop function ${own}.${name}() cascade`],
    })),
  ];
}

/** Statements that remove a capture, whatever state it is in. */
export function detachText(entity: string, state: InstalledState): string[] {
  const schema = state.schema.name;
  const capture = state.capture?.id ?? 0;
  const ofLines = `where line in (select l.id from ${schema}.capture_line l where l.capture = ${capture})`;
  return [
    ...state.functions.map(({ name }) => `drop function ${schema}.${name}() cascade`),
    `delete from ${schema}.capture_sweep ${ofLines}`,
    `delete from ${schema}.capture_retry ${ofLines}`,
    `delete from ${schema}.capture_dirty ${ofLines}`,
    `delete from ${schema}.capture_known ${ofLines}`,
    `delete from ${schema}.capture_change where capture = ${capture}`,
    `delete from ${schema}.capture_line where capture = ${capture}`,
    `delete from ${schema}.capture_definition where entity = ${literal(entity)}`,
  ];
}

/** Compares a stored declaration with a new one as the database will return it: as JSON. */
export function same(stored: unknown, wanted: unknown): boolean {
  return isDeepStrictEqual(stored, JSON.parse(JSON.stringify(wanted)));
}
