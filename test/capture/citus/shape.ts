/**
 * Why a coordinator of Citus would refuse a statement, or have rows brought to it that it does not need; none if it is about other tables.
 * Of a distributed table it takes what names it alone, at the top or in a part of its own (`with … as materialized (…)`, `from (…)`),
 * next to parts that read only what others have found.
 * @param table  quoted, with its schema
 * @param tenant  the quoted column that each part has to compare, where one node is to answer
 */
export function objections(text: string, table: string, tenant?: string): string[] {
  const found: string[] = [];
  for (const { part, before, isAlone } of partsOf(text, table)) {
    if (!/(^|\bas materialized|\bfrom|\bas) *$/.test(before))
      found.push(`in an expression behind "${before.slice(-20)}"`);
    if (/\bas( materialized)? *$/.test(before) && !/^\s*select\b/.test(part))
      found.push('written in a part of a statement');
    if (isAlone === false || /\bjoin\b/.test(part)) found.push('read together with others');
    if (tenant !== undefined && !part.includes(`t.${tenant} `)) found.push('read without its tenant');
  }
  if (found.length > 0) return found;
  return text.includes(table) && /\bset_config\(/.test(text) ? ['settings that other nodes do not get'] : [];
}

interface Part {
  /** The text between the parentheses around the table's name; what is in others inside of it is left out. */
  readonly part: string;
  /** What stands before these parentheses. */
  readonly before: string;
  readonly isAlone: boolean;
}

function partsOf(text: string, table: string): Part[] {
  const parts: Part[] = [];
  for (let at = text.indexOf(table); at >= 0; at = text.indexOf(table, at + 1)) {
    // A name of a type reads nothing.
    if (text.slice(0, at).endsWith('null::')) continue;
    const open = outer(text, at, -1);
    const close = outer(text, at, 1);
    const part = flat(text.slice(open + 1, close));
    const isAlone = part.split(/\bfrom\b/).length <= 2 || /^\s*(insert|with)\b/.test(part);
    parts.push({ part, before: text.slice(0, Math.max(open, 0)).trimEnd(), isAlone });
  }
  return parts;
}

/** Where the parenthesis around a place is, in one direction; before the beginning or behind the end if there is none. */
function outer(text: string, from: number, step: 1 | -1): number {
  const [inwards, outwards] = step === 1 ? ['(', ')'] : [')', '('];
  let depth = 0;
  let at = from;
  for (; at >= 0 && at < text.length; at += step) {
    if (text[at] === inwards) depth += 1;
    else if (text[at] === outwards) {
      if (depth === 0) return at;
      depth -= 1;
    }
  }
  return at;
}

function flat(text: string): string {
  let out = '';
  let depth = 0;
  for (const letter of text.replace(/^--.*\n/, '')) {
    if (letter === ')') depth -= 1;
    if (depth === 0) out += letter;
    if (letter === '(') depth += 1;
  }
  return out;
}
