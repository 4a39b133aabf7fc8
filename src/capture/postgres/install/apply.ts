import { type PostgresEngine, type SchemaName, statement } from '../../../engine/postgres/index.ts';
import type { Definition } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';
import { barrier, LOCK_TIMEOUT } from './barrier.ts';
import { detachText } from './plan.ts';
import { readState } from './state.ts';

/** From here on, other changes of this capture wait. */
function latch(entity: string, schema: SchemaName): string {
  return [
    `set local lock_timeout = '${LOCK_TIMEOUT}'`,
    `select pg_advisory_xact_lock(${schema.text('hashtextextended(')}${literal(entity)}, (-1000000)::bigint))`,
  ].join(';\n');
}

/** From here on, other changes of this capture wait, and so do writers to its tables. */
export function gate({ entity, sources }: Definition, schema: SchemaName): string {
  return `${latch(entity, schema)};\n${barrier(sources, 'share row exclusive')}`;
}

/** The statements of a plan as one transaction, fit for psql. */
export function mend(definition: Definition, schema: SchemaName, statements: readonly string[]): string {
  if (statements.length === 0) return '';
  const all = ['begin', gate(definition, schema), ...statements, 'commit'];
  return `${all.join(';\n')};\n`;
}

/** Statements for another database, as SQL comments: psql is connected to one database only. */
export function remark(elsewhere: readonly { readonly object: string; readonly sql: readonly string[] }[]): string {
  return elsewhere
    .flatMap(({ object, sql }) => [`in the database of ${object}:`, ...sql.map((text) => `${text};`)])
    .flatMap((text) => text.split('\n'))
    .map((line) => `-- ${line}\n`)
    .join('');
}

const DEFINITION = statement(
  'capture.own_definition',
  'select definition from pawl.capture_definition where entity = $1::text',
);

/** Removes a capture; does nothing if there is none. */
export async function detach(engine: PostgresEngine, entity: string): Promise<void> {
  await engine.transaction(async (tx) => {
    // Before anything is read: an apply() that is under way adds functions and lines.
    await tx.client.query({ text: latch(entity, tx.schema) });
    const [row] = await tx.query<{ definition: Definition }>(DEFINITION, [entity]);
    const state = await readState(tx, row?.definition ?? { entity, sources: [] });
    if (state.capture === undefined && state.functions.length === 0) return;
    const tables = state.relations.filter((relation) => !relation.is_leaf_of_source);
    const gate = tables.length === 0 ? [] : [barrier(tables, 'access exclusive')];
    await tx.client.query({ text: [...gate, ...detachText(entity, state)].join(';\n') });
  });
}
