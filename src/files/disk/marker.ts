import { randomUUID } from 'node:crypto';
import { constants, promises as fs } from 'node:fs';
import { join } from 'node:path';
import { codeOf, diskFailure, told } from './failure.ts';
import { syncFolder } from './folder.ts';

const NAMES = { marker: 'pawl-store.json', copy: 'pawl-store.copy.json' } as const;

/** More than any marker needs, and the block size of most disks: so a marker never grows when it is overwritten. */
const BYTES = 4096;

/** Throws as {@link told}. */
export function readMarker(dir: string, which: 'marker' | 'copy'): Promise<string> {
  return told(fs.readFile(join(dir, NAMES[which]), 'utf8'));
}

/**
 * Overwrites the marker and its copy in place, one after the other. A full disk has room for that, and if the process is killed
 * during one write, the other file is whole. Drafts are removed, too: a process may have died and left one in a marked folder.
 */
export async function writeMarkers(dir: string, text: string): Promise<void> {
  await told(writeInPlace(join(dir, NAMES.marker), text));
  await told(writeInPlace(join(dir, NAMES.copy), text));
  // Drafts that stay do no harm, and the marker is written.
  await removeDrafts(dir).catch(() => {});
}

/**
 * Marks a folder that has no marker. If several processes do it at the same time, the first one wins. A marker appears whole.
 */
export async function placeMarkers(dir: string, text: string): Promise<void> {
  const draft = join(dir, `${NAMES.marker}.${randomUUID()}`);
  try {
    await told(writeInPlace(draft, text));
    if (await isFirst(draft, join(dir, NAMES.marker))) await told(writeInPlace(join(dir, NAMES.copy), text));
  } catch (error) {
    // The first failure matters more than the failure to remove the draft.
    await fs.rm(draft, { force: true }).catch(() => {});
    throw error;
  }
  await removeDrafts(dir);
  await syncFolder(dir);
}

async function isFirst(draft: string, marker: string): Promise<boolean> {
  try {
    await fs.link(draft, marker);
    return true;
  } catch (error) {
    // ENOENT: the process that won removed this draft, because it could be that of a dead process.
    if (codeOf(error) === 'EEXIST' || codeOf(error) === 'ENOENT') return false;
    throw diskFailure(error);
  }
}

/** There is a marker now, so all drafts can go, also those of killed processes. */
async function removeDrafts(dir: string): Promise<void> {
  const drafts = (await told(fs.readdir(dir))).filter((name) => name.startsWith(`${NAMES.marker}.`));
  await Promise.all(drafts.map((name) => told(fs.rm(join(dir, name), { force: true }))));
}

async function writeInPlace(path: string, text: string): Promise<void> {
  const bytes = Buffer.alloc(Math.max(BYTES, Buffer.byteLength(text)), ' ');
  bytes.write(text);
  const file = await fs.open(path, constants.O_WRONLY | constants.O_CREAT);
  try {
    for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at, bytes.length - at, at)).bytesWritten;
    // A person may have edited the file.
    if ((await file.stat()).size > bytes.length) await file.truncate(bytes.length);
    await file.datasync();
  } finally {
    await file.close();
  }
}
