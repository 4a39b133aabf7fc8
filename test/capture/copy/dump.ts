import { type PostgresEngine, statement } from '../../../src/engine/postgres/index.ts';

const LOG = [
  'pawl.capture_definition',
  'pawl.capture_line',
  'pawl.capture_dirty',
  'pawl.capture_retry',
  'pawl.capture_sweep',
  'pawl.capture_change',
  'pawl.capture_known',
];
const SEQUENCES = [
  'pawl.capture_definition_id_seq',
  'pawl.capture_line_id_seq',
  'pawl.capture_dirty_id_seq',
  'pawl.capture_change_id_seq',
  'pawl.capture_version_seq',
];

/** Copies the rows of tables and the values of sequences, like pg_dump and psql, which not every machine has. */
export async function dumpInto(
  from: PostgresEngine,
  into: PostgresEngine,
  tables: readonly string[],
  sequences: readonly string[] = [],
): Promise<void> {
  const all = [...tables, ...LOG];
  const rows = await from.transaction(
    async (tx) => {
      const found: string[] = [];
      for (const table of all) {
        const text = `select coalesce(json_agg(to_json(t)), '[]')::text as rows from ${table} t`;
        const [row] = await tx.query<{ rows: string }>(statement('test', text, { prepare: false }));
        found.push(row?.rows ?? '[]');
      }
      return found;
    },
    { isolation: 'repeatable read' },
  );
  for (const [index, table] of all.entries()) {
    const text = `insert into ${table} overriding system value select * from json_populate_recordset(null::${table}, $1::json)`;
    await into.query(statement('test', text, { prepare: false }), [rows[index]]);
  }
  for (const name of [...SEQUENCES, ...sequences]) {
    const look = statement('test', `select last_value::text as last, is_called as called from ${name}`, {
      prepare: false,
    });
    const [at] = await from.query<{ last: string; called: boolean }>(look);
    await into.query(statement('test', `select setval('${name}', $1::text::bigint, $2)`, { prepare: false }), [
      at?.last,
      at?.called,
    ]);
  }
}
