// The parts of a file that a person reads: prose of Markdown, comments of SQL and of programs, and strings that are sentences.

const GAP = '\0';

/**
 * The prose of a file. Every other character is replaced by one character, so an index is the same in both texts. Spaces join the
 * lines of one paragraph or comment. A gap separates texts that do not belong together.
 */
export function proseOf(name, text) {
  if (name.endsWith('.md')) return markdown(text);
  if (name.endsWith('.sql')) return keep(text, [...text.matchAll(/--[^\n]*|\/\*[^]*?\*\//g)].map(spanOf));
  return keep(text, spansOfProgram(text));
}

const spanOf = ({ index, 0: found }) => [index, index + found.length];

function markdown(text) {
  const blank = (found) => found.replaceAll(/[^\n]/g, GAP);
  return text
    .replaceAll(/^( *)```[^]*?^ *```$/gm, blank)
    .replaceAll(/<!--[^]*?-->/g, blank)
    .replaceAll(/^ {4,}\S.*$/gm, (line) => (/^ {4,}[-*\d]/.test(line) ? line : blank(line)))
    .replaceAll(/`[^`\n]*`/g, blank)
    .replaceAll(/\]\([^)\n]*\)/g, blank)
    .replaceAll(/\n(?=\s*(?:\n|[-*|#]|\d+\.))/g, GAP)
    .replaceAll('\n', ' ');
}

/** Keeps only the spans. Comment lines with only marks between them are one text. */
function keep(text, spans) {
  let kept = '';
  for (const [from, to] of spans) {
    const between = text.slice(kept.length, from);
    kept += (/^\s*$/.test(between) && kept !== '' && !/\n\s*\n/.test(between) ? ' ' : GAP).repeat(between.length);
    kept += text.slice(from, to);
  }
  kept += GAP.repeat(text.length - kept.length);
  return kept
    .replaceAll(/\n\s*\*?(?= *@\w)/g, (found) => GAP.repeat(found.length))
    .replaceAll(/\$\{[^}\0]*\}/g, (found) => GAP.repeat(found.length))
    .replaceAll(/`[^`\n\0]*`/g, (found) => GAP.repeat(found.length))
    .replaceAll(/\n\s*\*(?!\/)/g, (found) => ' '.repeat(found.length))
    .replaceAll(/(?<=^|[\0\s])(?:\/\/|--|\/\*+|\*\/)/g, (found) => ' '.repeat(found.length));
}

const TOKEN =
  /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\[^])*`|(?<=(?:^|[=(,:!&|?{;[]|return)\s*)\/(?![/*])(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/gm;

function spansOfProgram(text) {
  return [...text.matchAll(TOKEN)].filter(({ 0: token }) => isComment(token) || isSentence(token)).map(spanOf);
}

const isComment = (token) => token.startsWith('//') || token.startsWith('/*');

const SQL = /\b(?:select|insert\s+into|update\s+\S+\s+set|delete\s+from|create\s+(?:table|or)|perform|drop|alter)\b/i;

/** Whether a string has at least four words, none of them a keyword of SQL. */
function isSentence(token) {
  return /^['"`]/.test(token) && /\w+(?:\W+\w+){3}/.test(token) && /\w \w/.test(token) && !SQL.test(token);
}
