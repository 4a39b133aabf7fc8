/** What node-postgres asks for the parser of each column. */
export interface TypeParsers {
  getTypeParser(oid: number, format?: string): (text: string) => unknown;
}

const asText = (text: string): string => text;

/**
 * The parsers for the answers to Pawl's own statements. Parsers that the program has set by `pg.types.setTypeParser` do not
 * affect these answers. 64-bit integers stay text, and so do all types that are not named here.
 *
 * The session's settings do not affect them either. With a DateStyle other than ISO, no reader can tell which time a
 * timestamptz means, and `extra_float_digits` may leave a float8 with one digit. So Pawl's statements return a time as {@link
 * instant}, and numeric for nothing else. They compute every other number with a fraction from numeric, and return it as JSON.
 */
export const ownTypes: TypeParsers = { getTypeParser: (oid) => PARSERS.get(oid) ?? asText };

const PARSERS: ReadonlyMap<number, (text: string) => unknown> = new Map<number, (text: string) => unknown>([
  [16, (text) => text === 't'], // boolean
  [21, Number], // smallint
  [23, Number], // integer
  [26, Number], // oid
  [1700, (text) => new Date(Number(text))], // numeric: milliseconds since 1970
  [700, Number], // real
  [701, Number], // double precision
  [114, parseJson], // json
  [3802, parseJson], // jsonb
  [1005, (text) => elements(text).map(Number)], // smallint[]
  [1007, (text) => elements(text).map(Number)], // integer[]
  [1022, (text) => elements(text).map(Number)], // double precision[]
  [1009, elements], // text[]
  [1015, elements], // varchar[]
  [1016, elements], // bigint[]
  [2951, elements], // uuid[]
  [1184, toDate], // timestamptz, as it is written by default
]);

function parseJson(text: string): unknown {
  return JSON.parse(text);
}

/** The elements of an array of one dimension: `{a,"b, c",NULL}`. */
function elements(text: string): (string | null)[] {
  return Array.from(text.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|[^,]+/gs), ([bare, quoted]) => {
    if (quoted !== undefined) return quoted.replaceAll(/\\(.)/gs, '$1');
    return bare === 'NULL' ? null : bare;
  });
}

/** `2026-11-23 05:07:28.5+00`: not every Date reads the blank, or an offset that has only hours. */
function toDate(text: string): Date {
  return new Date(text.replace(' ', 'T').replace(/[+-]\d\d$/, '$&:00'));
}

/** SQL that returns a time in the form of an answer: milliseconds since 1970, as numeric. */
export function instant(time: string): string {
  return `extract(epoch from ${time}) * 1000::numeric`;
}
