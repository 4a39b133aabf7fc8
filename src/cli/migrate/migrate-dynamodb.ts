import { type Command, Option } from 'commander';
import { EXIT } from '../output/failure.ts';
import { addDynamoFlags, type DynamoFlags, migrateCommand, openTable } from '../setup/dynamo-table.ts';
import type { Cli } from '../setup/run.ts';

/** The options of `pawl migrate` for DynamoDB. */
export interface MigrateFlags extends DynamoFlags {
  readonly template?: 'cloudformation' | 'terraform';
}

/** Adds these options to a command. */
export function addMigrateFlags(command: Command): void {
  addDynamoFlags(command, 'the table of locks').addOption(
    new Option('--template <kind>', 'for plan and --dry-run').choices(['cloudformation', 'terraform']),
  );
}

/** Creates the table, or, on a dry run, prints it as a template. */
export async function migrateDynamodb(cli: Cli, table: string, flags: MigrateFlags): Promise<number> {
  if (cli.globals.dryRun) return planDynamodb(cli, table, flags);
  const { isCreated } = await (await openTable(cli, table, flags)).migrate();
  cli.talk.say(isCreated ? `created table "${table}"` : `table "${table}" is up to date`);
  const fields = [
    { title: 'table', of: () => table },
    { title: 'created', of: () => isCreated },
  ];
  cli.out.one({ table, created: isCreated }, fields, table);
  return EXIT.done;
}

/** Prints the table as a template, without any request. */
export async function planDynamodb(cli: Cli, table: string, flags: MigrateFlags): Promise<number> {
  const { dynamodb } = await import('../../engine/dynamodb/index.ts');
  const engine = dynamodb({ send: () => Promise.reject(new Error('a plan sends nothing')) }, { table });
  cli.out.text(JSON.stringify(engine.template(flags.template ?? 'cloudformation'), undefined, 2));
  return EXIT.done;
}

/** Shows whether the table exists; exit 1 if it does not. */
export async function showDynamodb(cli: Cli, table: string, flags: MigrateFlags): Promise<number> {
  const state = (await (await openTable(cli, table, flags)).isMigrated()) ? 'current' : 'behind';
  cli.out.one(
    { table, state },
    [
      { title: 'table', of: () => table },
      { title: 'state', of: () => state },
    ],
    state,
  );
  if (state === 'current') return EXIT.done;
  cli.talk.fail(`there is no table "${table}"`, migrateCommand(flags));
  return EXIT.failed;
}
