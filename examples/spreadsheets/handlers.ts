import { join } from 'node:path';
import { NoRetry, type Unit } from 'pawl/queue';
import type { Create, Update } from './payload.ts';
import { applyChange, type Row } from './sheet.ts';
import type { SheetHandlers, SheetStore, Spreadsheet } from './store.ts';
import { fileName, sweep, writeWorkbook } from './workbook.ts';

/** What a back end needs to do its work. */
export interface Desk {
  readonly store: SheetStore;
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

/** What a back end does with each request. */
export function handlersOf(desk: Desk): SheetHandlers {
  return {
    /** The first version of a spreadsheet. */
    create: (unit: Unit<Create>) => writeNext(desk, unit, () => unit.payload.rows),
    /** The next version: one, for all the updates of this unit. */
    update: (unit: Unit<Update>) =>
      writeNext(desk, unit, (sheet, jobs) =>
        jobs.reduce<readonly Row[]>((rows, { payload }) => applyChange(rows, payload), sheet.rows),
      ),
  };
}

/**
 * Until the new version is saved, the old file is the current one; a crash at any point leaves at most a file without a reference,
 * which the next run sweeps away. A job that comes again after its version was saved, since its back end was killed between that and
 * the outcome of the job, is done already.
 */
async function writeNext<P>(
  desk: Desk,
  unit: Unit<P>,
  rowsAfter: (sheet: Spreadsheet, jobs: Unit<P>['jobs']) => readonly Row[],
): Promise<{ readonly version: number }> {
  const begun = performance.now();
  const { store, folder, pauseMs } = desk;
  const sheet = await store.begin(unit);
  if (sheet === undefined) throw new NoRetry(`there is no spreadsheet "${unit.key}"`);
  if (unit.kind === 'update' && sheet.version === 0) throw new NoRetry(`"${sheet.id}" could not be created`);
  const jobs = unit.jobs.filter(({ id }) => !sheet.jobs.includes(id));
  if (jobs.length === 0) return { version: sheet.version };
  await sweep(folder, sheet.id, sheet.file, unit.token);
  const rows = rowsAfter(sheet, jobs);
  const version = sheet.version + 1;
  const file = fileName(sheet.id, version, unit.token);
  await writeWorkbook(join(folder, file), sheet.columns, rows, { pauseMs, signal: unit.signal });
  await store.save(unit, sheet, { rows, version, file, jobs: unit.jobs.map(({ id }) => id) });
  desk.onWritten({
    id: sheet.id,
    version,
    rows: rows.length,
    requests: jobs.length,
    tookMs: performance.now() - begun,
  });
  return { version };
}
