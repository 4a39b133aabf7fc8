import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readSheet } from 'read-excel-file/node';
import writeExcelFile, { type SheetData } from 'write-excel-file/node';
import type { Cell, Row } from './sheet.ts';

/** A file that is being written: everything of it is there under its final name, or nothing. */
const UNFINISHED = '.part';

export interface WriteOptions {
  /** Waits this long in the middle of the file, in ms: time to kill the process and see what becomes of it. Default 0. */
  readonly pauseMs?: number;
  readonly signal?: AbortSignal;
}

/** Writes an .xlsx file: under another name first, flushed to the disk, then renamed. */
export async function writeWorkbook(
  path: string,
  columns: readonly string[],
  rows: readonly Row[],
  { pauseMs = 0, signal }: WriteOptions = {},
): Promise<void> {
  const bytes = await writeExcelFile(toSheet(columns, rows), { sheet: 'Sheet 1', stickyRowsCount: 1 }).toBuffer();
  const unfinished = `${path}.${randomUUID()}${UNFINISHED}`;
  const file = await open(unfinished, 'wx');
  try {
    const middle = Math.floor(bytes.length / 2);
    await file.writeFile(bytes.subarray(0, middle));
    if (pauseMs > 0) await sleep(pauseMs, undefined, signal === undefined ? {} : { signal });
    await file.writeFile(bytes.subarray(middle));
    await file.sync();
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  } finally {
    await file.close();
  }
  signal?.throwIfAborted();
  await rename(unfinished, path);
}

/** The cells of an .xlsx file, given by its path or its bytes, row by row, the column names first. */
export async function readWorkbook(file: string | Buffer): Promise<Cell[][]> {
  const rows = await readSheet(file, undefined, { trim: false });
  return rows.map((row) => row.map(toCell));
}

/** The folder's files of one spreadsheet, finished or not. */
export async function filesOf(folder: string, id: string): Promise<string[]> {
  const names = await readdir(folder);
  return names.filter((name) => name.startsWith(`${id}.v`));
}

/**
 * A file name that no other process will ever write: the token rises with every claim of the spreadsheet, so that a process that
 * was paused and has lost its claim cannot overwrite what its successor wrote.
 */
export function fileName(id: string, version: number, token: bigint): string {
  return `${id}.v${version}.${token}.xlsx`;
}

/**
 * Removes what is no longer needed of a spreadsheet: old versions, and what killed processes left behind. What has a later token is
 * of a successor, which this process does not know yet that it has.
 */
export async function sweep(folder: string, id: string, keep: string | null, token: bigint): Promise<void> {
  for (const name of await filesOf(folder, id)) {
    if (name !== keep && tokenIn(name) < token) await rm(join(folder, name), { force: true });
  }
}

/** Of "id.v3.17.xlsx", and of what is to become that: 17. */
function tokenIn(name: string): bigint {
  return BigInt(/\.v\d+\.(\d+)\./.exec(name)?.[1] ?? 0);
}

export async function makeFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
}

function toSheet(columns: readonly string[], rows: readonly Row[]): SheetData {
  const head = columns.map((name) => ({ value: escape(name), fontWeight: 'bold' as const }));
  return [head, ...rows.map((row) => row.map((cell) => (typeof cell === 'string' ? escape(cell) : cell)))];
}

/** What is written here has no dates; a file from elsewhere might. */
function toCell(value: unknown): Cell {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
  return value instanceof Date ? value.toISOString() : null;
}

/** In .xlsx `_x0041_` means "A"; a text that happens to look so has its underscore written the same way. */
function escape(text: string): string {
  return text.replace(/_(?=x[0-9a-f]{4}_)/gi, '_x005F_');
}
