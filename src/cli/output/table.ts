import { ACTIVE } from '../../base/logger.ts';

/** A column of a table. */
export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
  /** True: if the text does not fit, it continues on the next line, and is not cut. For text that says what is wrong. */
  readonly wraps?: boolean;
}

export interface TableLook {
  /** The most characters of a line; the widest columns give way. Default: no limit. */
  readonly width?: number;
  readonly heading?: (text: string) => string;
}

const GAP = '  ';
/** No column is made narrower than this in favour of another. */
const NARROW = 12;

/** The lines of a table: titles first, columns padded to their widest cell, and cells cut if the line would be too long. */
export function tableLines(
  columns: readonly Column[],
  rows: readonly (readonly string[])[],
  { width = Infinity, heading = (text) => text }: TableLook = {},
): string[] {
  const cells = rows.map((row) => row.map(printable));
  const natural = columns.map(({ title }, i) => Math.max(title.length, ...cells.map((row) => row[i]?.length ?? 0)));
  const widths = fit(natural, width);
  const line = (texts: readonly string[]): string =>
    columns
      .map(({ align }, i) => pad(shorten(texts[i] ?? '', widths[i] ?? 0), widths[i] ?? 0, align))
      .join(GAP)
      .trimEnd();
  const block = (row: readonly string[]): string[] => {
    const parts = row.map((text, i) => (columns[i]?.wraps === true ? wrap(text, widths[i] ?? 0) : [text]));
    const most = Math.max(...parts.map(({ length }) => length));
    return Array.from({ length: most }, (_, nth) => line(parts.map((part) => part[nth] ?? '')));
  };
  return [heading(line(columns.map(({ title }) => title))), ...cells.flatMap(block)];
}

/** Wraps at blanks, and within a word only if the word is wider than the column. */
function wrap(text: string, width: number): string[] {
  const lines = [''];
  for (const word of text.split(' ').flatMap((one) => one.match(new RegExp(`.{1,${width}}`, 'gu')) ?? [])) {
    const last = lines.at(-1) ?? '';
    if (last === '') lines[lines.length - 1] = word;
    else if (last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

// Payloads and errors are texts of other people: an escape sequence in such a text must not reach the terminal.
const CONTROL = new RegExp(`${ACTIVE}+`, 'gu');

/** One line, without any character that a terminal would act on. */
export function printable(text: string): string {
  return text.replace(CONTROL, ' ');
}

function fit(natural: readonly number[], width: number): number[] {
  const widths = [...natural];
  const total = (): number => widths.reduce((sum, one) => sum + one, 0) + GAP.length * (widths.length - 1);
  while (total() > width) {
    const widest = widths.indexOf(Math.max(...widths));
    const now = widths[widest] ?? 0;
    if (now <= NARROW) break;
    widths[widest] = Math.max(NARROW, now - (total() - width));
  }
  return widths;
}

function shorten(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;
}

function pad(text: string, width: number, align: Column['align']): string {
  return align === 'right' ? text.padStart(width) : text.padEnd(width);
}
