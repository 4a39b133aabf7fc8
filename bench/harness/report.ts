import type { Outcome } from './figures.ts';

/** Which bench ran, and on which versions. */
export interface Run {
  readonly bench: string;
  readonly node: string;
  /** Undefined if the bench runs without Postgres. */
  readonly postgres: string | undefined;
}

/** The outcome as one line of JSON. */
export function asJson(run: Run, { figures, bars }: Outcome): string {
  const plain = Object.entries(bars).map(([name, { value, bar, holds }]) => [name, { value, bar, holds }]);
  return JSON.stringify({ ...run, figures, bars: Object.fromEntries(plain) });
}

/** The outcome as two tables. */
export function asTable({ bench, node, postgres }: Run, { figures, bars }: Outcome): string {
  const measured = Object.entries(figures).map(([name, { unit, median, samples }]) => [
    name,
    `${median}`,
    unit,
    samples.join(' '),
  ]);
  const promised = Object.entries(bars).map(([name, { value, bar, holds, rule }]) => [
    name,
    `${value}`,
    `${rule} ${bar}`,
    holds ? 'holds' : 'DOES NOT HOLD',
  ]);
  return [
    `${bench} (Node ${node}${postgres === undefined ? '' : `, Postgres ${postgres}`})`,
    '',
    ...columns([['figure', 'median', 'unit', 'samples'], ...measured]),
    '',
    ...columns([['bar', 'value', 'wanted', ''], ...promised]),
  ].join('\n');
}

function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
