/** A program that a document shows, in one block or told in several. */
export interface Snippet {
  readonly name: string;
  /** Line of its first block. */
  readonly line: number;
  /** As it stands there. */
  readonly text: string;
  /** As it can be run by itself. */
  readonly code: string;
  /** What the document says that it prints, if it does. */
  readonly prints: string | undefined;
}

const FENCE = /^```(ts|sql|text) (run|prints) ([\w-]+)\n([^]*?)^```$/gm;

/**
 * The programs of a Markdown text. Blocks that open with "```ts run NAME" are one module, in their order; "```sql run NAME"
 * is run between them, from another connection; "```text prints NAME" is what the module writes to standard output. A block
 * inside a comment is part of its module, too: what every program needs and no reader wants to see.
 */
export function readSnippets(markdown: string): Snippet[] {
  const found = new Map<string, { line: number; code: string; usesSql: boolean; prints: string | undefined }>();
  for (const { 1: language, 2: verb, 3: name = '', 4: text = '', index } of markdown.matchAll(FENCE)) {
    const line = markdown.slice(0, index).split('\n').length;
    const snippet = found.get(name) ?? { line, code: '', usesSql: false, prints: undefined };
    found.set(name, snippet);
    if (verb === 'prints') snippet.prints = text;
    else if (language === 'ts') snippet.code += text;
    else {
      snippet.usesSql = true;
      snippet.code += `await runSql(${JSON.stringify(text)});\n`;
    }
  }
  return [...found].map(([name, { line, code, usesSql, prints }]) => ({
    name,
    line,
    text: code,
    code: `export {};\n${usesSql ? RUN_SQL : ''}${code}`,
    prints,
  }));
}

const RUN_SQL = `import { Client as SqlClient } from 'pg';
async function runSql(text: string): Promise<void> {
  const client = new SqlClient(process.env['DATABASE_URL']);
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}
`;
