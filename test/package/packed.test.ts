import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const MEGABYTE = 1024 * 1024;

interface PackResult {
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

/** What `npm publish` would send. */
async function pack(): Promise<PackResult> {
  const { stdout } = await run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: root,
    maxBuffer: 64 * MEGABYTE,
  });
  const answer: unknown = JSON.parse(stdout);
  const [packed] = Object.values(answer ?? {});
  return packed;
}

/** The targets of links and pictures, without those of code blocks and of the web. */
function relativeLinks(markdown: string): string[] {
  const prose = markdown.replaceAll(/^```[^]*?^```/gm, '');
  const targets = [...prose.matchAll(/\]\(([^)\s]+)\)|src="([^"]+)"/g)].map(([, link, source]) => link ?? source ?? '');
  return targets.filter((target) => !/^([a-z]+:|#)/.test(target));
}

test('every relative link of a packed document leads to a packed file', async () => {
  const { files } = await pack();
  const packed = new Set(files.map(({ path }) => path));
  const documents = [...packed].filter((path) => path.endsWith('.md'));
  expect(documents).toContain('README.md');
  const broken: string[] = [];
  for (const document of documents) {
    for (const link of relativeLinks(await readFile(join(root, document), 'utf8'))) {
      const target = normalize(join(dirname(document), link.replace(/#.*/, '')));
      const isFolder = [...packed].some((path) => path.startsWith(`${target}/`));
      if (!packed.has(target) && !isFolder) broken.push(`${document}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
});

test('an install for production takes at most 20 MB, and no package of it runs a script', async () => {
  const { stdout } = await run('npm', ['ls', '--omit=dev', '--all', '--parseable'], { cwd: root });
  const [, ...folders] = stdout.trim().split('\n');
  expect(folders.some((folder) => folder.endsWith('/pg'))).toBe(true);
  const { stdout: sizes } = await run('du', ['-sk', ...folders]);
  const kilobytes = sizes
    .trim()
    .split('\n')
    .reduce((sum, line) => sum + Number.parseInt(line, 10), 0);
  const { unpackedSize } = await pack();
  expect((kilobytes * 1024 + unpackedSize) / MEGABYTE).toBeLessThan(20);
  for (const folder of folders) {
    const { scripts = {} } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    expect(
      Object.keys(scripts).filter((name) => /^(pre|post)?install$/.test(name)),
      folder,
    ).toEqual([]);
  }
});
