import { promises as fs } from 'node:fs';
import { dirname } from 'node:path';
import { codeOf, told } from './failure.ts';

/**
 * Makes a folder and its missing parents. Node's recursive `mkdir` loops for ever if a parent does not exist and cannot be made,
 * as in /proc.
 */
export async function makeFolder(path: string): Promise<void> {
  try {
    await fs.mkdir(path);
  } catch (error) {
    const parent = dirname(path);
    if (codeOf(error) === 'EEXIST') return;
    if (codeOf(error) !== 'ENOENT' || parent === path) throw error;
    await makeFolder(parent);
    // Tries once: if another process removes the parent again at once, the error is thrown.
    await fs.mkdir(path).catch((again: unknown) => {
      if (codeOf(again) !== 'EEXIST') throw again;
    });
  }
}

/** Flushes a folder, because the name of a new file is only as durable as its folder. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await told(fs.open(path, 'r'));
  try {
    await told(folder.sync());
  } finally {
    await told(folder.close());
  }
}
