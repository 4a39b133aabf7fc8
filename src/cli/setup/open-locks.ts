import type { Command } from 'commander';
import type { Locks } from '../../lock/index.ts';
import { addDynamoFlags, type DynamoFlags, flagsOf, openTable, tableOf } from './dynamo-table.ts';
import type { Cli } from './run.ts';

/** The place of the locks that a command works with. */
export interface LockFlags extends DynamoFlags {
  readonly namespace: string;
}

/** Adds the options that name that place to a command. */
export function addLockFlags(command: Command): Command {
  command.option('--namespace <namespace>', 'the namespace of the locks, as passed to createLocks', '');
  return addDynamoFlags(command, 'the table of the locks');
}

/** The locks. When the command ends, it releases the locks that it still holds. */
export async function openLocks(cli: Cli, flags: LockFlags): Promise<Locks> {
  const table = tableOf(flags, cli);
  const engine = table === undefined ? await cli.engine() : await openTable(cli, table, flags);
  const { createLocks } = await import('../../lock/index.ts');
  const locks = createLocks(engine, { namespace: flags.namespace });
  cli.atEnd(() => locks.stop());
  return locks;
}

/** Another command for the same locks, as advice. */
export function lockCommand(words: string, flags: LockFlags): string {
  const namespace = flags.namespace === '' ? [] : [`--namespace ${JSON.stringify(flags.namespace)}`];
  return ['pawl lock', words, ...namespace, ...flagsOf(flags)].join(' ');
}
