import type { Command } from 'commander';
import { suggest } from '../../base/options/options.ts';
import type { MigrationStatus } from '../../engine/postgres/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import { tableOf } from '../setup/dynamo-table.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';
import { addMigrateFlags, type MigrateFlags, migrateDynamodb, planDynamodb, showDynamodb } from './migrate-dynamodb.ts';

/** `pawl migrate [up|status|plan]`. */
export function addMigrate(program: Command): void {
  const migrate = program.command('migrate').description('bring the schema in the database up to this version');
  examples(migrate, ['pawl migrate', 'pawl migrate --dynamodb']);
  const up = migrate
    .command('up', { isDefault: true })
    .description('apply missing migrations and functions (the default)')
    .argument('[unknown...]')
    .usage('[options]');
  examples(up, ['pawl migrate up', 'pawl migrate up --dry-run > pawl.sql']);
  addMigrateFlags(up);
  up.action((unknown: string[], flags: MigrateFlags, self: Command) => {
    refuseUnknown(unknown, migrate);
    return run(self, either(flags, bringUp, migrateDynamodb), { writes: true });
  });
  const status = migrate
    .command('status')
    .description('compare the database with this version and with what was installed; exit 1 when it differs');
  examples(status, ['pawl migrate status', 'pawl migrate status -o json']);
  addMigrateFlags(status);
  status.action((flags: MigrateFlags, self: Command) => run(self, either(flags, showStatus, showDynamodb)));
  const planned = migrate.command('plan').description('print the SQL that would be run, for psql; change nothing');
  examples(planned, ['pawl migrate plan', 'pawl migrate plan | psql "$DATABASE_URL"']);
  addMigrateFlags(planned);
  planned.action((flags: MigrateFlags, self: Command) => run(self, either(flags, plan, planDynamodb)));
}

/** Works on Postgres, or on DynamoDB if a table of DynamoDB is named. */
function either(
  flags: MigrateFlags,
  onPostgres: (cli: Cli) => Promise<number>,
  onDynamodb: (cli: Cli, table: string, flags: MigrateFlags) => Promise<number>,
): (cli: Cli) => Promise<number> {
  return async (cli) => {
    const table = tableOf(flags, cli);
    return table === undefined ? onPostgres(cli) : onDynamodb(cli, table, flags);
  };
}

function bringUp(cli: Cli): Promise<number> {
  return cli.globals.dryRun ? plan(cli) : apply(cli);
}

/**
 * With a default command, commander takes a mistyped command for an argument of the default one, which must not migrate then.
 */
function refuseUnknown([word]: readonly string[], migrate: Command): void {
  if (word === undefined) return;
  const names = migrate.commands.map((command) => command.name());
  const near = suggest(word, names);
  throw new Failure(
    `pawl migrate has no command "${word}"; ${near === undefined ? `it has ${names.join(', ')}` : `did you mean "${near}"?`}`,
    {
      exit: EXIT.usage,
      next: `pawl migrate ${near ?? '--help'}`,
    },
  );
}

/** A numbered file, or the functions of a line, which have no number. */
interface Step {
  readonly line: string;
  readonly number: number | null;
  readonly name: string;
  readonly state: 'applied' | 'pending';
  readonly appliedAt: Date | null;
}

const FUNCTIONS = { number: null, name: 'functions' };

async function apply(cli: Cli): Promise<number> {
  const engine = await cli.engine();
  const { applied, functions } = await engine.migrate();
  const steps = [
    ...applied.map((step): Step => ({ ...step, state: 'applied', appliedAt: null })),
    ...functions.map((line): Step => ({ ...FUNCTIONS, line, state: 'applied', appliedAt: null })),
  ];
  const { url } = await engine.describe();
  cli.talk.say(steps.length === 0 ? `${url} is up to date` : `applied ${steps.length} to ${url}`);
  if (cli.out.format === 'table') printByLine(cli, steps);
  else print(cli, steps);
  return EXIT.done;
}

async function plan(cli: Cli): Promise<number> {
  const engine = await cli.engine();
  const sql = (await engine.migrate({ dryRun: true })).sql ?? '';
  sayRetired(cli, await engine.status());
  if (sql === '') cli.talk.say('nothing to do: the schema is up to date');
  else cli.out.script(sql);
  return EXIT.done;
}

/** Functions that no migration has dropped yet. */
function sayRetired(cli: Cli, { functions }: MigrationStatus): void {
  for (const { retired } of functions) {
    for (const name of retired) cli.talk.say(`${name} is kept for processes of an earlier version`);
  }
}

async function showStatus(cli: Cli): Promise<number> {
  const engine = await cli.engine();
  const status = await engine.status();
  const drift = await engine.drift();
  if (cli.globals.output === 'json') cli.out.one({ ...status, drift }, [], status.state);
  else print(cli, stepsOf(status));
  const { state, problem } = status;
  sayRetired(cli, status);
  for (const { kind, name, problem: differs, mend } of drift) cli.talk.fail(`${kind} ${name}: ${differs}`, mend);
  if (state === 'current') {
    cli.talk.say(
      drift.length === 0 ? 'the schema is up to date' : `the schema is up to date, except for ${drift.length} objects`,
    );
    return drift.length === 0 ? EXIT.done : EXIT.failed;
  }
  if (state === 'behind') {
    const pending = stepsOf(status).filter((step) => step.state === 'pending');
    cli.talk.fail(`the schema is behind by ${pending.length}`, 'pawl migrate');
  } else cli.talk.fail(problem ?? state, state === 'newer' ? 'upgrade pawl here: npm install pawl@latest' : undefined);
  return EXIT.failed;
}

function stepsOf({ applied, pending, functions }: MigrationStatus): Step[] {
  return [
    ...applied.map((step): Step => ({ ...step, state: 'applied' })),
    ...pending.map((step): Step => ({ ...step, state: 'pending', appliedAt: null })),
    ...functions.map(
      ({ line, state, appliedAt }): Step => ({
        ...FUNCTIONS,
        line,
        state: state === 'current' ? 'applied' : 'pending',
        appliedAt,
      }),
    ),
  ];
}

/** Prints a row for each capability: a person wants to know what was done, and not the sixty files of it. */
function printByLine({ out }: Cli, steps: readonly Step[]): void {
  const lines = [...new Set(steps.map(({ line }) => line))];
  if (lines.length === 0) return;
  const of = (line: string): Step[] => steps.filter((step) => step.line === line);
  out.rows(
    lines,
    [
      { title: 'LINE', of: (line) => line },
      { title: 'FILES', of: (line) => of(line).filter(({ number }) => number !== null).length, align: 'right' },
      { title: 'FUNCTIONS', of: (line) => (of(line).some(({ number }) => number === null) ? 'replaced' : 'unchanged') },
    ],
    (line) => line,
  );
}

function print({ out }: Cli, steps: readonly Step[]): void {
  if (steps.length === 0 && out.format === 'table') return;
  out.rows(
    steps,
    [
      { title: 'LINE', of: (step) => step.line },
      { title: 'NUMBER', of: (step) => step.number ?? '', align: 'right' },
      { title: 'NAME', of: (step) => step.name },
      { title: 'STATE', of: (step) => step.state },
      { title: 'APPLIED', of: (step) => step.appliedAt },
    ],
    (step) => `${step.line}/${step.number ?? step.name}`,
  );
}
