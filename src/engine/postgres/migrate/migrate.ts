import { InvalidInput, SchemaMismatch } from '../../../base/errors.ts';
import { failure } from '../failure.ts';
import type { SchemaName } from '../schema/name.ts';
import { type FunctionSet, type Migration, schema as released, type Schema } from '../schema.gen.ts';
import type { Session } from '../session/session.ts';
import type { Statement } from '../sql.ts';
import { type AppliedSchema, compare, label, outstanding } from './compare.ts';
import { nameMissingRight } from './rights.ts';
import {
  applyFunctions,
  applyTables,
  begin,
  type FunctionsRow,
  IS_FOUNDED,
  type MigrationRow,
  READ_FUNCTIONS,
  READ_MIGRATIONS,
  script,
} from './sql.ts';

/** What to bring up to date, and how. */
export interface MigrateOptions {
  /** Changes nothing; the report's `sql` is the script that would run, fit for psql. Default false. */
  dryRun?: boolean | undefined;
  /** Only these lines, e.g. `['queue']`. Default: all. */
  lines?: string[] | undefined;
}

/** One numbered file of one line. */
export interface MigrationStep {
  line: string;
  number: number;
  name: string;
}

/** What `migrate()` did. */
export interface MigrationReport {
  /** Numbered files applied by this call; empty if no file was missing, or another process was quicker. */
  applied: MigrationStep[];
  /** Lines whose functions and views were applied again by this call. */
  functions: string[];
  /** Only of a dry run: the statements that it would have run. */
  sql: string | null;
}

/** The functions and views of one line. */
export interface FunctionsStatus {
  line: string;
  /** Whether they are those of this version. */
  state: 'current' | 'behind';
  /** Null: never. */
  appliedAt: Date | null;
  /** Functions of an earlier version, kept for its processes. A later migration removes them. */
  retired: string[];
}

/** How the schema in the database compares with this version. */
export interface MigrationStatus {
  /** `behind` is mended by `migrate()`; `newer` by upgrading Pawl; `changed` by a person. */
  state: 'current' | 'behind' | 'newer' | 'changed';
  applied: (MigrationStep & { appliedAt: Date })[];
  pending: MigrationStep[];
  functions: FunctionsStatus[];
  /** What is newer or changed, in words; null otherwise. */
  problem: string | null;
}

/** The part of an engine that a migration needs. */
export interface MigrationTarget {
  readonly schema: SchemaName;
  query<Row>(sql: Statement, values?: unknown[]): Promise<Row[]>;
  session<T>(fn: (session: Session) => Promise<T>): Promise<T>;
}

/**
 * Applies each numbered file that is missing. Then applies the functions and views of each line if they differ from those in
 * the database. Each file, and the functions of each line, have a transaction of their own. Every transaction first takes the
 * same advisory lock and then compares again, so any number of processes may start at once. Needs CREATE on the database only
 * the first time.
 * @throws NotSupported if this role lacks a privilege; the message names the GRANT
 * @throws SchemaMismatch if the database is newer than this version, or an applied file was changed since
 */
export async function migrate(
  engine: MigrationTarget,
  options: MigrateOptions = {},
  known: Schema = released,
): Promise<MigrationReport> {
  try {
    return await bringUpToDate(engine, options, known);
  } catch (error) {
    throw await nameMissingRight(engine, error);
  }
}

async function bringUpToDate(
  engine: MigrationTarget,
  options: MigrateOptions,
  known: Schema,
): Promise<MigrationReport> {
  const wanted = select(known, options.lines);
  const { pending, outdated } = outstanding(await readApplied(engine), known, wanted);
  if (options.dryRun === true) {
    const scripts = [...pending.map(applyTables), ...outdated.map((set) => applyFunctions(set, known.version))];
    return { applied: [], functions: [], sql: scripts.map((one) => script(one, engine.schema)).join('\n') };
  }
  const report: MigrationReport = { applied: [], functions: [], sql: null };
  if (pending.length + outdated.length > 0) {
    await engine.session(async (session) => {
      while (await applyNext(session, known, wanted, report));
    });
  }
  return report;
}

/** Compares without changing anything. */
export async function status(engine: MigrationTarget, known: Schema = released): Promise<MigrationStatus> {
  const applied = await readApplied(engine);
  const { pending, outdated, newer, changed } = compare(applied, known);
  const behind = pending.length + outdated.length > 0 ? 'behind' : 'current';
  return {
    state: changed === undefined ? (newer === undefined ? behind : 'newer') : 'changed',
    applied: applied.migrations.map((row) => ({ ...step(row), appliedAt: row.applied_at })),
    pending: pending.map(step),
    functions: known.functions.map((set) => {
      const row = applied.functions.find(({ line }) => line === set.line);
      return {
        line: set.line,
        state: outdated.includes(set) ? 'behind' : 'current',
        appliedAt: row?.applied_at ?? null,
        retired: row?.retired ?? [],
      };
    }),
    problem: changed ?? newer ?? null,
  };
}

async function readApplied(engine: Pick<MigrationTarget, 'query'>): Promise<AppliedSchema> {
  const [founded] = await engine.query<{ tables: boolean; functions: boolean }>(IS_FOUNDED);
  return {
    migrations: founded?.tables === true ? await engine.query<MigrationRow>(READ_MIGRATIONS) : [],
    functions: founded?.functions === true ? await engine.query<FunctionsRow>(READ_FUNCTIONS) : [],
  };
}

/**
 * Applies, in one transaction, the next file that is missing under the lock, or else the functions of the next line. False if
 * nothing is missing.
 */
async function applyNext(session: Session, known: Schema, wanted: Schema, report: MigrationReport): Promise<boolean> {
  try {
    await session.run(begin(session.schema));
    const { pending, outdated } = outstanding(await readApplied(session), known, wanted);
    const [migration] = pending;
    const [set] = outdated;
    if (migration !== undefined) await apply(session, label(migration), applyTables(migration));
    else if (set !== undefined) await apply(session, `"${set.line}"`, applyFunctions(set, known.version));
    await session.run('commit');
    noteIn(report, migration, set);
    return migration !== undefined || set !== undefined;
  } catch (error) {
    await session.run('rollback').catch(() => session.release(true));
    throw failure(error);
  }
}

async function apply(session: Session, name: string, { run, note }: { run: string; note: string }): Promise<void> {
  await session.run(run);
  if (session.client.getTransactionStatus?.() === 'I') {
    throw new SchemaMismatch(`${name} ends its own transaction; take COMMIT and ROLLBACK out of the file`);
  }
  await session.run(note);
}

function noteIn(report: MigrationReport, migration: Migration | undefined, set: FunctionSet | undefined): void {
  if (migration !== undefined) report.applied.push(step(migration));
  else if (set !== undefined) report.functions.push(set.line);
}

function select(known: Schema, lines: string[] | undefined): Schema {
  const names = new Set([...known.migrations, ...known.functions].map(({ line }) => line));
  const missing = lines?.find((line) => !names.has(line));
  if (missing !== undefined) {
    throw new InvalidInput(`there is no migration line "${missing}"; there are ${[...names].join(', ')}`, {
      field: 'lines',
    });
  }
  const isWanted = ({ line }: { readonly line: string }): boolean => lines?.includes(line) ?? true;
  return { ...known, migrations: known.migrations.filter(isWanted), functions: known.functions.filter(isWanted) };
}

function step({ line, number, name }: MigrationStep): MigrationStep {
  return { line, number, name };
}
