import type { Locks } from '../lock/index.ts';
import type { Cli } from './run.ts';

/** The locks of the command line's database; what is still held there when the command ends is released. */
export async function openLocks(cli: Cli, namespace: string): Promise<Locks> {
  const engine = await cli.engine();
  const { createLocks } = await import('../lock/index.ts');
  const locks = createLocks(engine, { namespace });
  cli.atEnd(() => locks.stop());
  return locks;
}
