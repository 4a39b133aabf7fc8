/** What one cell holds. An empty string is an empty cell: a spreadsheet knows no difference. */
export type Cell = string | number | boolean | null;
export type Row = readonly Cell[];

/** What is asked of a spreadsheet that exists: rows to put in place of those with the same first cell, and rows to remove. */
export interface Change {
  readonly rows: readonly Row[];
  readonly remove: readonly string[];
}

/** Why rows cannot be taken, and which part of them. */
export interface Flaw {
  readonly field: string;
  readonly message: string;
}

/** A new row goes to the end; one that is there keeps its place. */
export function applyChange(rows: readonly Row[], change: Change): Row[] {
  const byName = new Map(rows.map((row) => [row[0], row]));
  for (const name of change.remove) byName.delete(name);
  for (const row of change.rows) byName.set(row[0], row);
  return [...byName.values()];
}

/** Each row is as wide as the sheet, and named by its first cell, which no other row of the same request has. */
export function findFlaw(columns: readonly string[], rows: readonly Row[]): Flaw | undefined {
  const names = new Set<Cell | undefined>();
  for (const [index, row] of rows.entries()) {
    const field = `rows.${index}`;
    if (row.length !== columns.length) {
      return { field, message: `the row has ${row.length} cells, but the sheet has ${columns.length} columns` };
    }
    const name = row[0];
    if (typeof name !== 'string') {
      return { field: `${field}.0`, message: 'the first cell names the row: it must be a text that is not empty' };
    }
    if (names.has(name)) return { field: `${field}.0`, message: `"${name}" names two rows` };
    names.add(name);
  }
  return undefined;
}
