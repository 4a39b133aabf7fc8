import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, describe, expect, test } from 'vitest';
import { freshDatabase } from './support/database.ts';
import { apiEnvironment, dynamoEnvironment, writeScript } from './support/documents/doc-environments.ts';
import { readSnippets } from './support/documents/snippets.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const guides = [...markdownIn('.'), ...markdownIn('docs')];
const documents = [...guides, ...['docs/decisions', 'bench', 'test', 'test/faults'].flatMap(markdownIn)];
const programs = guides.flatMap((document) =>
  readSnippets(readFileSync(join(root, document), 'utf8')).map((snippet) => ({ ...snippet, document })),
);

const modules = programs.filter(({ language }) => language === 'module');
const scripts = programs.filter(({ language }) => language === 'shell');

// Inside the project, so that `pawl/queue` means this build.
const folder = join(root, '.pawl', `docs-${process.pid}`);
mkdirSync(folder, { recursive: true });
afterAll(() => rmSync(folder, { recursive: true, force: true }));
for (const { document, name, code } of modules) {
  writeFileSync(fileOf(document, name, 'ts'), code);
  writeFileSync(fileOf(document, name, 'mjs'), code);
}

const run = promisify(execFile);

describe('the programs of the documents', () => {
  test.for(modules)('$document: $name runs, and prints what is said', async (module, { skip }) => {
    const { document, name, code, prints } = module;
    const dynamo = code.includes('pawl/dynamodb') ? await dynamoEnvironment() : undefined;
    skip(dynamo?.hasTransactions === false, 'no transactions here');
    // Migrating is half of what a program takes. Those of the README do it all; the others are seen to ask for it.
    const migrated = document !== 'README.md' && code.includes('.migrate()');
    const { url } = await freshDatabase({ migrated });
    const env = { DATABASE_URL: url, TEST_DATABASE_URL: url, PORT: '0', ...dynamo?.env };
    const cwd = emptyFolder(document, name);
    const program = fileOf(document, name, 'mjs');
    expect(await outputOf(program, env, cwd)).toEqual(prints ?? expect.any(String));
    if (document === 'README.md') await outputOf(program, env, cwd); // a second run of it works, too
  });

  test.each(guides)('%s hides no step, and needs no newer Node than 20', (document) => {
    const text = readFileSync(join(root, document), 'utf8');
    expect((text.match(/<!--[^]*?-->/g) ?? []).filter((comment) => comment.includes('```'))).toEqual([]);
    for (const { code } of readSnippets(text))
      expect(code).not.toMatch(/^\s*(?:await )?using |Promise\.withResolvers/m);
  });

  test.each(guides)('%s shows no program that is not run', (document) => {
    const text = readFileSync(join(root, document), 'utf8');
    const fragments = [...text.matchAll(/^```[jt]s\n([^]*?)^```$/gm)].map(([, code = '']) => code);
    expect(fragments.filter((code) => /const engine = /.test(code))).toEqual([]);
  });

  test.for(scripts)('$document: the shell runs $name, and prints what is said', async (snippet, { skip }) => {
    const { document, name, code, sql, prints } = snippet;
    for (const tool of ['curl', 'jq']) skip(code.includes(`${tool} `) && !isInstalled(tool), `${tool} is not here`);
    const { url } = await freshDatabase();
    if (sql !== '') await query(url, sql);
    const { cwd, script, PATH } = writeScript(fileOf(document, name, 'sh'), snippet);
    const env = {
      ...process.env,
      PATH,
      DATABASE_URL: url,
      ...(code.includes('$API') && (await apiEnvironment(url, `${cwd}-objects`))),
    };
    const { stdout } = await run('/bin/sh', ['-eu', script], { env, cwd, timeout: 55_000 });
    expect(stdout).toEqual(prints ?? expect.any(String));
  });

  test('run without a database, too, when they are pasted into a file', async () => {
    const example = programs.find(({ document, name }) => document === 'README.md' && name === 'example');
    const pasted = join(folder, 'example.mjs');
    writeFileSync(pasted, example?.text ?? '');
    expect(await outputOf(pasted, { DATABASE_URL: undefined })).toBe(example?.prints);
  });

  test('have the types that the compiler gives them', async () => {
    const config = { extends: '../../tsconfig.json', compilerOptions: LENIENT, include: ['*.ts'] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const complaints = await run(process.execPath, [tsc, '-p', folder], { cwd: root }).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    );
    expect(complaints).toBe('');
  });
});

test('the README and all guides have programs', () => {
  const having = new Set(programs.map(({ document }) => document));
  const without = ['dashboard', 'scale', 'surfaces', 'upgrading', 'waiting']; // no library calls of their own
  const pages = guides.filter(
    (document) => document.startsWith('docs/') && !without.some((name) => document === `docs/${name}.md`),
  );
  expect([...having]).toEqual(expect.arrayContaining(['README.md', ...pages]));
});

describe('links', () => {
  test.each(documents)('of %s lead to something', (document) => {
    const text = readFileSync(join(root, document), 'utf8');
    const broken = [...withoutCode(text).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^[a-z]+:/.test(target) && !leads(document, target));
    expect(broken).toEqual([]);
  });

  test('and files that pages for contributors name exist', () => {
    const tracked = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' }).split('\n');
    const pages = documents.filter((document) => !/^(?:docs\/[\w-]+|README|CHANGELOG)\.md$/.test(document));
    const missing = pages.flatMap((document) =>
      [...readFileSync(join(root, document), 'utf8').matchAll(/`((?:[\w-]+\/)*[\w-][\w.-]*\.(?:ts|mjs|sql|md))`/g)]
        .map(([, name = '']) => name)
        .filter((name) => !tracked.some((file) => file === name || file.endsWith(`/${name}`)))
        .map((name) => `${document}: ${name}`),
    );
    expect(missing).toEqual([]);
  });
});

async function query(url: string, sql: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

function emptyFolder(document: string, name: string): string {
  const path = `${fileOf(document, name, 'mjs')}-here`;
  mkdirSync(path);
  return path;
}

async function outputOf(program: string, env: NodeJS.ProcessEnv, cwd = root): Promise<string> {
  const { stdout } = await run(process.execPath, [program], {
    env: { ...process.env, ...env },
    cwd,
    timeout: 55_000,
  });
  return stdout;
}

function isInstalled(tool: string): boolean {
  return spawnSync(tool, ['--version']).error === undefined;
}

/** A user's program is not a library, and these are JavaScript: they need not declare what they export, nor parameters. */
const LENIENT = {
  isolatedDeclarations: false,
  declaration: false,
  noUnusedLocals: false,
  noUnusedParameters: false,
  noImplicitAny: false,
};

function markdownIn(place: string): string[] {
  return readdirSync(join(root, place))
    .filter((file) => file.endsWith('.md'))
    .map((file) => join(place, file));
}

function fileOf(document: string, name: string, ending: 'ts' | 'mjs' | 'sh'): string {
  return join(folder, `${document.replaceAll(/\W/g, '-')}-${name}.${ending}`);
}

function withoutCode(markdown: string): string {
  return markdown.replaceAll(/^```[^]*?^```$/gm, '').replaceAll(/`[^`\n]*`/g, '');
}

function leads(document: string, target: string): boolean {
  const [path = '', anchor] = target.split('#');
  const file = path === '' ? join(root, document) : join(root, dirname(document), path);
  if (relative(root, file).startsWith('..') || !existsSync(file)) return false;
  return anchor === undefined || anchorsOf(readFileSync(file, 'utf8')).has(anchor);
}

/** As GitHub makes them of headings. */
function anchorsOf(markdown: string): ReadonlySet<string> {
  const headings = markdown.replaceAll(/^```[^]*?^```$/gm, '').matchAll(/^#+ (.+)$/gm);
  const slugs = [...headings].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
  return new Set(slugs);
}
