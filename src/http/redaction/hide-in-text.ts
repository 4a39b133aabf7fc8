import { REDACTED } from './hide-keys.ts';

/** The brackets that a value may begin with, or have after a name: `Map(1) { … }`. */
const OPENING = /[[{]/;
/** A value without quotes that ends before its line does, as what follows it shows: `{ pin: 1234, to: 'ada' }`. */
const LITERAL =
  /(?:-?\d[\w.+-]*|true|false|null|undefined)(?=\s*(?:[}\])]|$|,\s*\\*["'`]?[\w$-]+\\*["'`]?\s*(?:=>|[:=])))/my;
/** The value of a parameter in an address. */
const PARAMETER = /[^\s&#"'`<>\\]*/y;

/**
 * Hides the values of keys in texts that quote them, as errors do: JSON, JSON in the texts of JSON, JavaScript's own form of an
 * object, `key=value`, and the details of Postgres. What stands in quotes or brackets is one value. Any other value ends with its
 * line, because it may have blanks: too much is hidden rather than too little.
 */
export class TextKeys {
  readonly #key: RegExp;

  /** @param keys  at least one */
  constructor(keys: readonly string[]) {
    const names = keys.map((key) => key.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
    // The second form is that of Postgres: Key (tenant, key, other)=(1, value, 2).
    const after = String.raw`\\*["'\x60]?\s*(?:=>|[:=])\s*|(?:,[^()]{0,100})?\)=`;
    this.#key = new RegExp(String.raw`(?<![\w-])(?:${names})(?![\w-])(?:${after})`, 'giu');
  }

  /** Its time grows with the length of the text, whatever the text is. */
  hide(text: string): string {
    const key = this.#key;
    const parts: string[] = [];
    let from = 0;
    key.lastIndex = 0;
    for (let found = key.exec(text); found !== null; found = key.exec(text)) {
      const begin = key.lastIndex;
      const end = endOfValue(text, begin, /[?&]/.test(text[found.index - 1] ?? ''));
      if (end > begin) parts.push(text.slice(from, begin), REDACTED);
      else parts.push(text.slice(from, begin));
      from = end;
      key.lastIndex = end;
    }
    return from === 0 ? text : parts.join('') + text.slice(from);
  }
}

function endOfValue(text: string, begin: number, isParameter: boolean): number {
  const quote = begin + backslashesAt(text, begin);
  if (isQuote(text[quote])) return endOfQuoted(text, quote, quote - begin);
  if (OPENING.test(text[begin] ?? '')) return endOfBrackets(text, begin);
  const known = isParameter ? PARAMETER : LITERAL;
  known.lastIndex = begin;
  return known.test(text) ? known.lastIndex : endOfLine(text, begin);
}

/**
 * The end of a text in quotes; or of the whole text, if they are not closed. JSON in a text of JSON has one backslash before
 * each quote, and three in the level below: an escaped quote of the value itself has twice as many and one more.
 * @param depth  the backslashes before the opening quote
 */
function endOfQuoted(text: string, opening: number, depth: number): number {
  const quote = text[opening] ?? '';
  for (let at = text.indexOf(quote, opening + 1); at >= 0; at = text.indexOf(quote, at + 1)) {
    const backslashes = backslashesBefore(text, at, opening + 1);
    if (backslashes < depth) return at - backslashes; // the text around it ends
    if (backslashes % (2 * depth + 2) !== depth) continue;
    // SQL doubles a quote in a text.
    if (quote === "'" && text[at + 1] === quote) at += 1;
    else return at + 1;
  }
  return text.length;
}

function endOfBrackets(text: string, begin: number): number {
  let depth = 0;
  let at = begin;
  while (at < text.length) {
    const sign = text[at] ?? '';
    if (isQuote(sign)) {
      at = endOfQuoted(text, at, backslashesBefore(text, at, begin));
      continue;
    }
    if (sign === '{' || sign === '[') depth += 1;
    if (sign === '}' || sign === ']') depth -= 1;
    at += 1;
    if (depth === 0) break;
  }
  return at;
}

/** Brackets that begin in the line belong to the value, wherever they end. */
function endOfLine(text: string, begin: number): number {
  let at = begin;
  for (; at < text.length && text[at] !== '\n'; at += 1)
    if (OPENING.test(text[at] ?? '')) at = endOfBrackets(text, at) - 1;
  return at;
}

function isQuote(sign: string | undefined): boolean {
  return sign === '"' || sign === "'" || sign === '`';
}

function backslashesAt(text: string, begin: number): number {
  let end = begin;
  while (text[end] === '\\') end += 1;
  return end - begin;
}

function backslashesBefore(text: string, end: number, least: number): number {
  let begin = end;
  while (begin > least && text[begin - 1] === '\\') begin -= 1;
  return end - begin;
}
