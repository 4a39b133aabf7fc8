import { type Command, Option } from 'commander';
import type { DynamoEngine } from '../engine/dynamodb/index.ts';
import { EXIT } from './failure.ts';
import type { Cli } from './run.ts';

/** Options of `pawl migrate` that are about DynamoDB. */
export interface DynamoFlags {
  /** The table; true for the default one. */
  readonly dynamodb?: string | true;
  readonly region?: string;
  readonly endpoint?: string;
  readonly template?: 'cloudformation' | 'terraform';
}

const DEFAULT_TABLE = 'pawl';

/** Adds them to one of its commands. */
export function addDynamoFlags(command: Command): void {
  command
    .option('--dynamodb [table]', `the table of locks on DynamoDB instead; "${DEFAULT_TABLE}" unless named`)
    .option('--region <region>', 'of the table; else AWS_REGION')
    .option('--endpoint <url>', 'e.g. http://localhost:8000 for DynamoDB Local')
    .addOption(new Option('--template <kind>', 'for plan and --dry-run').choices(['cloudformation', 'terraform']));
}

/** Creates the table, or, on a dry run, prints it as a template. */
export async function migrateDynamodb(cli: Cli, flags: DynamoFlags): Promise<number> {
  if (cli.globals.dryRun) return planDynamodb(cli, flags);
  const engine = await open(cli, flags);
  const { table, isCreated } = await engine.migrate();
  cli.talk.say(isCreated ? `created table "${table}"` : `table "${table}" is up to date`);
  const fields = [
    { title: 'table', of: () => table },
    { title: 'created', of: () => isCreated },
  ];
  cli.out.one({ table, created: isCreated }, fields, table);
  return EXIT.done;
}

/** Prints the table as a template: nothing is asked of anybody. */
export async function planDynamodb(cli: Cli, flags: DynamoFlags): Promise<number> {
  const { dynamodb } = await import('../engine/dynamodb/index.ts');
  const engine = dynamodb({ send: () => Promise.reject(new Error('a plan sends nothing')) }, { table: tableOf(flags) });
  cli.out.text(JSON.stringify(engine.template(flags.template ?? 'cloudformation'), undefined, 2));
  return EXIT.done;
}

/** Whether the table is there; exit 1 when not. */
export async function showDynamodb(cli: Cli, flags: DynamoFlags): Promise<number> {
  const engine = await open(cli, flags);
  const state = (await engine.isMigrated()) ? 'current' : 'behind';
  const { table } = engine;
  cli.out.one(
    { table, state },
    [
      { title: 'table', of: () => table },
      { title: 'state', of: () => state },
    ],
    state,
  );
  if (state === 'current') return EXIT.done;
  cli.talk.fail(`there is no table "${table}"`, `pawl migrate --dynamodb ${table}`);
  return EXIT.failed;
}

async function open(cli: Cli, flags: DynamoFlags): Promise<DynamoEngine> {
  const { openDynamodb } = await import('../engine/dynamodb/own-client.ts');
  const { region, endpoint } = flags;
  const { engine, stop } = await openDynamodb({ table: tableOf(flags), region, endpoint });
  cli.atEnd(async () => stop());
  return engine;
}

function tableOf({ dynamodb }: DynamoFlags): string {
  return typeof dynamodb === 'string' ? dynamodb : DEFAULT_TABLE;
}
