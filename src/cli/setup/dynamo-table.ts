import type { Command } from 'commander';
import { ConnectionFailed, InvalidInput, SchemaMismatch } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { EXIT, Failure } from '../output/failure.ts';
import type { Globals } from './globals.ts';

/** Options that name a table of DynamoDB, in place of a database. */
export interface DynamoFlags {
  /** The table; true for the default one. */
  readonly dynamodb?: string | true;
  readonly region?: string;
  readonly endpoint?: string;
}

/** The parts of a command that a table uses: its end, and its advice after a failure. */
interface TableUser {
  atEnd(close: () => Promise<void>): void;
  advise(next: (error: unknown) => string | undefined): void;
}

const DEFAULT_TABLE = 'pawl';

/** Adds these options to a command. @param what  the content of the table, for the help text */
export function addDynamoFlags(command: Command, what: string): Command {
  return command
    .option('--dynamodb [table]', `${what} on DynamoDB instead; "${DEFAULT_TABLE}" unless named`)
    .option('--region <region>', 'the region of the table; else AWS_REGION')
    .option('--endpoint <url>', 'the URL of the service, e.g. http://localhost:8000 for DynamoDB Local');
}

/** Adds these options to all commands of a group. */
export function addDynamoFlagsToAll(group: Command, what: string): void {
  for (const command of group.commands) addDynamoFlags(command, what);
}

/** The named table; undefined if the command is about Postgres. @throws Failure (usage) if it is about both */
export function tableOf(
  { dynamodb, region, endpoint }: DynamoFlags,
  { globals }: { readonly globals: Pick<Globals, 'url'> },
): string | undefined {
  if (dynamodb === undefined) {
    if (region === undefined && endpoint === undefined) return undefined;
    const option = region === undefined ? '--endpoint' : '--region';
    throw new Failure(`${option} is about DynamoDB, but no table was named`, {
      exit: EXIT.usage,
      next: 'add --dynamodb',
    });
  }
  if (globals.url !== undefined) {
    throw new Failure('--url names a Postgres database and --dynamodb a table of DynamoDB: they exclude each other', {
      exit: EXIT.usage,
      next: 'leave one of the two out',
    });
  }
  return typeof dynamodb === 'string' ? dynamodb : DEFAULT_TABLE;
}

/** An engine on the table, closed when the command ends. */
export async function openTable(
  cli: TableUser,
  table: string,
  flags: DynamoFlags,
  logger?: Logger,
): Promise<DynamoEngine> {
  const { openDynamodb } = await import('../../engine/dynamodb/own-client.ts');
  const { region, endpoint } = flags;
  const { engine, stop } = await openDynamodb({ table, region, endpoint, logger });
  cli.atEnd(async () => stop());
  cli.advise((error) => nextStepOf(error, flags));
  return engine;
}

/** The same options again, for another command. */
export function flagsOf({ dynamodb, region, endpoint }: DynamoFlags): readonly string[] {
  return [
    ...(dynamodb === undefined ? [] : [`--dynamodb${dynamodb === true ? '' : ` ${dynamodb}`}`]),
    ...(region === undefined ? [] : [`--region ${region}`]),
    ...(endpoint === undefined ? [] : [`--endpoint ${endpoint}`]),
  ];
}

/** The command that creates the table. */
export function migrateCommand(flags: DynamoFlags): string {
  return ['pawl migrate', ...flagsOf(flags)].join(' ');
}

function nextStepOf(error: unknown, flags: DynamoFlags): string | undefined {
  const isFromService = error instanceof Error && error.cause instanceof Error;
  if (error instanceof SchemaMismatch) return isFromService ? migrateCommand(flags) : undefined;
  if (error instanceof InvalidInput && isFromService) {
    return 'give --region or AWS_REGION, and credentials as for every other tool of AWS; --endpoint for DynamoDB Local';
  }
  if (!(error instanceof ConnectionFailed)) return undefined;
  return flags.endpoint === undefined
    ? 'see whether this machine reaches AWS, and whether the region is right'
    : `start what listens at ${flags.endpoint}, or correct --endpoint`;
}
