import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

const SCRIPT = fileURLToPath(new URL('../scripts/check-prose.mjs', import.meta.url));

/** By file: what stands in it, and the lines on which it is to be found fault with. */
const PLANTED: Readonly<Record<string, readonly [text: string, lines: readonly number[]]>> = {
  'program.ts': [
    `// Whoever waits.
/** What was
 * had stays; nobody
 * knows of it. */
export interface Told {}
const message = 'it stands beside the other one';
const short = 'beside'; const code = nobody(he) / 2; const pattern = /whoever is "quoted/;
const sql = "select nobody from beside where he = 1";
test(\`he takes \${nobody} in vain\`, () => {});
// An \`identifier of nobody\` is quoted.
`,
    [1, 2, 3, 4, 5, 6, 9, 9],
  ],
  'page.md': ['Plain words.\nAll but\nthis one.\n\n```ts\nnobody();\n```\n\n- who looks finds `nobody`\n', [2, 9]],
  'table.sql': ['select nobody from beside; -- for whoever\n-- asks: who asks is heard\n', [1, 2, 2]],
  'turns.md': [
    `Removed by who types it.
It counts for so long.
It is dear.
A second at the most.
It runs all the same.
What came of it.
It was away for so long that it ended.
`,
    [1, 2, 3, 4, 5, 6],
  ],
  'clean.ts': [
    "// The worker that waits reads the rows next to it.\nthrow new Error('no process holds the lock now');\n",
    [],
  ],
};

test('npm run rules finds turns of phrase in comments, messages, titles and documents, and nothing in code', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-prose-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const names = Object.keys(PLANTED);
  for (const name of names) writeFileSync(join(folder, name), PLANTED[name]?.[0] ?? '');
  const { code, stderr } = await runScript(names, folder);
  const found = Object.fromEntries(
    names.map((name) => [
      name,
      [...stderr.matchAll(new RegExp(`^${name}:(\\d+):`, 'gm'))].map(([, line]) => Number(line)),
    ]),
  );
  expect(found).toEqual(Object.fromEntries(names.map((name) => [name, PLANTED[name]?.[1]])));
  expect(code).toBe(1);
  expect(await runScript(['clean.ts'], folder)).toMatchObject({ code: 0 });
});

function runScript(files: readonly string[], cwd: string): Promise<{ code: number; stderr: string }> {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [SCRIPT, ...files], { cwd }, (_error, _stdout, stderr) =>
      resolve({ code: child.exitCode ?? -1, stderr }),
    );
  });
}
