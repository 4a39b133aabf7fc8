import { createHash } from 'node:crypto';
import type { Dirent } from 'node:fs';
import { chmod, cp, lstat, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { Conflict } from '../../../base/errors.ts';

/** The candidates for temporary folders. The later ones serve if TMPDIR is private to root, or mounted noexec. */
export function temporaryFolders(): string[] {
  return [...new Set([tmpdir(), '/tmp', '/var/tmp'])];
}

/**
 * Makes a copy of a Postgres tree below `folder` that every account can read and run. There is one copy per content, and later
 * starts use it again: to copy 61 MB takes 0.2 s. The copy appears by one rename, so no process sees half of it.
 * @param finish  called on the copy before others can see it
 * @throws Conflict  another user has put a folder at its place: the programs in it are not run
 */
export async function copyTree(tree: string, folder: string, finish: (copy: string) => Promise<void>): Promise<string> {
  const fingerprint = await fingerprintOf(tree);
  const copy = join(folder, `pawl-postgres-${fingerprint}`);
  if (await isOurs(copy)) {
    if ((await fingerprintOf(copy)) === fingerprint) return copy;
    await discard(copy);
  }
  const staging = await mkdtemp(`${copy}.`);
  try {
    await cp(tree, staging, { recursive: true, verbatimSymlinks: true });
    await finish(staging);
    await openToAll(staging);
    await rename(staging, copy).catch((error: unknown) => settleRace(error));
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  if (!(await isOurs(copy)))
    throw new Conflict(`the copy of Postgres in "${copy}" vanished while it was made; start again`);
  return copy;
}

/** Another process of ours was first: its copy is as good. */
function settleRace(error: unknown): void {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
}

/** Every user can write to temporary folders. Programs that another user has put there must never run. */
async function isOurs(copy: string): Promise<boolean> {
  const found = await lstat(copy).catch(() => undefined);
  if (found === undefined) return false;
  if (!found.isDirectory() || found.uid !== process.geteuid?.() || (found.mode & 0o022) !== 0) {
    throw new Conflict(
      `the copy of Postgres in "${copy}" belongs to uid ${found.uid} or can be written by others; remove it and start again`,
    );
  }
  return true;
}

/** Cleaners of temporary folders remove old files one by one, so a copy may have lost some. */
async function discard(copy: string): Promise<void> {
  const aside = await mkdtemp(`${copy}.`);
  await rename(copy, join(aside, basename(copy)));
  await rm(aside, { recursive: true, force: true });
}

/** Hashes paths and sizes, not bytes: the files come from a checked package, and reading 61 MB would cost each start 0.1 s. */
async function fingerprintOf(tree: string): Promise<string> {
  const hash = createHash('sha256');
  for (const file of (await entriesOf(tree)).filter((entry) => entry.isFile())) {
    const path = join(file.parentPath, file.name);
    hash.update(`${relative(tree, path)} ${(await lstat(path)).size}\n`);
  }
  return hash.digest('hex').slice(0, 16);
}

async function openToAll(tree: string): Promise<void> {
  for (const entry of await entriesOf(tree)) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const runs = entry.isDirectory() || ((await lstat(path)).mode & 0o100) !== 0;
    await chmod(path, runs ? 0o755 : 0o644);
  }
  await chmod(tree, 0o755);
}

async function entriesOf(tree: string): Promise<Dirent[]> {
  const entries = await readdir(tree, { recursive: true, withFileTypes: true });
  const path = (entry: Dirent): string => join(entry.parentPath, entry.name);
  return entries.sort((a, b) => (path(a) < path(b) ? -1 : 1));
}
