import type { Cell } from './sheet.ts';

/** A text that is no CSV, and in which line it stops being one. */
export class BadCsv extends Error {
  override readonly name = 'BadCsv';
}

// Not 007, and nothing a double cannot hold exactly: those stay text.
const NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,6})?$/;

/**
 * Reads CSV as RFC 4180 has it: the first line names the columns; fields may be quoted, and then hold commas, line ends and
 * doubled quotes. What looks like a number becomes one, unless it is quoted.
 * @throws BadCsv
 */
export function parseCsv(text: string): { columns: string[]; rows: Cell[][] } {
  const [head = [], ...body] = [...records(text.replace(/^\uFEFF/, ''))];
  return { columns: head.map(({ text: name }) => name), rows: body.map((fields) => fields.map(toCell)) };
}

interface Field {
  readonly text: string;
  readonly isQuoted: boolean;
}

function toCell({ text, isQuoted }: Field): Cell {
  if (isQuoted) return text;
  const bare = text.trim();
  if (bare === '') return null;
  return NUMBER.test(bare) ? Number(bare) : bare;
}

function* records(text: string): Generator<Field[]> {
  // A field, quoted or bare, and what ends it.
  const field = /(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/y;
  let fields: Field[] = [];
  while (field.lastIndex < text.length || fields.length > 0) {
    const at = field.lastIndex;
    const match = field.exec(text);
    if (match === null) throw new BadCsv(`line ${text.slice(0, at).split('\n').length} has a quote out of place`);
    const [, quoted, bare = '', end] = match;
    fields.push(
      quoted === undefined ? { text: bare, isQuoted: false } : { text: quoted.replaceAll('""', '"'), isQuoted: true },
    );
    if (end === ',') continue;
    if (fields.length > 1 || fields[0]?.text !== '' || fields[0].isQuoted) yield fields;
    fields = [];
    if (end === '') return;
  }
}
