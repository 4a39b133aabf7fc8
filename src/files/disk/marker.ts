import { randomUUID } from 'node:crypto';
import { constants, promises as fs } from 'node:fs';
import { join } from 'node:path';
import { codeOf, diskFailure, told } from './failure.ts';
import { syncFolder } from './folder.ts';

const NAMES = { marker: 'pawl-store.json', copy: 'pawl-store.copy.json' } as const;

/** More than any marker takes, and what a disk gives at once: so that one that is written anew never grows. */
const BYTES = 4096;

/** @throws as `told` */
export function readMarker(dir: string, which: 'marker' | 'copy'): Promise<string> {
  return told(fs.readFile(join(dir, NAMES[which]), 'utf8'));
}

/**
 * In place, and one after the other: a disk that is full has room for that, and whoever is killed in the middle of the one
 * leaves the other whole.
 */
export async function writeMarkers(dir: string, text: string): Promise<void> {
  await told(writeInPlace(join(dir, NAMES.marker), text));
  await told(writeInPlace(join(dir, NAMES.copy), text));
}

/** Marks a folder that has no marker. Of several who do it at once, the first one counts: a marker appears whole. */
export async function placeMarkers(dir: string, text: string): Promise<void> {
  const draft = join(dir, `${NAMES.marker}.${randomUUID()}`);
  try {
    await told(writeInPlace(draft, text));
    if (await isFirst(draft, join(dir, NAMES.marker))) await told(writeInPlace(join(dir, NAMES.copy), text));
  } catch (error) {
    // Why it failed matters more than that the draft cannot be removed either.
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
    // ENOENT: whoever was first has taken the draft for one of the dead.
    if (codeOf(error) === 'EEXIST' || codeOf(error) === 'ENOENT') return false;
    throw diskFailure(error);
  }
}

/** There is a marker now: all drafts are of no use to anybody, also those of processes that were killed. */
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
    // Somebody may have edited it.
    if ((await file.stat()).size > bytes.length) await file.truncate(bytes.length);
    await file.datasync();
  } finally {
    await file.close();
  }
}
