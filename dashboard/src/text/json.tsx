import type { JSX } from 'preact';

interface Token {
  readonly kind: 'key' | 'string' | 'number' | 'word' | 'plain';
  readonly text: string;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[{}[\],:]/g;

/** Lays out JSON without a conversion of numbers: 12345678901234567890 stays unchanged. */
export function Json({ text, label }: { readonly text: string; readonly label: string }): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a place that scrolls must be reached by keyboard
    <pre class="json" tabIndex={0} role="group" aria-label={label}>
      {layOut(text).map(({ kind, text: part }, index) => (
        // Tokens have no identity except their place.
        // biome-ignore lint/suspicious/noArrayIndexKey: see above
        <span key={index} class={kind}>
          {part}
        </span>
      ))}
    </pre>
  );
}

function layOut(text: string): Token[] {
  const tokens: Token[] = [];
  const parts = text.match(TOKEN) ?? [];
  let depth = 0;
  const line = (): string => `\n${'  '.repeat(depth)}`;
  parts.forEach((part, index) => {
    const next = parts[index + 1];
    if (part === '{' || part === '[') {
      const isEmpty = next === '}' || next === ']';
      depth += 1;
      tokens.push({ kind: 'plain', text: isEmpty ? part : `${part}${line()}` });
    } else if (part === '}' || part === ']') {
      const wasEmpty = parts[index - 1] === '{' || parts[index - 1] === '[';
      depth -= 1;
      tokens.push({ kind: 'plain', text: wasEmpty ? part : `${line()}${part}` });
    } else if (part === ',') tokens.push({ kind: 'plain', text: `,${line()}` });
    else if (part === ':') tokens.push({ kind: 'plain', text: ': ' });
    else tokens.push({ kind: kindOf(part, next), text: part });
  });
  return tokens;
}

function kindOf(part: string, next: string | undefined): Token['kind'] {
  if (part.startsWith('"')) return next === ':' ? 'key' : 'string';
  return /^[-\d]/.test(part) ? 'number' : 'word';
}
