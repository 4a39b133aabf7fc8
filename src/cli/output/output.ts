import { ACTIVE } from '../../base/logger.ts';
import { showTime, type TimeStyle } from './moment.ts';
import { type Colour, painter } from './reporter.ts';
import { type Column, printable, tableLines } from './table.ts';

export type Format = 'table' | 'json' | 'jsonl' | 'plain';

export const FORMATS: readonly Format[] = ['table', 'json', 'jsonl', 'plain'];

/** A column, and the function that reads its value from a row: text, numbers, dates, null; any other value is shown as JSON. */
export interface Field<T> extends Column {
  readonly of: (row: T) => unknown;
}

export interface OutputLook {
  readonly format: Format;
  /** Ids only, one a line. */
  readonly quiet: boolean;
  readonly time: TimeStyle;
  readonly colour: Colour;
}

/**
 * Writes a command's data to stdout, in the form that the user asked for. JSON has all of a row, the other forms its fields.
 */
export class Output {
  readonly format: Format;
  readonly #look: OutputLook;
  readonly #paint: ReturnType<typeof painter>;

  constructor(look: OutputLook) {
    this.format = look.format;
    this.#look = look;
    this.#paint = painter(process.stdout, look.colour);
  }

  /** Writes many rows of one kind. @param idOf  what `-q` prints */
  rows<T>(rows: readonly T[], fields: readonly Field<T>[], idOf: (row: T) => string): void {
    if (this.#look.quiet) return this.#lines(rows.map((row) => printable(idOf(row))));
    if (this.format === 'json') return this.#lines([json(rows, process.stdout.isTTY === true)]);
    if (this.format === 'jsonl') return this.#lines(rows.map((row) => json(row)));
    const cells = rows.map((row) => fields.map((field) => this.#cell(field.of(row))));
    if (this.format === 'plain') return this.#lines(cells.map(tabbed));
    this.#lines(tableLines(fields, cells, this.#tableLook()));
  }

  /** Writes one value: in a table, a line for each field. */
  one<T>(value: T, fields: readonly Field<T>[], id: string): void {
    if (this.#look.quiet) return this.#lines([printable(id)]);
    if (this.format === 'json' || this.format === 'jsonl') {
      return this.#lines([json(value, this.format === 'json' && process.stdout.isTTY === true)]);
    }
    const pairs = fields.map((field) => [field.title, this.#cell(field.of(value))]);
    if (this.format === 'plain') return this.#lines(pairs.map(tabbed));
    const wide = Math.max(...fields.map(({ title }) => title.length));
    const indent = ' '.repeat(wide + 2);
    const block = (cell: string): string => cell.trimEnd().split('\n').map(printable).join(`\n${indent}`);
    this.#lines(pairs.map(([title = '', cell = '']) => `${this.#paint('dim', title.padEnd(wide))}  ${block(cell)}`));
  }

  /** Writes text that is data as it stands. */
  text(text: string): void {
    this.#lines([text]);
  }

  /** Writes statements for psql, which otherwise goes on after one that failed, and ends with 0. */
  script(sql: string): void {
    this.#lines(['\\set ON_ERROR_STOP on', sql.trimEnd()]);
  }

  /** Writes a heading between two tables, only if the user asked for tables. */
  heading(text: string): void {
    if (this.format === 'table' && !this.#look.quiet) this.#lines(['', this.#paint('bold', text)]);
  }

  #tableLook(): { width?: number; heading: (text: string) => string } {
    const heading = (text: string): string => this.#paint('bold', text);
    return process.stdout.isTTY === true ? { width: process.stdout.columns, heading } : { heading };
  }

  #cell(value: unknown): string {
    if (value === null || value === undefined) return '-';
    if (value instanceof Date) return showTime(value, this.#look.time);
    return typeof value === 'string' ? value : json(value);
  }

  #lines(lines: readonly string[]): void {
    if (lines.length > 0) process.stdout.write(`${lines.join('\n')}\n`);
  }
}

/**
 * One JSON value; bigints as decimal text, dates as ISO 8601. A terminal gets the characters that it would act on as escapes: the
 * same value, and JSON itself escapes only some of them.
 */
export function json(value: unknown, pretty = false): string {
  const plain = (_key: string, inner: unknown): unknown => (typeof inner === 'bigint' ? String(inner) : inner);
  const text = JSON.stringify(value, plain, pretty ? 2 : undefined) ?? 'null';
  return process.stdout.isTTY === true ? text.replace(TO_ESCAPE, escaped) : text;
}

const TO_ESCAPE = new RegExp(String.raw`(?!\n)${ACTIVE}`, 'gu');

function escaped(character: string): string {
  return character.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function tabbed(cells: readonly string[]): string {
  return cells.map(printable).join('\t');
}
