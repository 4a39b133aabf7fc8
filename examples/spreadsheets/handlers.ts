import { join } from 'node:path';
import type { PostgresEngine } from 'pawl/postgres';
import { NoRetry, type Unit } from 'pawl/queue';
import { applyRun, beginRun } from './postgres/run-log.ts';
import { applyChange, type Change, type Row } from './sheet.ts';
import { lock, type Spreadsheet, save } from './postgres/table.ts';
import { fileName, sweep, writeWorkbook } from './workbook.ts';

/** What a back end needs to do its work. */
export interface Desk {
  readonly engine: PostgresEngine;
  /** Where the files are. */
  readonly folder: string;
  /** A pause in the middle of each file, in ms. */
  readonly pauseMs: number;
  onWritten(written: Written): void;
}

export interface Written {
  readonly id: string;
  readonly version: number;
  readonly rows: number;
  /** How many requests are in it that were not in the version before. */
  readonly requests: number;
  readonly tookMs: number;
}

export interface Outcome {
  readonly version: number;
}

/** The first version of a spreadsheet. */
export function create(desk: Desk, unit: Unit<{ readonly rows: readonly Row[] }>): Promise<Outcome> {
  return writeNext(desk, unit, () => unit.payload.rows);
}

/** The next version: one, for all the updates of this unit. */
export function update(desk: Desk, unit: Unit<Change>): Promise<Outcome> {
  return writeNext(desk, unit, (sheet) => unit.jobs.reduce((rows, job) => applyChange(rows, job.payload), sheet.rows));
}

/**
 * The new rows, the name of the new file and the outcome of the jobs are committed together. Until then the old file is the
 * current one; a crash at any point leaves at most a file without a reference, which the next run sweeps away.
 */
async function writeNext(desk: Desk, unit: Unit, rowsAfter: (sheet: Spreadsheet) => readonly Row[]): Promise<Outcome> {
  const begun = performance.now();
  await beginRun(desk.engine, unit);
  const sheet = await lock(unit.tx, unit.key ?? '');
  if (sheet === undefined) throw new NoRetry(`there is no spreadsheet "${unit.key}"`);
  await sweep(desk.folder, sheet.id, sheet.file);
  const rows = rowsAfter(sheet);
  const version = sheet.version + 1;
  const file = fileName(sheet.id, version, unit.token);
  const { pauseMs } = desk;
  await writeWorkbook(join(desk.folder, file), sheet.columns, rows, { pauseMs, signal: unit.signal });
  await save(unit.tx, { id: sheet.id, rows, version, file });
  await applyRun(unit);
  desk.onWritten({
    id: sheet.id,
    version,
    rows: rows.length,
    requests: unit.jobs.length,
    tookMs: performance.now() - begun,
  });
  return { version };
}
