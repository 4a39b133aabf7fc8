/** A program that a document shows, in one block or told in several. */
export interface Snippet {
  readonly name: string;
  readonly language: 'module' | 'shell';
  /** Line of its first block. */
  readonly line: number;
  /** As it stands there. */
  readonly text: string;
  /** As it can be run by itself. */
  readonly code: string;
  /** What has to be there in the database before a script of the shell. */
  readonly sql: string;
  /** Files that the document shows for it, by name. */
  readonly files: ReadonlyMap<string, string>;
  /** What the document says that it prints, if it does. */
  readonly prints: string | undefined;
}

interface Parts {
  readonly name: string;
  readonly line: number;
  readonly files: Map<string, string>;
  /** JavaScript, with a call for each block of SQL. */
  module: string;
  script: string;
  sql: string;
  prints: string | undefined;
}

const FENCE = /^```(js|sql|sh|text) (run|file|prints) ([\w-]+)(?: ([\w.-]+))?\n([^]*?)^```$/gm;

/**
 * The programs of a Markdown text. Blocks that open with "```js run NAME" are one module, in their order; "```sql run NAME"
 * is run between them, from another connection. Blocks of "```sh run NAME" are one script of the shell, with its SQL before it;
 * "```js file NAME FILE" is a file that it finds. "```text prints NAME" is what a program writes to standard output.
 */
export function readSnippets(markdown: string): Snippet[] {
  const found = new Map<string, Parts>();
  for (const { 1: language, 2: verb, 3: name = '', 4: file = '', 5: text = '', index } of markdown.matchAll(FENCE)) {
    const parts = found.get(name) ?? emptyAt(name, markdown.slice(0, index).split('\n').length);
    found.set(name, parts);
    if (verb === 'prints') parts.prints = text;
    else if (verb === 'file') parts.files.set(file, text);
    else if (language === 'sh') parts.script += text;
    else if (language === 'sql') {
      parts.sql += text;
      parts.module += `await runSql(${JSON.stringify(text)});\n`;
    } else parts.module += text;
  }
  return [...found.values()].map(snippetOf);
}

function emptyAt(name: string, line: number): Parts {
  return { name, line, files: new Map(), module: '', script: '', sql: '', prints: undefined };
}

function snippetOf({ module, script, ...rest }: Parts): Snippet {
  if (script !== '') return { ...rest, language: 'shell', text: script, code: script };
  const code = `export {};\n${rest.sql === '' ? '' : RUN_SQL}${module}`;
  return { ...rest, language: 'module', text: module, code };
}

const RUN_SQL = `import { Client as SqlClient } from 'pg';
async function runSql(text) {
  const client = new SqlClient(process.env['DATABASE_URL']);
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}
`;
